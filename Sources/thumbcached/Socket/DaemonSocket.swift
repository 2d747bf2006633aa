import Glibc
import LinuxSupport

/// The socket that the daemon serves on: the one that systemd passed, else one of its own.
struct DaemonSocket: Sendable {
    let descriptor: CInt
    /// Where clients find it, for people.
    let name: String
    private let own: ListeningSocket?

    /// - Throws: what ``SocketActivation`` and ``ListeningSocket`` throw.
    init(_ configuration: Configuration.Socket, environment: [String: String]) throws {
        if let passed = try SocketActivation(environment: environment).descriptor() {
            (descriptor, name, own) = (passed, "the socket passed by systemd", nil)
            return
        }
        guard let path = configuration.path else {
            throw SocketError("no socket was passed and none is configured: set socket.path, or XDG_RUNTIME_DIR")
        }
        if let slash = path.lastIndex(of: "/"), slash != path.startIndex {
            try makeDirectories(String(path[..<slash]), mode: 0o755)
        }
        let listening = try ListeningSocket(path: path, mode: configuration.mode)
        (descriptor, name, own) = (listening.descriptor, path, listening)
    }

    /// Removes the socket file, where it is the daemon's own.
    func remove() throws {
        try own?.remove()
    }
}

/// Why there is no socket to listen on: what was found and what would be right.
struct SocketError: Error, Equatable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }

    init(_ action: String, _ path: String, _ code: Int32 = errno) {
        description = "cannot \(action) \(path): \(SystemError(action, code: code).reason)"
    }
}

/// The socket that systemd passes to a service: sd_listen_fds(3), by hand.
///
/// The variables stay in the environment, for the daemon starts no other programs that could mistake them for theirs.
struct SocketActivation: Sendable {
    let environment: [String: String]
    /// The daemon's own.
    var pid = getpid()
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
        let expected = "it has to be a listening Unix stream socket, as ListenStream= with a path makes it"
        let family = try option(SO_DOMAIN)
        guard family == AF_UNIX else {
            throw SocketError("the passed socket is of address family \(family), not a Unix socket; \(expected)")
        }
        guard try option(SO_TYPE) == Int32(SOCK_STREAM.rawValue) else {
            throw SocketError("the passed socket is no stream socket; \(expected)")
        }
        guard try option(SO_ACCEPTCONN) == 1 else {
            throw SocketError("the passed socket does not listen; \(expected), with Accept=no")
        }
        guard fcntl(first, F_SETFD, FD_CLOEXEC) == 0 else {
            throw SocketError("the passed socket cannot be kept from being inherited: \(SystemError("fcntl").reason)")
        }
        return first
    }

    private func option(_ name: Int32) throws(SocketError) -> Int32 {
        var value: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(first, SOL_SOCKET, name, &value, &size) == 0 else {
            let reason = SystemError("getsockopt").reason
            throw SocketError("LISTEN_FDS says that descriptor \(first) is a socket, but it is not: \(reason)")
        }
        return value
    }
}
