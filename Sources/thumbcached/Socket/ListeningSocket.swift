import Glibc
import LinuxSupport

/// The daemon's Unix socket: bound, listening, with its mode set, and known to be its own.
///
/// Only a stale socket of the daemon's own is ever removed. Whether a socket is stale is asked of the kernel: one
/// that nobody listens on refuses a connection. A lock file beside it keeps two daemons that start at once from
/// each taking the other's for stale.
struct ListeningSocket: Sendable {
    static let maximumPathLength = UnixAddress.longestPath

    let path: String
    /// Listening. Whoever takes it over closes it.
    let descriptor: Int32
    private let lock: SocketLock
    private let identity: FileIdentity

    /// - Parameters:
    ///   - path: Absolute. Its directory is there.
    ///   - mode: Permission bits of the socket file; connecting takes the permission to write.
    ///   - backlog: Connections that may wait to be accepted; the kernel has a limit of its own (net.core.somaxconn).
    ///   - owner: Whose stale sockets may be removed: the daemon's own uid.
    /// - Throws: Says what stands in the way. Nothing that was there is changed then.
    init(path: String, mode: UInt32, backlog: Int32 = 4096, owner: UInt32 = geteuid()) throws(SocketError) {
        let address = try Self.address(path)
        let lock = try SocketLock.take("\(path).lock", socket: path)
        do throws(SocketError) {
            try Self.makeWay(path, address, owner)
            (descriptor, identity) = try Self.listen(path, address, mode, backlog)
        } catch {
            lock.release()
            throw error
        }
        self.path = path
        self.lock = lock
    }

    /// Removes the socket file, if what is at the path is still this socket, and gives back the lock. For the stop.
    /// - Returns: Whether it was there, and was removed.
    @discardableResult func remove() throws(SocketError) -> Bool {
        defer { lock.release() }
        guard try FileIdentity.of(path) == identity else { return false }
        guard unlink(path) == 0 else { throw failure("remove", path) }
        return true
    }

    private static func address(_ path: String) throws(SocketError) -> UnixAddress {
        guard path.hasPrefix("/"), !path.hasSuffix("/"), !path.utf8.contains(0) else {
            throw SocketError("\(quoted(path)) is not the absolute path of a file")
        }
        do throws(SystemError) {
            return try UnixAddress(path)
        } catch {
            throw SocketError(
                "\(quoted(path)) is \(path.utf8.count) bytes long; a Unix socket's path has \(maximumPathLength) at most"
            )
        }
    }

    /// Removes a stale socket of that owner's; throws for everything else that is there.
    private static func makeWay(_ path: String, _ address: UnixAddress, _ owner: UInt32) throws(SocketError) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            if errno == ENOENT { return }
            throw failure("look at", path)
        }
        let advice = "move it away, or set socket.path"
        guard status.st_mode & S_IFMT == S_IFSOCK else {
            throw SocketError("\(path) is taken by \(kind(status.st_mode)); \(advice)")
        }
        guard status.st_uid == owner else {
            throw SocketError("\(path) is a socket of uid \(status.st_uid), not of this daemon's; \(advice)")
        }
        switch try probe(path, address) {
        case ECONNREFUSED: break
        // Gone in the meantime.
        case ENOENT: return
        case 0, EAGAIN:
            throw SocketError("\(path) is in use: another process listens on it; stop that, or set socket.path")
        case EPROTOTYPE: throw SocketError("\(path) is a socket of another kind, not of thumbcached's; \(advice)")
        case let code: throw failure("connect to", path, code)
        }
        guard unlink(path) == 0 || errno == ENOENT else { throw failure("remove the stale socket", path) }
    }

    /// Connects and hangs up. 0, or why not.
    private static func probe(_ path: String, _ address: UnixAddress) throws(SocketError) -> Int32 {
        let descriptor = socket(AF_UNIX, socketType, 0)
        guard descriptor >= 0 else { throw failure("make a socket for", path) }
        defer { close(descriptor) }
        return address.withSocketAddress { connect(descriptor, $0, $1) } == 0 ? 0 : errno
    }

    private static func listen(
        _ path: String, _ address: UnixAddress, _ mode: UInt32, _ backlog: Int32
    ) throws(SocketError) -> (Int32, FileIdentity) {
        let descriptor = socket(AF_UNIX, socketType, 0)
        guard descriptor >= 0 else { throw failure("make a socket for", path) }
        guard address.withSocketAddress({ bind(descriptor, $0, $1) }) == 0 else {
            let error = failure("make the socket", path)
            close(descriptor)
            throw error
        }
        // Nobody gets in before listen, so the mode comes in time. Not following links, so that whoever can write to
        // the directory cannot have the mode of another file changed.
        guard fchmodat(AT_FDCWD, path, mode, AT_SYMLINK_NOFOLLOW) == 0, Glibc.listen(descriptor, backlog) == 0,
            let identity = try FileIdentity.of(path)
        else {
            let error = failure("set up the socket", path)
            unlink(path)
            close(descriptor)
            throw error
        }
        return (descriptor, identity)
    }

    /// Non-blocking: a probe of a socket whose queue is full must not wait.
    private static var socketType: Int32 {
        Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
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

/// Which file a name stands for, whatever becomes of the name. The number of a file that is gone may be given to the
/// next one at once; the time of its last change tells the two apart.
struct FileIdentity: Sendable, Equatable {
    private let device: UInt
    private let inode: UInt
    private let changed: [Int]

    init(_ status: stat) {
        device = UInt(status.st_dev)
        inode = UInt(status.st_ino)
        changed = [status.st_ctim.tv_sec, status.st_ctim.tv_nsec]
    }

    /// Of what is at a path, a symbolic link itself included; nil where nothing is.
    static func of(_ path: String) throws(SocketError) -> FileIdentity? {
        var status = stat()
        if lstat(path, &status) == 0 { return FileIdentity(status) }
        if errno == ENOENT { return nil }
        throw failure("look at", path)
    }
}

private func failure(_ action: String, _ path: String, _ code: Int32 = errno) -> SocketError {
    SocketError("cannot \(action) \(path): \(SystemError(action, code: code).reason)")
}
