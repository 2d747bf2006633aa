import Glibc
import LinuxSupport

/// Why a program cannot listen on a Unix socket.
public struct ListeningSocketFailure: Error, Equatable, CustomStringConvertible {
    public let description: String

    init(_ description: String) { self.description = description }

    fileprivate init(_ action: String, _ path: String, _ code: Int32 = errno) {
        self.init("cannot \(action) \(path): \(SystemError(action, code: code).reason)")
    }
}

/// A Unix socket that a program bound and listens on. An existing socket is replaced only if it belongs to the
/// program's user and refuses connections. A lock file prevents two processes from replacing each other's socket.
public struct ListeningSocket: Sendable {
    public typealias Failure = ListeningSocketFailure

    /// The caller closes it.
    public let descriptor: Int32
    private let path: String
    private let lock: SocketLock
    private let identity: FileIdentity

    /// - Parameters:
    ///   - mode: permission bits of the socket file; clients need write permission.
    ///   - setting: the configuration key of the path, for error messages.
    ///   - owner: the uid whose stale sockets may be removed.
    /// - Throws: if the path is in use; existing files are unchanged then.
    public init(path: String, mode: UInt32, setting: String, owner: UInt32 = geteuid()) throws(Failure) {
        guard path.hasPrefix("/"), !path.hasSuffix("/"), !path.utf8.contains(0) else {
            throw Failure("\(quoted(path)) is not the absolute path of a file")
        }
        let address: UnixAddress
        do throws(SystemError) {
            address = try UnixAddress(path)
        } catch {
            let (count, most) = (path.utf8.count, UnixAddress.longestPath)
            throw Failure("\(quoted(path)) is \(count) bytes long; a Unix socket's path has at most \(most)")
        }
        let lock = try SocketLock(for: path, setting)
        do throws(Failure) {
            try Self.removeStaleSocket(path, address, owner, setting)
            (descriptor, identity) = try Self.listen(path, address, mode)
        } catch {
            lock.release()
            throw error
        }
        self.path = path
        self.lock = lock
    }

    /// Removes the socket file and releases the lock. Returns false if another file has replaced it.
    @discardableResult public func remove() throws(Failure) -> Bool {
        defer { lock.release() }
        guard try identify(path) == identity else { return false }
        guard unlink(path) == 0 else { throw Failure("remove", path) }
        return true
    }

    /// Removes a stale socket of the owner; throws if any other file exists.
    private static func removeStaleSocket(
        _ path: String, _ address: UnixAddress, _ owner: UInt32, _ setting: String
    ) throws(Failure) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT { return }
            throw Failure("inspect", path)
        }
        let advice = "move it away, or set \(setting)"
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw Failure("\(path) is taken by \(kind(status.st_mode)); \(advice)")
        }
        guard status.st_uid == owner else {
            throw Failure("\(path) is a socket of uid \(status.st_uid), not of uid \(owner); \(advice)")
        }
        // The error of an attempt to connect; 0 for success.
        let descriptor = try makeSocket(path)
        let code = address.withSocketAddress { connect(descriptor, $0, $1) } == 0 ? 0 : errno
        close(descriptor)
        switch code {
        case ECONNREFUSED: break
        // Removed meanwhile.
        case ENOENT: return
        case 0, EAGAIN:
            throw Failure("\(path) is in use: another process listens on it; stop that process, or set \(setting)")
        case EPROTOTYPE: throw Failure("\(path) is not a stream socket; \(advice)")
        default: throw Failure("connect to", path, code)
        }
        guard unlink(path) == 0 || errno == ENOENT else { throw Failure("remove the stale socket", path) }
    }

    private static func listen(
        _ path: String, _ address: UnixAddress, _ mode: UInt32
    ) throws(Failure) -> (Int32, FileIdentity) {
        let descriptor = try makeSocket(path)
        // The mode is set with umask(2), since a confined program cannot change modes. Files that other
        // threads create meanwhile request owner-only modes anyway.
        let mask = umask(0o777 & ~mode)
        let code = address.withSocketAddress { bind(descriptor, $0, $1) } == 0 ? 0 : errno
        umask(mask)
        guard code == 0 else {
            close(descriptor)
            throw Failure("create the socket", path, code)
        }
        // The kernel reduces the backlog to net.core.somaxconn.
        guard Glibc.listen(descriptor, 4096) == 0, let identity = try identify(path) else {
            let error = Failure("set up the socket", path)
            unlink(path)
            close(descriptor)
            throw error
        }
        return (descriptor, identity)
    }

    /// Non-blocking, since connecting to a socket whose backlog is full would wait.
    private static func makeSocket(_ path: String) throws(Failure) -> Int32 {
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_UNIX, kind, 0)
        guard descriptor >= 0 else { throw Failure("create a socket for", path) }
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

/// The lock file of a socket. The kernel releases the lock when the process ends, also after a crash.
private struct SocketLock {
    private let path: String
    private let descriptor: Int32

    init(for socket: String, _ setting: String) throws(ListeningSocketFailure) {
        path = "\(socket).lock"
        while true {
            let descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0o600)
            guard descriptor >= 0 else { throw ListeningSocketFailure("create the lock file", path) }
            do throws(ListeningSocketFailure) {
                if try Self.acquire(descriptor, path, socket, setting) {
                    self.descriptor = descriptor
                    return
                }
            } catch {
                close(descriptor)
                throw error
            }
            // The previous owner removed the file after it was opened here.
            close(descriptor)
        }
    }

    /// Removes the file, then releases the lock: in the other order, another process could lock the file in between.
    func release() {
        unlink(path)
        close(descriptor)
    }

    /// Returns whether the locked file is still at the path.
    private static func acquire(
        _ descriptor: Int32, _ path: String, _ socket: String, _ setting: String
    ) throws(ListeningSocketFailure) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { throw ListeningSocketFailure("inspect the lock file", path) }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw ListeningSocketFailure(
                "\(path), the socket's lock file, is not a plain file; move it away, or set \(setting)")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            if errno != EWOULDBLOCK { throw ListeningSocketFailure("lock", path) }
            throw ListeningSocketFailure("another process uses \(socket): it holds the lock on \(path)")
        }
        return try identify(path) == FileIdentity(status)
    }
}

/// The identity of a file, or of a symbolic link itself; nil if there is none.
private func identify(_ path: String) throws(ListeningSocketFailure) -> FileIdentity? {
    do throws(SystemError) {
        return try FileIdentity.of(path)
    } catch {
        throw ListeningSocketFailure("inspect", path, error.code)
    }
}
