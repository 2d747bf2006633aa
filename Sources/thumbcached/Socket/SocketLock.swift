import Glibc
import LinuxSupport

/// The lock file of a socket, held as long as the daemon lives. The kernel gives it back however the process ends.
struct SocketLock: Sendable {
    private let path: String
    private let descriptor: Int32

    /// - Parameter socket: What to call the socket in an error.
    static func take(_ path: String, socket: String) throws(SocketError) -> SocketLock {
        while true {
            let descriptor = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0o600)
            guard descriptor >= 0 else {
                throw SocketError("cannot make the lock file \(path): \(SystemError("open").reason)")
            }
            do throws(SocketError) {
                if try holds(descriptor, path, socket) { return SocketLock(path: path, descriptor: descriptor) }
            } catch {
                close(descriptor)
                throw error
            }
            // Whoever held it removed it between our open and our lock: what is locked has no name any more.
            close(descriptor)
        }
    }

    /// Removes the file and gives the lock back, in this order: a file without a name can be locked by nobody else.
    func release() {
        unlink(path)
        close(descriptor)
    }

    private static func holds(_ descriptor: Int32, _ path: String, _ socket: String) throws(SocketError) -> Bool {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else {
            throw SocketError("cannot look at the lock file \(path): \(SystemError("fstat").reason)")
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw SocketError(
                "\(path), where the socket's lock file goes, is no plain file; move it away, or set socket.path")
        }
        guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
            let code = errno
            if code == EWOULDBLOCK { throw SocketError("\(socket) is in use: another thumbcached holds its lock") }
            throw SocketError("cannot lock \(path): \(SystemError("flock", code: code).reason)")
        }
        return try FileIdentity.of(path) == FileIdentity(status)
    }
}
