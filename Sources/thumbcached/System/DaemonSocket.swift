import Glibc
import LinuxSupport
import ProgramSupport

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
            throw DaemonError("no socket was passed and none is configured: set socket.path, or XDG_RUNTIME_DIR")
        }
        if let slash = path.lastIndex(of: "/"), slash != path.startIndex {
            try makeDirectories(String(path[..<slash]), mode: 0o755)
        }
        let listening = try ListeningSocket(path: path, mode: configuration.mode)
        (descriptor, name, own) = (listening.descriptor, path, listening)
    }

    /// Removes the socket file, where it is the daemon's own.
    func remove() throws { try own?.remove() }
}

extension DaemonError {
    fileprivate init(_ action: String, _ path: String, _ code: Int32 = errno) {
        self.init("cannot \(action) \(path): \(SystemError(action, code: code).reason)")
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
    func descriptor() throws(DaemonError) -> Int32? {
        guard let passed = environment["LISTEN_FDS"], environment["LISTEN_PID"] == "\(pid)" else { return nil }
        guard let count = Int(passed), count >= 0 else {
            throw DaemonError("LISTEN_FDS is \(quoted(passed)); it has to be the number of sockets passed")
        }
        if count == 0 { return nil }
        guard count == 1 else {
            throw DaemonError("\(count) sockets are passed by LISTEN_FDS; thumbcached takes one, so pass only that")
        }
        let expected = "it has to be a listening Unix stream socket, as ListenStream= with a path makes it"
        let family = try option(SO_DOMAIN)
        guard family == AF_UNIX else {
            throw DaemonError("the passed socket is of address family \(family), not a Unix socket; \(expected)")
        }
        guard try option(SO_TYPE) == Int32(SOCK_STREAM.rawValue) else {
            throw DaemonError("the passed socket is no stream socket; \(expected)")
        }
        guard try option(SO_ACCEPTCONN) == 1 else {
            throw DaemonError("the passed socket does not listen; \(expected), with Accept=no")
        }
        guard fcntl(first, F_SETFD, FD_CLOEXEC) == 0 else {
            throw DaemonError("the passed socket cannot be kept from being inherited: \(SystemError("fcntl").reason)")
        }
        return first
    }

    private func option(_ name: Int32) throws(DaemonError) -> Int32 {
        var value: Int32 = 0
        var size = socklen_t(MemoryLayout<Int32>.size)
        guard getsockopt(first, SOL_SOCKET, name, &value, &size) == 0 else {
            let reason = SystemError("getsockopt").reason
            throw DaemonError("LISTEN_FDS says that descriptor \(first) is a socket, but it is not: \(reason)")
        }
        return value
    }
}

/// The daemon's Unix socket: bound, listening, with its mode set, and known to be its own.
///
/// Only a stale socket of the daemon's own is ever removed. Whether a socket is stale is asked of the kernel: one
/// that nobody listens on refuses a connection. A lock file beside it keeps two daemons that start at once from
/// each taking the other's for stale.
struct ListeningSocket: Sendable {
    let path: String
    /// Listening. Whoever takes it over closes it.
    let descriptor: Int32
    private let lock: SocketLock
    private let identity: FileIdentity

    /// - Parameters:
    ///   - path: Absolute. Its directory is there.
    ///   - mode: Permission bits of the socket file; connecting takes the permission to write.
    ///   - owner: Whose stale sockets may be removed: the daemon's own uid.
    /// - Throws: Says what stands in the way. Nothing that was there is changed then.
    init(path: String, mode: UInt32, owner: UInt32 = geteuid()) throws(DaemonError) {
        guard path.hasPrefix("/"), !path.hasSuffix("/"), !path.utf8.contains(0) else {
            throw DaemonError("\(quoted(path)) is not the absolute path of a file")
        }
        let address: UnixAddress
        do throws(SystemError) {
            address = try UnixAddress(path)
        } catch {
            let (count, most) = (path.utf8.count, UnixAddress.longestPath)
            throw DaemonError("\(quoted(path)) is \(count) bytes long; a Unix socket's path has \(most) at most")
        }
        let lock = try SocketLock(for: path)
        do throws(DaemonError) {
            try Self.makeWay(path, address, owner)
            (descriptor, identity) = try Self.listen(path, address, mode)
        } catch {
            lock.release()
            throw error
        }
        self.path = path
        self.lock = lock
    }

    /// Removes the socket file, if what is at the path is still this socket, and gives back the lock. For the stop.
    /// - Returns: Whether it was there, and was removed.
    @discardableResult func remove() throws(DaemonError) -> Bool {
        defer { lock.release() }
        guard try identify(path) == identity else { return false }
        guard unlink(path) == 0 else { throw DaemonError("remove", path) }
        return true
    }

    /// Removes a stale socket of that owner's; throws for everything else that is there.
    private static func makeWay(_ path: String, _ address: UnixAddress, _ owner: UInt32) throws(DaemonError) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT { return }
            throw DaemonError("look at", path)
        }
        let advice = "move it away, or set socket.path"
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw DaemonError("\(path) is taken by \(kind(status.st_mode)); \(advice)")
        }
        guard status.st_uid == owner else {
            throw DaemonError("\(path) is a socket of uid \(status.st_uid), not of this daemon's; \(advice)")
        }
        // Connects and hangs up: 0, or why not.
        let descriptor = try makeSocket(path)
        let code = address.withSocketAddress { connect(descriptor, $0, $1) } == 0 ? 0 : errno
        close(descriptor)
        switch code {
        case ECONNREFUSED: break
        // Gone in the meantime.
        case ENOENT: return
        case 0, EAGAIN:
            throw DaemonError("\(path) is in use: another process listens on it; stop that, or set socket.path")
        case EPROTOTYPE: throw DaemonError("\(path) is a socket of another kind, not of thumbcached's; \(advice)")
        default: throw DaemonError("connect to", path, code)
        }
        guard unlink(path) == 0 || errno == ENOENT else { throw DaemonError("remove the stale socket", path) }
    }

    private static func listen(
        _ path: String, _ address: UnixAddress, _ mode: UInt32
    ) throws(DaemonError) -> (Int32, FileIdentity) {
        let descriptor = try makeSocket(path)
        // A confined daemon cannot change modes afterwards. Files that other threads create meanwhile have their own
        // modes, which name nobody else.
        let mask = umask(0o777 & ~mode)
        let code = address.withSocketAddress { bind(descriptor, $0, $1) } == 0 ? 0 : errno
        umask(mask)
        guard code == 0 else {
            close(descriptor)
            throw DaemonError("make the socket", path, code)
        }
        // As many may wait to be accepted as the kernel lets: it has a limit of its own (net.core.somaxconn).
        guard Glibc.listen(descriptor, 4096) == 0, let identity = try identify(path) else {
            let error = DaemonError("set up the socket", path)
            unlink(path)
            close(descriptor)
            throw error
        }
        return (descriptor, identity)
    }

    /// Non-blocking: a probe of a socket whose queue is full must not wait.
    private static func makeSocket(_ path: String) throws(DaemonError) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, kind, 0)
        guard descriptor >= 0 else { throw DaemonError("make a socket for", path) }
        return descriptor
    }

    private static func kind(_ mode: mode_t) -> String {
        switch mode & S_IFMT {
        case S_IFREG: "a file"
        case S_IFDIR: "a directory"
        case S_IFLNK: "a symbolic link"
        case S_IFIFO: "a FIFO"
        default: "a device"
        }
    }
}

/// The lock file of a socket, locked for as long as the daemon lives, however it ends.
private struct SocketLock {
    private let path: String
    private let descriptor: Int32

    init(for socket: String) throws(DaemonError) {
        path = "\(socket).lock"
        while true {
            let descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0o600)
            guard descriptor >= 0 else { throw DaemonError("make the lock file", path) }
            do throws(DaemonError) {
                if try Self.take(descriptor, path, socket) {
                    self.descriptor = descriptor
                    return
                }
            } catch {
                close(descriptor)
                throw error
            }
            // Whoever had it removed it between our open and our lock: what is locked has no name any more.
            close(descriptor)
        }
    }

    /// Removes the file and gives the lock back, in this order: a file without a name can be locked by nobody else.
    func release() {
        unlink(path)
        close(descriptor)
    }

    private static func take(_ descriptor: Int32, _ path: String, _ socket: String) throws(DaemonError) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw DaemonError("look at the lock file", path) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw DaemonError(
                "\(path), where the socket's lock file goes, is no plain file; move it away, or set socket.path")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            if errno != EWOULDBLOCK { throw DaemonError("lock", path) }
            throw DaemonError("\(socket) is in use: another thumbcached holds its lock")
        }
        return try identify(path) == FileIdentity(status)
    }
}

/// What is at a path, a symbolic link itself included; nil where nothing is.
private func identify(_ path: String) throws(DaemonError) -> FileIdentity? {
    do throws(SystemError) {
        return try FileIdentity.of(path)
    } catch {
        throw DaemonError("look at", path, error.code)
    }
}
