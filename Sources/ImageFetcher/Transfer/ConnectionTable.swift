import CCurl
import Glibc

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
