import CCurl
import ThumbnailCache

/// A pool of connections for each origin, so that one opened for an origin serves no other (F58): each trusts
/// authorities of its own, may reach addresses of its own and sends tokens of its own.
///
/// TLS sessions are kept with them, for as long: each request has a new handle, whose own would go with it, and every
/// new connection would cost the origin a whole handshake.
///
/// libcurl keeps idle connections with a multi handle, whoever they were opened for, unless a transfer has a share
/// object with a pool. There are as many as origins are configured: the pool of one that no longer is goes with its
/// last transfer. Only the fetcher's thread touches them, so that no locks are needed.
final class ConnectionPools {
    private var pools: [String: UnsafeMutableRawPointer] = [:]

    var count: Int { pools.count }

    /// Closes the connections of all origins but these, as far as no request has them.
    func prune(keeping origins: Set<String>) {
        for (name, pool) in pools where !origins.contains(name) {
            // CURLSHE_IN_USE while a handle is attached: then the next time.
            if curl_share_cleanup(pool) == CURLSHE_OK { pools[name] = nil }
        }
    }

    /// Closes all connections. No handle may be attached any more, and the multi handle must be gone.
    func close() {
        for pool in pools.values { curl_share_cleanup(pool) }
        pools = [:]
    }

    /// Has a request use the pool of an origin. Before it is handed to the multi handle.
    func attach(_ easy: EasyHandle, to origin: Origin) throws(TransferFailure) {
        if pools[origin.name] == nil {
            guard let pool = curl_share_init() else { throw .origin("libcurl: out of memory") }
            for kind in [CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_SSL_SESSION] {
                guard ccurl_share_set_long(pool, CURLSHOPT_SHARE, Int32(kind.rawValue)) == CURLSHE_OK else {
                    curl_share_cleanup(pool)
                    throw .origin("libcurl: out of memory for a pool of connections")
                }
            }
            pools[origin.name] = pool
        }
        try easy.set(CURLOPT_SHARE, pointer: pools[origin.name])
    }
}
