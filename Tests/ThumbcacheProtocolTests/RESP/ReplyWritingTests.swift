import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct ReplyWritingTests {
    /// Replies and their encodings in versions 2 and 3.
    static let replies: [(two: String, three: String, write: @Sendable (inout ByteBuffer, RESPVersion) -> Void)] = [
        ("+OK\r\n", "+OK\r\n", { buffer, _ in buffer.writeSimpleString("OK") }),
        ("+a  b\r\n", "+a  b\r\n", { buffer, _ in buffer.writeSimpleString("a\r\nb") }),
        (
            "-ERR two  lines \r\n", "-ERR two  lines \r\n",
            { buffer, _ in buffer.writeRESPError(code: "ERR", message: "two\r\nlines\n") }
        ),
        ("$3\r\n\u{e9}x\r\n", "$3\r\n\u{e9}x\r\n", { buffer, _ in buffer.writeBulkString("\u{e9}x") }),
        ("$2\r\nhi\r\n", "$2\r\nhi\r\n", { buffer, _ in buffer.writeBulkString(ByteBuffer(string: "hi")) }),
        ("$2\r\nhi\r\n", "$2\r\nhi\r\n", { buffer, _ in buffer.writeBulkString([104, 105] as [UInt8]) }),
        ("*3\r\n", "*3\r\n", { buffer, _ in buffer.writeArrayHeader(count: 3) }),
        ("*6\r\n", "%3\r\n", { buffer, version in buffer.writeMapHeader(count: 3, version: version) }),
        ("*3\r\n", "~3\r\n", { buffer, version in buffer.writeSetHeader(count: 3, version: version) }),
        ("$-1\r\n", "_\r\n", { buffer, version in buffer.writeNull(kind: .bulk, version: version) }),
        ("*-1\r\n", "_\r\n", { buffer, version in buffer.writeNull(kind: .array, version: version) }),
        ("*-1\r\n", "_\r\n", { buffer, version in buffer.writeNull(kind: .map, version: version) }),
        (
            "$4\r\na\r\nb\r\n", "=8\r\ntxt:a\r\nb\r\n",
            { buffer, version in buffer.writeVerbatimString("a\r\nb", version: version) }
        ),
    ]

    @Test(arguments: replies.indices)
    func `Each reply is encoded for each version`(index: Int) {
        let reply = Self.replies[index]
        for (version, expected) in [(RESPVersion.two, reply.two), (.three, reply.three)] {
            // After other bytes, as in a connection's buffer.
            var buffer = ByteBuffer(string: "x")
            reply.write(&buffer, version)
            #expect(String(buffer: buffer) == "x" + expected)
        }
    }

    @Test(arguments: [0, 1, 9, 10, 99, 100, 12345, 1 << 53, Int.max, -1, -9, -10, -100, Int.min])
    func `Integers of every width are written in decimal`(number: Int) {
        var buffer = ByteBuffer()
        buffer.writeRESPInteger(number)
        #expect(String(buffer: buffer) == ":\(number)\r\n")
    }

    @Test(arguments: [0, 9, 10, 8192, 5 << 20, Int.max])
    func `The prefix of a bulk string is written to the end of its buffer`(count: Int) {
        var room = [UInt8](repeating: 1, count: 24)
        let length = room.withUnsafeMutableBytes { ByteBuffer.writeBulkPrefix(count: count, toEndOf: $0) }
        let expected = "$\(count)\r\n".bytes
        #expect(room == [UInt8](repeating: 1, count: 24 - expected.count) + expected && length == expected.count)
        #expect(ByteBuffer.bulkSuffix == [13, 10])
    }

    @Test func `A request is an array of bulk strings`() {
        var request = ByteBuffer()
        request.writeRequest(["GET", "\u{e9}", ""].map { ByteBuffer(string: $0) })
        #expect(String(buffer: request) == "*3\r\n$3\r\nGET\r\n$2\r\n\u{e9}\r\n$0\r\n\r\n")
    }
}

@Suite struct PrintableTextTests {
    @Test(arguments: [
        ("plain text", "plain text"), ("it's", "it\\x27s"), ("\\", "\\x5c"), ("\r\n\t", "\\x0d\\x0a\\x09"),
        ("\u{7f}\u{e9}", "\\x7f\\xc3\\xa9"), ("\u{1b}[31m", "\\x1b[31m"),
        (String(repeating: "a", count: 32), String(repeating: "a", count: 32)),
        (String(repeating: "a", count: 33), String(repeating: "a", count: 32) + "..."),
    ])
    func `Untrusted bytes are shown as printable ASCII of limited length`(bytes: String, shown: String) {
        #expect(printableText(bytes.utf8) == shown)
    }
}
