import CCurl
import FetcherProtocol
import Glibc
import NIOCore
import Origins
import ThumbnailCache

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
                permit = ticket.scheduler.connected(host, for: ticket.entry.uid, with: probe, at: .now())
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
