import CCurl
import CacheCore
import Glibc
import HelperProtocol
import NIOCore
import Origins

/// A connection pool for each origin: origins differ in trusted authorities, permitted addresses and tokens (F58).
///
/// The pool also keeps TLS sessions: each request has a new handle, and every new connection would otherwise cost the
/// origin a full handshake.
///
/// By default, libcurl keeps the idle connections of all transfers in the multi handle; a share object separates them.
/// Used on the fetcher's thread only, without locks.
final class ConnectionPools {
    private var pools: [String: UnsafeMutableRawPointer] = [:]

    var count: Int { pools.count }

    func prune(keeping origins: Set<String>) {
        for (name, pool) in pools where !origins.contains(name) {
            // CURLSHE_IN_USE while a handle is attached; the next call tries again.
            if curl_share_cleanup(pool) == CURLSHE_OK { pools[name] = nil }
        }
    }

    /// Closes all connections. All handles must be detached, and the multi handle released.
    func close() {
        for pool in pools.values { curl_share_cleanup(pool) }
        pools = [:]
    }

    /// Call it before adding the handle to the multi handle.
    func attach(_ easy: EasyHandle, to origin: Origin) throws(FetchFailure) {
        if pools[origin.name] == nil {
            guard let pool = curl_share_init() else { throw .origin("libcurl: out of memory") }
            for kind in [CURL_LOCK_DATA_CONNECT, CURL_LOCK_DATA_SSL_SESSION] {
                guard ccurl_share_set_long(pool, CURLSHOPT_SHARE, Int32(kind.rawValue)) == CURLSHE_OK else {
                    curl_share_cleanup(pool)
                    throw .origin("libcurl: out of memory for a connection pool")
                }
            }
            pools[origin.name] = pool
        }
        try easy.set(CURLOPT_SHARE, pointer: pools[origin.name])
    }
}

/// The open sockets of libcurl, for checking a connection before it is reused.
///
/// libcurl 7.88 reuses a connection that has unread bytes and takes them for the response to the next request: after
/// one response that is longer than announced, each request would get the image of the one before. libcurl identifies
/// the connection it chose only by the addresses of its ends. Used on the fetcher's thread only.
final class ConnectionTable {
    /// The addresses of the two ends of a connection.
    struct Ends: Hashable {
        let localAddress: String
        let localPort: Int32
        let remoteAddress: String
        let remotePort: Int32
    }

    private var sockets: [Ends: curl_socket_t] = [:]
    private var ends: [curl_socket_t: Ends] = [:]
    /// The inodes of sockets that libldap also closes: see ``add(closedTwice:)``.
    private var inodes: [curl_socket_t: ino_t] = [:]

    /// Adds a connection before its first use. Returns false if it was used before, so is on none of the new sockets.
    func add(_ ends: Ends, among opened: [curl_socket_t]) -> Bool {
        guard let socket = opened.first(where: { Self.port(of: $0) == ends.localPort }) else { return false }
        sockets[ends] = socket
        self.ends[socket] = ends
        return true
    }

    /// Whether a connection can be reused by `easy`, for which it was chosen: it is open and has no unread bytes.
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

    /// Adds a socket that libldap closes before libcurl closes it again (curl 7.88). Meanwhile another thread may have
    /// got its number for another file.
    func add(closedTwice socket: curl_socket_t) { inodes[socket] = Self.inode(of: socket) }

    func close(_ socket: curl_socket_t) -> Int32 {
        if let ends = ends.removeValue(forKey: socket) { sockets[ends] = nil }
        if let inode = inodes.removeValue(forKey: socket), Self.inode(of: socket) != inode { return 0 }
        return Glibc.close(socket)
    }

    private static func inode(of socket: curl_socket_t) -> ino_t? {
        var status = stat()
        return fstat(socket, &status) == 0 ? status.st_ino : nil
    }

    /// The local port; it is at the same offset in IPv4 and IPv6 addresses.
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

/// Address checks, called by libcurl for each socket that it opens and for each request that it sends.
extension Transfer {
    /// Opens a socket for a connection to `address`. Returns CURL_SOCKET_BAD if the address is denied.
    func socket(for address: UnsafePointer<curl_sockaddr>) -> curl_socket_t {
        lookup.end()
        let family = address.pointee.family
        if origin.proxy.isEmpty {
            // The field is declared too short for an IPv6 address, so the address is read in place and not from a copy.
            let field = UnsafeRawPointer(address) + (MemoryLayout<curl_sockaddr>.offset(of: \.addr) ?? 0)
            let ip = IPAddress(field.assumingMemoryBound(to: sockaddr.self), length: Int(address.pointee.addrlen))
            guard let ip, !isRefused(ip) else { return CURL_SOCKET_BAD }
        }
        let socket = Glibc.socket(
            family, address.pointee.socktype | Int32(SOCK_CLOEXEC.rawValue), address.pointee.protocol)
        // An unsupported address family is the host's fault; a shortage of descriptors or memory is local.
        if socket < 0, errno != EAFNOSUPPORT { lacksSocket = true }
        if socket >= 0 { openedSockets.append(socket) }
        if url.scheme.isDirectory { context.connections.add(closedTwice: socket) }
        return socket
    }

    /// Whether a request may be sent on the connection that libcurl chose. Its address may no longer be allowed (F58).
    func maySend(on ends: ConnectionTable.Ends) -> Bool {
        if origin.proxy.isEmpty {
            guard let remote = IPAddress(end: ends.remoteAddress) else {
                refusal = "the connection to \(hostName) has no IP address"
                openedSockets = []
                return false
            }
            guard !isRefused(remote, from: IPAddress(end: ends.localAddress)) else {
                openedSockets = []
                return false
            }
        }
        guard attempts < Self.maximumAttempts else { return false }
        let isNew = context.connections.add(ends, among: openedSockets)
        // A request is repeated only on a new connection, because all idle ones may have been closed by the host.
        if isNew || attempts == 0 && context.connections.isClean(ends, for: easy) {
            attempts += 1
            if let probe = permit, probe.isProbeForAll {
                permit = handle.scheduler.connected(host, for: handle.entry.account, with: probe, at: .now())
            }
            return true
        }
        needsFreshConnection = true
        return false
    }

    func refusalReason(_ address: IPAddress, from local: IPAddress? = nil) -> String? {
        mayBePrivate ? nil : environment.addressGuard.refusal(ofRemote: address, local: local)
    }

    func deniedSentence(_ address: IPAddress, _ reason: String) -> String {
        let what = "\(hostName) is at \(address), \(reason)"
        guard !isFederated else { return "\(what); hosts named by SRV records must have public addresses" }
        guard origin.allowPrivateAddresses else {
            return "\(what); it needs allow-private-addresses = true in the origin"
        }
        return "\(what); allow-private-addresses applies only to the origin's own scheme, host and port and to its "
            + "allow entries"
    }

    private func isRefused(_ address: IPAddress, from local: IPAddress? = nil) -> Bool {
        guard let reason = refusalReason(address, from: local) else { return false }
        counts[.refusedAddresses] += 1
        refusal = deniedSentence(address, reason)
        return true
    }
}
