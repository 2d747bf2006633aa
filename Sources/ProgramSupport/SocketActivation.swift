import Glibc
import LinuxSupport

/// The listening sockets that systemd passes to a service: sd_listen_fds(3). The variables stay in the environment;
/// programs that this one starts ignore them, because LISTEN_PID names this process.
public struct SocketActivation: Sendable {
    /// A passed descriptor that the program cannot use.
    public struct Failure: Error, Equatable, CustomStringConvertible {
        public let description: String
    }

    /// A listening stream socket with the name that FileDescriptorName= of its unit gives it.
    public struct Socket: Sendable, Equatable {
        public let name: String
        public let descriptor: CInt
        /// Whether it is a Unix socket; otherwise it is TCP.
        public let isUnix: Bool

        public init(name: String, descriptor: CInt, isUnix: Bool) {
            (self.name, self.descriptor, self.isUnix) = (name, descriptor, isUnix)
        }
    }

    private let sockets: String?
    private let names: String?
    private let first: CInt

    /// - Parameter environment: only LISTEN_FDS, LISTEN_FDNAMES and LISTEN_PID are read. Only tests pass the other two
    ///   parameters.
    public init(environment: [String: String], pid: pid_t = getpid(), first: CInt = 3) {
        sockets = environment["LISTEN_PID"] == "\(pid)" ? environment["LISTEN_FDS"] : nil
        names = environment["LISTEN_FDNAMES"]
        self.first = first
    }

    public init() {
        let variables = ["LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID"].compactMap { (name: String) in
            getenv(name).map { (name, String(cString: $0)) }
        }
        self.init(environment: Dictionary(uniqueKeysWithValues: variables))
    }

    /// Whether systemd passes sockets to this process. ``descriptor()`` may still find that they are unusable.
    public var isActive: Bool { sockets != nil && sockets != "0" }

    /// Returns the passed socket and marks it as closed on exec; nil if no socket was passed to this process.
    /// - Throws: if more than one descriptor was passed, or one that is not a listening Unix stream socket.
    public func descriptor() throws(Failure) -> CInt? {
        guard let count = try count(), count > 0 else { return nil }
        guard count == 1 else {
            throw Failure(description: "LISTEN_FDS passes \(count) sockets; expected exactly one")
        }
        let expected = "expected a listening Unix stream socket, as ListenStream= with a path creates it"
        let family = try option(SO_DOMAIN, of: first)
        guard family == AF_UNIX else {
            throw Failure(description: "the passed socket has address family \(family), not AF_UNIX; \(expected)")
        }
        try acceptListener(first, expected)
        return first
    }

    /// Returns all passed sockets and marks them as closed on exec.
    /// - Parameter most: the maximum number.
    /// - Throws: if there are more, or if one is not a listening Unix or TCP socket.
    public func listeners(most: Int) throws(Failure) -> [Socket] {
        guard let count = try count(), count > 0 else { return [] }
        guard count <= most else {
            throw Failure(description: "LISTEN_FDS passes \(count) sockets; expected at most \(most)")
        }
        let names = (names ?? "").split(separator: ":", omittingEmptySubsequences: false)
        var found: [Socket] = []
        for index in 0..<count {
            let descriptor = first + CInt(index)
            let expected = "expected a listening Unix or TCP socket, as ListenStream= creates it"
            let family = try option(SO_DOMAIN, of: descriptor)
            guard [AF_UNIX, AF_INET, AF_INET6].contains(family) else {
                throw Failure(description: "a passed socket has address family \(family); \(expected)")
            }
            try acceptListener(descriptor, expected)
            let name = index < names.count ? String(names[index]) : ""
            found.append(Socket(name: name, descriptor: descriptor, isUnix: family == AF_UNIX))
        }
        return found
    }

    /// The number of passed sockets; nil if none were passed to this process.
    private func count() throws(Failure) -> Int? {
        guard let sockets else { return nil }
        guard let count = Int(sockets), count >= 0 else {
            throw Failure(description: "LISTEN_FDS is \(quoted(sockets)); expected the number of passed sockets")
        }
        return count
    }

    private func acceptListener(_ descriptor: CInt, _ expected: String) throws(Failure) {
        guard try option(SO_TYPE, of: descriptor) == CInt(SOCK_STREAM.rawValue) else {
            throw Failure(description: "the passed socket is not a stream socket; \(expected)")
        }
        guard try option(SO_ACCEPTCONN, of: descriptor) == 1 else {
            throw Failure(description: "the passed socket does not listen; \(expected), with Accept=no")
        }
        guard fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 else {
            throw Failure(description: "set FD_CLOEXEC on the passed socket: \(SystemError("fcntl").reason)")
        }
    }

    private func option(_ name: CInt, of descriptor: CInt) throws(Failure) -> CInt {
        var value: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(descriptor, SOL_SOCKET, name, &value, &size) == 0 else {
            let reason = SystemError("getsockopt").reason
            throw Failure(description: "LISTEN_FDS passes descriptor \(descriptor), which is not a socket: \(reason)")
        }
        return value
    }
}
