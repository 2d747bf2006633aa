import Glibc
import LinuxSupport
@_spi(Wire) import Thumbcache

/// The program's exit status. Scripts rely on these numbers.
enum ExitStatus: Int32, Sendable {
    case done = 0
    /// The daemon returned an error, or a system call failed.
    case refused = 1
    /// The command line is invalid, or a file that it names cannot be read or written.
    case usage = 2
    /// The daemon cannot be reached, or the connection broke.
    case unreachable = 3
    case noImage = 4
    /// The logout has not happened; a pending-logout file makes the daemon process it later.
    case pending = 5
}

struct Failure: Error {
    let status: ExitStatus
    let message: String

    init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }
}

extension Failure {
    /// - Parameter path: of the socket.
    init(_ error: ThumbcacheError, path: String, timeout: Int) {
        let silent = "the daemon at \(path) did not respond within \(timeout) s; see its log"
        let closed = "the daemon at \(path) closed the connection before responding; see its log"
        switch error {
        case .server(let code, let message): self.init(.refused, PlainText.escape("\(code) \(message)"))
        case .invalidRequest(let message): self.init(.usage, message)
        case .unreachable(_, ENAMETOOLONG):
            self.init(
                .usage,
                "the socket path \(path) is too long; a Unix socket path has at most \(UnixAddress.longestPath) bytes")
        case .unreachable(_, let code): self.init(.unreachable, Self.advice(path, code))
        case .notThumbcached(let name):
            let shown = name.map { " (its HELLO says \(PlainText.escape($0)))" } ?? ""
            self.init(
                .unreachable, "the server at \(path) is not thumbcached\(shown); name another socket with --socket")
        case .protocolViolation(let message):
            self.init(.unreachable, "the server at \(path) does not speak the protocol of thumbcached: \(message)")
        case .timeout: self.init(.unreachable, silent)
        case .connectionLost, .cancelled, .notRunning: self.init(.unreachable, closed)
        }
    }

    private static func advice(_ path: String, _ code: Int32) -> String {
        let start = "start it (systemctl start thumbcached, or run thumbcached for your user alone)"
        let name = "name its socket with --socket or THUMBCACHED_SOCKET"
        let error = SystemError("connect to \(path)", code: code)
        return switch code {
        case ENOENT: "no daemon at \(path): the socket does not exist; \(start), or \(name)"
        case ECONNREFUSED where !isSocket(path): "\(path) is not a socket; \(name)"
        case ECONNREFUSED: "no daemon at \(path): no process listens at this socket; \(start), or \(name)"
        case EACCES: "permission denied: cannot connect to \(path); see socket.mode in the daemon's configuration"
        case ENOTSOCK, ENOTDIR: "\(path) is not a socket; \(name)"
        default: "cannot \(error)"
        }
    }

    /// connect(2) fails with ECONNREFUSED for a plain file, too.
    private static func isSocket(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) != 0 || status.st_mode & S_IFMT == S_IFSOCK
    }
}
