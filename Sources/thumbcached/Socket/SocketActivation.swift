import Glibc
import LinuxSupport

/// The socket that systemd passes to a service: sd_listen_fds(3), by hand.
///
/// The variables stay in the environment, for the daemon starts no other programs that could mistake them for theirs.
struct SocketActivation: Sendable {
    let environment: [String: String]
    /// The daemon's own.
    let pid: Int32
    /// Where passed descriptors begin: SD_LISTEN_FDS_START, unless tested.
    var first: Int32 = 3

    /// The descriptor of the passed socket, which from here on a program that is started does not inherit; nil where
    /// none is passed, or to another process.
    /// - Throws: When more than one is passed, or one that is not a listening Unix stream socket.
    func descriptor() throws(SocketError) -> Int32? {
        guard let passed = environment["LISTEN_FDS"], environment["LISTEN_PID"] == "\(pid)" else { return nil }
        guard let count = Int(passed), count >= 0 else {
            throw SocketError("LISTEN_FDS is \(quoted(passed)); it has to be the number of sockets passed")
        }
        if count == 0 { return nil }
        guard count == 1 else {
            throw SocketError("\(count) sockets are passed by LISTEN_FDS; thumbcached takes one, so pass only that")
        }
        try verify(first)
        guard fcntl(first, F_SETFD, FD_CLOEXEC) == 0 else {
            throw SocketError("the passed socket cannot be kept from being inherited: \(SystemError("fcntl").reason)")
        }
        return first
    }

    private func verify(_ descriptor: Int32) throws(SocketError) {
        let expected = "it has to be a listening Unix stream socket, as ListenStream= with a path makes it"
        let family = try option(SO_DOMAIN, of: descriptor)
        guard family == AF_UNIX else {
            throw SocketError("the passed socket is of address family \(family), not a Unix socket; \(expected)")
        }
        guard try option(SO_TYPE, of: descriptor) == Int32(SOCK_STREAM.rawValue) else {
            throw SocketError("the passed socket is no stream socket; \(expected)")
        }
        guard try option(SO_ACCEPTCONN, of: descriptor) == 1 else {
            throw SocketError("the passed socket does not listen; \(expected), with Accept=no")
        }
    }

    private func option(_ name: Int32, of descriptor: Int32) throws(SocketError) -> Int32 {
        var value: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 else {
            let reason = SystemError("getsockopt").reason
            throw SocketError("LISTEN_FDS says that descriptor \(descriptor) is a socket, but it is not: \(reason)")
        }
        return value
    }
}

/// Why there is no socket to listen on: what was found and what would be right.
struct SocketError: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}
