import Foundation
import Glibc
import NIOConcurrencyHelpers

/// A name server on loopback, over UDP and TCP, that replies as a test determines and records the questions.
final class TestNameServer: Sendable {
    enum Reply: Sendable {
        case records([Record], ttl: UInt32 = 300)
        /// There are no such records; with the TTL of this response.
        case none(ttl: UInt32 = 300)
        /// A referral to other name servers (RFC 2308 section 2.2).
        case referral
        /// The name does not exist.
        case noName
        case code(UInt8)
        /// A function that changes the bytes of a reply.
        case altered(@Sendable ([UInt8]) -> [UInt8])
        case silence
    }

    struct Record: Sendable {
        var priority: UInt16 = 10
        var weight: UInt16 = 0
        var port: UInt16
        var host: String
    }

    let port: UInt16
    private let datagrams: Int32
    private let listener: Int32
    private let script: @Sendable (String) -> Reply
    private let state = NIOLockedValueBox((questions: [String](), overTCP: 0))

    /// - Parameter script: the reply by the name asked for. Called on the server's threads, and may block.
    init(_ script: @escaping @Sendable (String) -> Reply) throws {
        self.script = script
        (datagrams, listener, port) = try Self.sockets()
        Thread.detachNewThread { [self] in serveDatagrams() }
        Thread.detachNewThread { [self] in serveStreams() }
    }

    /// Opens both sockets with the same port, which the kernel assigns for UDP. Retries if it is taken for TCP.
    private static func sockets() throws -> (datagrams: Int32, listener: Int32, port: UInt16) {
        var failure = TestSocketError(call: "socket")
        for _ in 0..<100 {
            let datagrams = socket(AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
            do {
                try TestSocket.assign(datagrams, address: "127.0.0.1", port: 0)
                let port = try TestSocket.port(of: datagrams)
                return (datagrams, try TestSocket.listen(address: "127.0.0.1", port: port, backlog: 8), port)
            } catch let error as TestSocketError {
                close(datagrams)
                failure = error
                guard error.number == EADDRINUSE else { break }
            }
        }
        throw failure
    }

    /// The value for `FetcherEnvironment.nameServers`.
    var address: String { "127.0.0.1:\(port)" }
    var questions: [String] { state.withLockedValue { $0.questions } }
    /// The number of questions over TCP, which follow the same ones over UDP.
    var overTCP: Int { state.withLockedValue { $0.overTCP } }

    func stop() {
        shutdown(listener, Int32(SHUT_RDWR))
        shutdown(datagrams, Int32(SHUT_RDWR))
    }

    private func serveDatagrams() {
        defer { close(datagrams) }
        while true {
            var question = [UInt8](repeating: 0, count: 2048)
            var peer = sockaddr_storage()
            var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
            let count = withUnsafeMutableBytes(of: &peer) { bytes in
                recvfrom(
                    datagrams, &question, question.count, 0, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self),
                    &length)
            }
            guard count > 12 else { return }
            guard var reply = answer(Array(question.prefix(count))) else { continue }
            // Truncated to the size that the query allows; the complete reply is sent over TCP.
            if reply.count > 1232 {
                reply = Array(reply.prefix(12 + 4 + Self.lengthOfName(reply, at: 12)))
                reply[2] |= 0x02
                reply.replaceSubrange(6..<12, with: [0, 0, 0, 0, 0, 0])
            }
            withUnsafeBytes(of: &peer) { bytes in
                _ = sendto(
                    datagrams, reply, reply.count, 0, bytes.baseAddress?.assumingMemoryBound(to: sockaddr.self), length)
            }
        }
    }

    private func serveStreams() {
        while true {
            let connection = accept(listener, nil, nil)
            guard connection >= 0 else {
                _ = close(listener)
                return
            }
            var question = [UInt8](repeating: 0, count: 2048)
            // A query is short enough to arrive in one read.
            let count = recv(connection, &question, question.count, 0)
            if count > 14, let reply = answer(Array(question[2..<count])) {
                state.withLockedValue { $0.overTCP += 1 }
                var framed = Self.number(UInt16(reply.count)) + reply
                while !framed.isEmpty {
                    let sent = send(connection, framed, framed.count, Int32(MSG_NOSIGNAL))
                    guard sent > 0 else { break }
                    framed.removeFirst(sent)
                }
            }
            close(connection)
        }
    }

    private func answer(_ question: [UInt8]) -> [UInt8]? {
        let end = 12 + Self.lengthOfName(question, at: 12) + 4
        guard end <= question.count else { return nil }
        let name = Self.name(question, at: 12)
        state.withLockedValue { $0.questions.append(name) }
        switch script(name) {
        case .silence: return nil
        case .altered(let alter):
            return alter(Self.message(question, end, .records([Record(port: 443, host: "a.example")])))
        case let reply: return Self.message(question, end, reply)
        }
    }

    /// The message of a reply (RFC 1035 section 4): header, question, records.
    private static func message(_ question: [UInt8], _ end: Int, _ reply: Reply) -> [UInt8] {
        var (code, answers, authorities): (UInt8, [[UInt8]], [[UInt8]]) = (0, [], [])
        switch reply {
        case .records(let records, let ttl):
            answers = records.map { record in
                let data =
                    number(record.priority) + number(record.weight) + number(record.port) + encoded(record.host)
                return resource(33, ttl, data)
            }
        case .none(let ttl): authorities = [authority(ttl)]
        case .referral: authorities = [resource(2, 300, encoded("ns.example"))]
        case .noName: (code, authorities) = (3, [authority(300)])
        case .code(let number): code = number
        case .altered, .silence: break
        }
        let header = [question[0], question[1], 0x81, 0x80 | code] + number(UInt16(1)) + number(UInt16(answers.count))
        return header + number(UInt16(authorities.count)) + number(UInt16(0)) + question[12..<end]
            + (answers + authorities).flatMap { $0 }
    }

    /// A record for the queried name.
    private static func resource(_ type: UInt16, _ ttl: UInt32, _ data: [UInt8]) -> [UInt8] {
        [0xC0, 12] + number(type) + number(UInt16(1)) + number(ttl) + number(UInt16(data.count)) + data
    }

    private static func authority(_ ttl: UInt32) -> [UInt8] {
        let numbers: [UInt32] = [1, 3600, 600, 86_400, ttl]
        return resource(6, 86_400, encoded("ns.example") + encoded("root.example") + numbers.flatMap { number($0) })
    }

    private static func number<Number: FixedWidthInteger>(_ value: Number) -> [UInt8] {
        withUnsafeBytes(of: value.bigEndian) { Array($0) }
    }

    private static func encoded(_ name: String) -> [UInt8] {
        name.split(separator: ".").flatMap { [UInt8($0.utf8.count)] + $0.utf8 } + [0]
    }

    private static func lengthOfName(_ message: [UInt8], at start: Int) -> Int {
        var index = start
        while index < message.count, message[index] > 0 { index += 1 + Int(message[index]) }
        return index + 1 - start
    }

    private static func name(_ message: [UInt8], at start: Int) -> String {
        var (index, labels): (Int, [String]) = (start, [])
        while index < message.count, message[index] > 0 {
            labels.append(String(decoding: message[(index + 1)...].prefix(Int(message[index])), as: UTF8.self))
            index += 1 + Int(message[index])
        }
        return labels.joined(separator: ".")
    }
}
