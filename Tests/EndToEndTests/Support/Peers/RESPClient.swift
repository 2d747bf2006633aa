import Glibc

/// An argument of a request: a string or bytes.
protocol Word {
    var wordBytes: [UInt8] { get }
}

extension String: Word {
    var wordBytes: [UInt8] { Array(utf8) }
}

extension [UInt8]: Word {
    var wordBytes: [UInt8] { self }
}

/// A blocking connection to the daemon, with a timeout. Does not use the daemon's RESP code, so that each
/// implementation checks the other.
final class RESPClient {
    let descriptor: CInt
    /// Received bytes; those from `position` are unread.
    private var buffer: [UInt8] = []
    private var position = 0
    private let receiveBuffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 16)

    init(_ socketPath: String, longestWait seconds: Int = Int(longestWait)) throws {
        descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Failure(systemCall: "socket") }
        var limit = timeval(tv_sec: seconds, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, size)
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, size)
        // If the initializer throws here, deinit closes the descriptor.
        guard connectUnix(descriptor, socketPath) == 0 else {
            throw Failure(systemCall: "connect \(socketPath)", errno)
        }
    }

    private var isClosed = false

    func end() {
        if !isClosed { close(descriptor) }
        isClosed = true
    }

    deinit {
        end()
        receiveBuffer.deallocate()
    }

    // MARK: Requests and replies

    func call(_ words: any Word...) throws -> Reply {
        try send(words)
        return try receive()
    }

    func send(_ words: any Word...) throws { try send(words) }

    func send(_ words: [any Word]) throws { try sendRaw(Self.frame(words)) }

    /// Pipelines `count` copies of a request.
    func send(_ words: [any Word], count: Int) throws {
        try sendRaw(Array(repeatElement(Self.frame(words), count: count).joined()))
    }

    static func frame(_ words: [any Word]) -> [UInt8] {
        var frame = Array("*\(words.count)\r\n".utf8)
        for word in words {
            let bytes = word.wordBytes
            frame += Array("$\(bytes.count)\r\n".utf8) + bytes + [13, 10]
        }
        return frame
    }

    func sendRaw(_ bytes: [UInt8]) throws {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
            }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw Failure(systemCall: "send to the daemon") }
            sent += count
        }
    }

    func receive() throws -> Reply {
        let line = try readLine()
        let rest = String(decoding: line.dropFirst(), as: UTF8.self)
        switch line.first.map({ Character(UnicodeScalar($0)) }) {
        case "+": return .simple(rest)
        case "-":
            let parts = rest.split(separator: " ", maxSplits: 1)
            return .error(String(parts.first ?? ""), parts.count > 1 ? String(parts[1]) : "")
        case ":": return .integer(try number(rest))
        case "_": return .null
        case ",": return .double(rest)
        case "#": return .boolean(rest == "t")
        case "$", "=":
            let count = try number(rest)
            if count < 0 { return .null }
            let bytes = try readBytes(Int(count))
            _ = try readBytes(2)
            return line.first == 0x3d ? .verbatim(String(decoding: bytes.dropFirst(4), as: UTF8.self)) : .bulk(bytes)
        case "*", ">", "~":
            let count = try number(rest)
            if count < 0 { return .null }
            let elements = try (0..<count).map { _ in try receive() }
            return line.first == 0x3e ? .push(elements) : .array(elements)
        case "%":
            return .map(try (0..<number(rest)).map { _ in .init(key: try receive(), value: try receive()) })
        default:
            throw Failure("invalid RESP from the daemon: \(line.prefix(40))")
        }
    }

    /// Discards replies until the daemon closes the connection. False if a timeout comes first.
    func isClosedByPeer() -> Bool {
        while true {
            do {
                if try !fill() { return true }
            } catch {
                return errno == ECONNRESET
            }
            position = buffer.count
        }
    }

    /// Whether data arrives within the timeout, in milliseconds.
    func hasReply(within milliseconds: CInt) -> Bool {
        if position < buffer.count { return true }
        var status = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&status, 1, milliseconds) > 0
    }

    /// Whether the daemon closes the connection within the timeout. Reads nothing.
    func isHungUp(within milliseconds: CInt) -> Bool {
        var status = pollfd(fd: descriptor, events: 0, revents: 0)
        return poll(&status, 1, milliseconds) > 0
    }

    // MARK: Bytes

    private func number(_ text: String) throws -> Int64 {
        guard let number = Int64(text) else { throw Failure("invalid number from the daemon: '\(text)'") }
        return number
    }

    private func readLine() throws -> ArraySlice<UInt8> {
        var searched = position
        while true {
            if let end = buffer[searched...].firstIndex(of: 10) {
                defer { position = end + 1 }
                return buffer[position..<end - 1]
            }
            searched = buffer.count
            let moved = position
            guard try fill() else { throw Failure("the daemon closed the connection instead of replying") }
            searched -= moved
        }
    }

    private func readBytes(_ count: Int) throws -> [UInt8] {
        while buffer.count - position < count {
            guard try fill() else { throw Failure("the daemon closed the connection in the middle of a reply") }
        }
        defer { position += count }
        return Array(buffer[position..<position + count])
    }

    /// Reads more bytes; false at the end of the stream.
    private func fill() throws -> Bool {
        if position > 0 {
            buffer.removeSubrange(..<position)
            position = 0
        }
        var count: Int
        repeat {
            count = recv(descriptor, receiveBuffer.baseAddress, receiveBuffer.count, 0)
        } while count < 0 && errno == EINTR
        guard count >= 0 else { throw Failure(systemCall: "waiting for the daemon's reply") }
        buffer.append(contentsOf: receiveBuffer[..<count])
        return count > 0
    }
}

/// Connects a Unix socket to a path; returns -1 and sets `errno` like connect(2).
func connectUnix(_ descriptor: CInt, _ path: String) -> CInt {
    withUnixAddress(path) { connect(descriptor, $0, $1) }
}

/// A Unix socket that listens at a path.
func listenUnix(_ path: String, backlog: CInt = 64) throws -> CInt {
    let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
    guard descriptor >= 0, withUnixAddress(path, { bind(descriptor, $0, $1) }) == 0, listen(descriptor, backlog) == 0
    else { throw Failure(systemCall: "listening on \(path)") }
    return descriptor
}

/// A path as a socket address. Truncates a path that is too long.
func withUnixAddress<Result>(_ path: String, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
    return withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
}
