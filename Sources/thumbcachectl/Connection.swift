import Glibc
import LinuxSupport
import NIOCore
import RESP
import ThumbcacheProtocol

/// A connection to the daemon: one request, then its reply. Blocks.
final class Connection {
    /// What a request may take by default, in seconds. Downloads and log-outs of many users take what they take;
    /// without any bound a log-out hook would hang for ever on a daemon that is stuck.
    static let timeout = 600

    private let descriptor: Int32
    private let path: String
    /// Seconds that each read or write may take.
    private let timeout: Int
    /// When all of it has to be over, by CLOCK_MONOTONIC in milliseconds; nil for no such time.
    private let deadline: Int?
    private var received = ByteBuffer()

    /// Connects, and makes sure that it is thumbcached that listens there before it is told anything.
    /// - Parameter limit: Seconds that all of it may take: connecting, and every request.
    init(path: String, timeout: Int, within limit: Int?) throws(Failure) {
        self.path = path
        self.timeout = min(timeout, limit ?? timeout)
        deadline = limit.map { Self.now() + $0 * 1_000 }
        descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Failure(.unreachable, "cannot \(SystemError("make a socket"))") }
        try open()
        let server = try request(words("HELLO", "3"))
        guard server[HelloKey.server.rawValue]?.text == "thumbcached" else {
            let name = server[HelloKey.server.rawValue]?.text.map { " but \(PlainText.escape($0))" } ?? ""
            throw Failure(
                .unreachable, "it is not thumbcached\(name) that listens at \(path); name another with --socket")
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
        if case .error(let code, let message) = reply {
            throw Failure(.refused, PlainText.escape("\(code) \(message)"))
        }
        return reply
    }

    private func open() throws(Failure) {
        let address: UnixAddress
        do throws(SystemError) {
            address = try UnixAddress(path)
        } catch {
            throw Failure(.usage, "the path of a Unix socket has at most 107 bytes; \(path) is longer")
        }
        // First, since a daemon whose queue is full makes connecting wait, too.
        try bound()
        guard address.withSocketAddress({ connect(descriptor, $0, $1) }) == 0 else {
            let code = errno
            throw code == EAGAIN ? silent : Failure(.unreachable, Self.advice(path, code))
        }
    }

    private static func advice(_ path: String, _ code: Int32) -> String {
        let start = "start it (systemctl start thumbcached, or thumbcached for yourself alone)"
        let name = "name its socket with --socket or THUMBCACHED_SOCKET"
        let error = SystemError("connect to \(path)", code: code)
        return switch code {
        case ENOENT: "no daemon at \(path): there is no such socket; \(start), or \(name)"
        case ECONNREFUSED: "no daemon at \(path): the one that made this socket is gone; \(start), or \(name)"
        case EACCES: "you may not \(error); see socket.mode in the daemon's configuration"
        case ENOTSOCK, ENOTDIR: "\(path) is no socket; \(name)"
        default: "cannot \(error)"
        }
    }

    /// Sets how long the next call that waits may wait.
    private func bound() throws(Failure) {
        var milliseconds = timeout * 1_000
        if let deadline { milliseconds = min(milliseconds, deadline - Self.now()) }
        // Zero would mean for ever.
        guard milliseconds > 0 else { throw silent }
        var wait = timeval(tv_sec: milliseconds / 1_000, tv_usec: milliseconds % 1_000 * 1_000)
        let size = socklen_t(MemoryLayout<timeval>.size)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] where setsockopt(descriptor, SOL_SOCKET, option, &wait, size) != 0 {
            throw broken(SystemError("set a timeout"))
        }
    }

    /// Milliseconds, by a clock that nobody sets.
    private static func now() -> Int { Int(nanoseconds(of: CLOCK_MONOTONIC) / 1_000_000) }

    private func send(_ frame: ByteBuffer) -> Failure? {
        do throws(SystemError) {
            var rest = frame.readableBytesView
            while !rest.isEmpty {
                rest = rest.dropFirst(
                    try retryingInterrupts("send the request") {
                        rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                    })
            }
            return nil
        } catch {
            return broken(error)
        }
    }

    private func receive() throws(Failure) -> Value {
        while true {
            do throws(ProtocolError) {
                if let reply = try received.readReply() { return reply }
            } catch {
                throw Failure(.unreachable, "what listens at \(path) does not speak the protocol: \(error.message)")
            }
            try read()
        }
    }

    /// Adds what has arrived; waits for it if it must.
    private func read() throws(Failure) {
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        if deadline != nil { try bound() }
        let count: Int
        do throws(SystemError) {
            count = try retryingInterrupts("read the reply") { Glibc.read(descriptor, &chunk, chunk.count) }
        } catch {
            throw broken(error)
        }
        if count == 0 { throw closed }
        received.writeBytes(chunk.prefix(count))
    }

    private var silent: Failure { failed("did not answer within \(timeout) s") }
    private var closed: Failure { failed("closed the connection before it answered") }

    private func failed(_ what: String) -> Failure {
        Failure(.unreachable, "the daemon at \(path) \(what); its log may say why")
    }

    private func broken(_ error: SystemError) -> Failure {
        switch error.code {
        case EAGAIN: silent
        case EPIPE, ECONNRESET: closed
        default: Failure(.unreachable, "cannot \(error): the connection to \(path) broke")
        }
    }
}
