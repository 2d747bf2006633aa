import CCurl
import CacheCore
import Glibc
import HelperProtocol
import NIOCore
import Origins

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

/// The sockets that libcurl has open, so that a connection can be looked at before it is used again.
///
/// libcurl 7.88 takes an idle connection for good when something unread lies in it, and then takes what lies there for
/// the answer to the next request. One answer longer than it said, and from then on everybody would be given the
/// picture of who asked before. Which connection libcurl has chosen is known only by the addresses of its two ends.
///
/// Only the fetcher's thread touches it.
final class ConnectionTable {
    /// The two ends of a connection; of which the own port would nearly do.
    struct Ends: Hashable {
        let localAddress: String
        let localPort: Int32
        let remoteAddress: String
        let remotePort: Int32
    }

    private var sockets: [Ends: curl_socket_t] = [:]
    private var ends: [curl_socket_t: Ends] = [:]

    /// Notes a connection that is about to be used for the first time, on one of the sockets that were opened for it.
    /// False when it is on none of them: then it was used before.
    func add(_ ends: Ends, among opened: [curl_socket_t]) -> Bool {
        guard let socket = opened.first(where: { Self.port(of: $0) == ends.localPort }) else { return false }
        sockets[ends] = socket
        self.ends[socket] = ends
        return true
    }

    /// Whether a connection used before can be used again: nothing is left in it that nobody asked for, and it has not
    /// ended. `easy` is the transfer that it was chosen for.
    func isClean(_ ends: Ends, for easy: EasyHandle) -> Bool {
        switch ccurl_tls_state(easy.raw) {
        case CCURL_TLS_HTTP2: return true
        case CCURL_TLS_UNREAD: return false
        default: break
        }
        guard let socket = sockets[ends] else { return false }
        var byte: UInt8 = 0
        let count = recv(socket, &byte, 1, Int32(MSG_PEEK) | Int32(MSG_DONTWAIT))
        return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)
    }

    /// Closes a socket that libcurl has done with.
    func close(_ socket: curl_socket_t) -> Int32 {
        if let ends = ends.removeValue(forKey: socket) { sockets[ends] = nil }
        return Glibc.close(socket)
    }

    /// It lies where it does in an IPv4 address, too.
    private static func port(of socket: curl_socket_t) -> Int32? {
        var address = sockaddr_in6()
        var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
        let code = withUnsafeMutableBytes(of: &address) { bytes in
            getsockname(socket, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        guard code == 0, [AF_INET, AF_INET6].contains(Int32(address.sin6_family)) else { return nil }
        return Int32(UInt16(bigEndian: address.sin6_port))
    }
}

// Where a transfer may go, as libcurl asks it: for each socket that it opens, and for each request on a connection.

extension Transfer {
    /// The socket for a connection to `address`, or CURL_SOCKET_BAD for one that must not be reached.
    func socket(for address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        lookup.end()
        let family = address.pointee.family
        if origin.proxy.isEmpty {
            // The address reaches beyond the struct that it begins in, whose last field is declared too short for IPv6:
            // so it is read where it lies, never as a copy of that field.
            let field = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
            let ip = IPAddress(field.assumingMemoryBound(to: sockaddr.self), length: Int(address.pointee.addrlen))
            guard let ip, !isRefused(ip) else { return CURL_SOCKET_BAD }
        }
        let socket = Glibc.socket(
            family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
        // A family that this machine does not have is the address's fault; a want of descriptors or memory is ours.
        if socket < 0, errno != EAFNOSUPPORT { lacksSocket = true }
        if socket >= 0 { openedSockets.append(socket) }
        return socket
    }

    /// Whether a request may go out on the connection that libcurl chose. The address of a new one has been judged when
    /// its socket was opened, but one that is used again may have been opened when more was allowed (F58).
    func maySend(on ends: ConnectionTable.Ends) -> Bool {
        if origin.proxy.isEmpty {
            guard let remote = IPAddress(end: ends.remoteAddress) else {
                refusal = "\(asked) is connected to what is no IP address"
                openedSockets = []
                return false
            }
            guard !isRefused(remote, from: IPAddress(end: ends.localAddress)) else {
                openedSockets = []
                return false
            }
        }
        guard sent < Self.mostSent else { return false }
        let isNew = context.connections.add(ends, among: openedSockets)
        // A request is sent once more on a new connection only: all that are open might end like this.
        if isNew || sent == 0 && context.connections.isClean(ends, for: easy) {
            sent += 1
            if let probe = permit, probe.isProbeForAll {
                permit = handle.scheduler.connected(host, for: handle.entry.uid, with: probe, at: .now())
            }
            return true
        }
        needsFreshConnection = true
        return false
    }

    /// - Parameter local: the own end's address, once there is a connection.
    func refusalReason(_ address: IPAddress, from local: IPAddress? = nil) -> String? {
        mayBePrivate ? nil : configuration.addressGuard.refusal(ofRemote: address, local: local)
    }

    func deniedSentence(_ address: IPAddress, _ reason: String) -> String {
        let what = "\(asked) is at \(address), \(reason)"
        guard !isStrangers else { return "\(what): whom an address's domain names is never permitted that" }
        guard origin.allowPrivateAddresses else {
            return "\(what): the origin's allow-private-addresses would have to permit it"
        }
        return "\(what): allow-private-addresses is for the origin's own scheme, host and port and its allow entries, "
            + "and this is none of them"
    }

    private func isRefused(_ address: IPAddress, from local: IPAddress? = nil) -> Bool {
        guard let reason = refusalReason(address, from: local) else { return false }
        counts[.refusedAddresses] += 1
        refusal = deniedSentence(address, reason)
        return true
    }
}
