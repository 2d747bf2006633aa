import Glibc
import LinuxSupport
@_spi(Wire) import Thumbcache

/// What the program's exit status says. Scripts rely on it.
enum ExitStatus: Int32, Sendable {
    case done = 0
    /// The daemon said no, or something on this machine.
    case refused = 1
    /// What the command line asks for cannot be: options that exclude each other, a file that cannot be read.
    case usage = 2
    /// There is no daemon, or the connection to it broke.
    case unreachable = 3
    case noImage = 4
    /// A log-out is not done; a marker was left, by which it will be.
    case pending = 5
}

/// Why a command was not done.
struct Failure: Error {
    let status: ExitStatus
    let message: String

    init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }
}

extension Failure {
    /// Why there is no reply.
    /// - Parameters:
    ///   - path: of the socket.
    ///   - timeout: what the request had, in seconds.
    init(_ error: ThumbcacheError, path: String, timeout: Int) {
        let silent = "the daemon at \(path) did not answer within \(timeout) s; its log may say why"
        let closed = "the daemon at \(path) closed the connection before it answered; its log may say why"
        switch error {
        case .server(let code, let message): self.init(.refused, PlainText.escape("\(code) \(message)"))
        case .invalidRequest(let message): self.init(.usage, message)
        case .unreachable(_, ENAMETOOLONG):
            self.init(
                .usage, "the path of a Unix socket has at most \(UnixAddress.longestPath) bytes; \(path) is longer")
        case .unreachable(_, let code): self.init(.unreachable, Self.advice(path, code))
        case .notThumbcached(let name):
            let shown = name.map { " but \(PlainText.escape($0))" } ?? ""
            self.init(
                .unreachable, "it is not thumbcached\(shown) that listens at \(path); name another with --socket")
        case .protocolViolation(let message):
            self.init(.unreachable, "what listens at \(path) does not speak the protocol: \(message)")
        case .timeout: self.init(.unreachable, silent)
        case .connectionLost, .cancelled, .notRunning: self.init(.unreachable, closed)
        }
    }

    private static func advice(_ path: String, _ code: Int32) -> String {
        let start = "start it (systemctl start thumbcached, or thumbcached for yourself alone)"
        let name = "name its socket with --socket or THUMBCACHED_SOCKET"
        let error = SystemError("connect to \(path)", code: code)
        return switch code {
        case ENOENT: "no daemon at \(path): there is no such socket; \(start), or \(name)"
        case ECONNREFUSED where !isSocket(path): "\(path) is no socket; \(name)"
        case ECONNREFUSED: "no daemon at \(path): the one that made this socket is gone; \(start), or \(name)"
        case EACCES: "you may not \(error); see socket.mode in the daemon's configuration"
        case ENOTSOCK, ENOTDIR: "\(path) is no socket; \(name)"
        default: "cannot \(error)"
        }
    }

    /// connect(2) says of a plain file what it says of a socket that nobody listens at.
    private static func isSocket(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) != 0 || status.st_mode & S_IFMT == S_IFSOCK
    }
}
