import Glibc
import NIOCore
import RESP
import ThumbcacheProtocol

/// A connection to the daemon: one request, then its reply. Blocks.
final class Connection {
    /// What a request may take by default, in seconds. Downloads and log-outs of many users take what they take; without any
    /// bound a log-out hook would hang for ever on a daemon that is stuck.
    static let patience = 600

    private let descriptor: Int32
    private let path: String
    /// Seconds that each read or write may take.
    private let patience: Int
    /// When all of it has to be over, by CLOCK_MONOTONIC in milliseconds; nil for no such time.
    private let deadline: Int?
    private var decoder = ReplyDecoder()
    private var received = ByteBuffer()

    /// Connects, and makes sure that it is thumbcached that listens there before it is told anything.
    /// - Parameters:
    ///   - patience: Seconds that each read or write may take.
    ///   - limit: Seconds that all of it may take: connecting, and every request.
    init(path: String, patience: Int = Connection.patience, within limit: Int? = nil) throws(Failure) {
        self.path = path
        self.patience = min(patience, limit ?? patience)
        deadline = limit.map { Self.now() + $0 * 1_000 }
        descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw .unreachable("cannot make a socket: \(reason(errno))") }
        try open()
        let server = try request(["HELLO", "3"].map(ByteBuffer.init(string:)))
        guard server[HelloKey.server.rawValue]?.text == "thumbcached" else {
            let name = server[HelloKey.server.rawValue]?.text.map { " but \(PlainText.escape($0))" } ?? ""
            throw .unreachable("it is not thumbcached\(name) that listens at \(path); name another with --socket")
        }
    }

    deinit { close(descriptor) }

    /// The reply to a request. The daemon's error, if it is one, is thrown.
    func request(_ arguments: [ByteBuffer]) throws(Failure) -> Value {
        var frame = ByteBuffer()
        frame.writeRequest(arguments)
        try bound()
        // A daemon that refuses a frame for its size answers and closes while it is still being sent: the answer
        // then says more than the broken pipe does.
        let sendFailure = send(frame)
        let reply: Value
        do throws(Failure) {
            reply = try receive()
        } catch {
            throw sendFailure ?? error
        }
        if case .error(let code, let message) = reply { throw .refused(code: code, message: message) }
        return reply
    }

    private func open() throws(Failure) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        // One byte is for the closing NUL (unix(7)).
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path), !bytes.contains(0) else {
            throw .usage("the path of a Unix socket has at most 107 bytes; \(path) is longer")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }

        // First, since a daemon whose queue is full makes connecting wait, too.
        try bound()
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else {
            let code = errno
            throw code == EAGAIN ? silent() : .unreachable(Self.advice(path, code))
        }
    }

    private static func advice(_ path: String, _ code: Int32) -> String {
        let start = "start it (systemctl start thumbcached, or thumbcached for yourself alone)"
        let name = "name its socket with --socket or THUMBCACHED_SOCKET"
        return switch code {
        case ENOENT: "no daemon at \(path): there is no such socket; \(start), or \(name)"
        case ECONNREFUSED: "no daemon at \(path): the one that made this socket is gone; \(start), or \(name)"
        case EACCES: "you may not connect to \(path): \(reason(code)); see socket.mode in the daemon's configuration"
        case ENOTSOCK, ENOTDIR: "\(path) is no socket; \(name)"
        default: "cannot connect to \(path): \(reason(code))"
        }
    }

    /// Sets how long the next call that waits may wait.
    private func bound() throws(Failure) {
        var milliseconds = patience * 1_000
        if let deadline { milliseconds = min(milliseconds, deadline - Self.now()) }
        // Zero would mean for ever.
        guard milliseconds > 0 else { throw silent() }
        var wait = timeval(tv_sec: milliseconds / 1_000, tv_usec: milliseconds % 1_000 * 1_000)
        let size = socklen_t(MemoryLayout<timeval>.size)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO]
        where setsockopt(descriptor, SOL_SOCKET, option, &wait, size) != 0 {
            throw broken("set a timeout", errno)
        }
    }

    /// Milliseconds, by a clock that nobody sets.
    private static func now() -> Int {
        var moment = timespec()
        clock_gettime(CLOCK_MONOTONIC, &moment)
        return moment.tv_sec * 1_000 + moment.tv_nsec / 1_000_000
    }

    private func send(_ frame: ByteBuffer) -> Failure? {
        frame.withUnsafeReadableBytes { bytes in
            var sent = 0
            while sent < bytes.count {
                let count = Glibc.send(
                    descriptor, bytes.baseAddress?.advanced(by: sent), bytes.count - sent, Int32(MSG_NOSIGNAL))
                if count >= 0 {
                    sent += count
                } else if errno != EINTR {
                    return errno == EAGAIN ? silent() : broken("send the request", errno)
                }
            }
            return nil
        }
    }

    private func receive() throws(Failure) -> Value {
        while true {
            let value: Value?
            do throws(ProtocolError) {
                value = try decoder.next(&received)
            } catch {
                throw .unreachable("what listens at \(path) does not speak the protocol: \(error.message)")
            }
            // Nothing is subscribed to, so a message that answers no request can only be a notice: passed over.
            if let value {
                if case .push = value { continue }
                return value
            }
            try read()
        }
    }

    /// Adds what has arrived; waits for it if it must.
    private func read() throws(Failure) {
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        if deadline != nil { try bound() }
        while true {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count > 0 {
                received.writeBytes(chunk.prefix(count))
                return
            }
            let code = errno
            if count == 0 { throw closed() }
            if code == EAGAIN { throw silent() }
            if code != EINTR { throw broken("read the reply", code) }
        }
    }

    private func silent() -> Failure {
        .unreachable("the daemon at \(path) did not answer within \(patience) s; its log may say why")
    }

    private func closed() -> Failure {
        .unreachable("the daemon at \(path) closed the connection before it answered; its log may say why")
    }

    private func broken(_ action: String, _ code: Int32) -> Failure {
        if code == EPIPE || code == ECONNRESET { return closed() }
        return .unreachable("cannot \(action): \(reason(code)): the connection to \(path) broke")
    }
}
