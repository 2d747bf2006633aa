import NIOCore
import Testing

@testable import RESP

@Suite struct ReplyDecoderTests {
    static func bulk(_ text: String) -> Value { .bulk(ByteBuffer(string: text)) }

    static let wellFormed: [(bytes: String, value: Value)] = [
        ("+OK\r\n", .simpleString("OK")),
        ("+\r\n", .simpleString("")),
        ("-ERR no such thing\r\n", .error(code: "ERR", message: "no such thing")),
        ("-BUSY\r\n", .error(code: "BUSY", message: "")),
        (":0\r\n", .integer(0)),
        (":-42\r\n", .integer(-42)),
        (":+42\r\n", .integer(42)),
        (":9223372036854775807\r\n", .integer(.max)),
        (":-9223372036854775808\r\n", .integer(.min)),
        ("$0\r\n\r\n", bulk("")),
        ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
        ("$-1\r\n", .null),
        ("*-1\r\n", .null),
        ("_\r\n", .null),
        ("#t\r\n", .boolean(true)),
        ("#f\r\n", .boolean(false)),
        (",1.5\r\n", .double(1.5)),
        (",-inf\r\n", .double(-.infinity)),
        ("(-12345678901234567890123\r\n", .bigNumber("-12345678901234567890123")),
        ("=8\r\ntxt:a\r\nb\r\n", .verbatim(format: "txt", text: ByteBuffer(string: "a\r\nb"))),
        ("!9\r\nERR a\r\nbc\r\n", .error(code: "ERR", message: "a\r\nbc")),
        ("*0\r\n", .array([])),
        ("%0\r\n", .map([])),
        ("*3\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n_\r\n", .array([bulk("a"), .array([.integer(1), .array([])]), .null])),
        (
            "%2\r\n+b\r\n:2\r\n+a\r\n%1\r\n+c\r\n~1\r\n:3\r\n",
            .map([
                (.simpleString("b"), .integer(2)),
                (.simpleString("a"), .map([(.simpleString("c"), .set([.integer(3)]))])),
            ])
        ),
        (">2\r\n+message\r\n+x\r\n", .push([.simpleString("message"), .simpleString("x")])),
        ("|1\r\n+ttl\r\n:5\r\n+OK\r\n", .simpleString("OK")),
        ("*2\r\n:1\r\n|1\r\n+ttl\r\n*1\r\n:5\r\n:2\r\n", .array([.integer(1), .integer(2)])),
        ("|0\r\n:7\r\n", .integer(7)),
    ]

    @Test(arguments: wellFormed)
    func `Replies are the same wherever the input is cut`(bytes: String, value: Value) {
        for pieces in cuts(of: (bytes + bytes).bytes) {
            #expect(decodeReplies(pieces) == Outcome(messages: [value, value]))
        }
    }

    @Test(arguments: wellFormed)
    func `Every truncation of a reply waits for more`(bytes: String, value: Value) {
        for length in 0..<bytes.utf8.count {
            #expect(decodeReplies([bytes.bytes[..<length]]) == Outcome())
        }
    }

    static let malformed: [(bytes: String, message: String)] = [
        ("hello\r\n", "no reply begins with 'hello'"),
        ("\r\n", "a line that does not end with CRLF"),
        ("\n", "a line that does not end with CRLF"),
        ("+OK\n", "a line that does not end with CRLF"),
        ("+a\nb\r\n", "a line that does not end with CRLF"),
        (":\r\n", "':' is not an integer"),
        (":1x\r\n", "':1x' is not an integer"),
        (":9223372036854775808\r\n", "':9223372036854775808' is not an integer"),
        ("$-2\r\n", "'$-2' is not a length"),
        ("$+2\r\n", "'$+2' is not a length"),
        ("$?\r\n", "'$?' is not a length"),
        ("*-2\r\n", "'*-2' is not a length"),
        ("%-1\r\n", "'%-1' is not a length"),
        ("=3\r\ntxt\r\n", "'=3' is not a length"),
        ("=5\r\ntext:\r\n", "a verbatim string does not begin with a format of three letters and a colon"),
        ("_x\r\n", "no reply begins with '_x'"),
        ("#x\r\n", "no reply begins with '#x'"),
        (",x\r\n", "',x' is not a number"),
        ("(1x\r\n", "'(1x' is not a whole number"),
        ("(-\r\n", "'(-' is not a whole number"),
        ("$2\r\nabc\r\n", "a string does not end with CRLF after its 2 bytes"),
        ("*2\r\n:1\r\n?\r\n", "no reply begins with '?'"),
    ]

    @Test(arguments: malformed)
    func `What is no reply is refused, in the same words wherever the input is cut`(bytes: String, message: String) {
        for pieces in cuts(of: bytes.bytes) {
            #expect(decodeReplies(pieces).error == ProtocolError(message))
        }
    }

    static let small = ReplyLimits(depth: 2, values: 8, bulkBytes: 10, lineBytes: 12, replyBytes: 60)

    static let hostile: [(bytes: String, message: String)] = [
        ("$11\r\n", "a string of 11 bytes: at most 10"),
        ("$9223372\r\n", "a string of 9223372 bytes: at most 10"),
        ("*8\r\n", "a reply of more than 8 values"),
        ("*999999999\r\n", "a reply of more than 8 values"),
        ("%4\r\n", "a reply of more than 8 values"),
        ("*2\r\n*6\r\n", "a reply of more than 8 values"),
        ("*1\r\n*1\r\n*1\r\n:1\r\n", "a reply of more than 2 levels"),
        ("+12345678901", "a line of more than 12 bytes"),
        ("*7\r\n" + String(repeating: "$10\r\n0123456789\r\n", count: 7), "a reply of more than 60 bytes"),
        (String(repeating: "|0\r\n", count: 9), "a reply of more than 8 values"),
    ]

    @Test(arguments: hostile)
    func `A reply beyond the limits is refused`(bytes: String, message: String) {
        for pieces in cuts(of: bytes.bytes) {
            #expect(decodeReplies(pieces, limits: Self.small).error == ProtocolError(message, isTooLarge: true))
        }
    }

    @Test(arguments: [
        "$10\r\n0123456789\r\n", "*7\r\n" + String(repeating: ":1\r\n", count: 7), "*1\r\n*1\r\n:1\r\n",
        "+123456789\r\n",
    ])
    func `A reply at the limits is read, and the limits count anew for the next`(bytes: String) {
        let bytes = String(repeating: bytes, count: 3).bytes
        #expect(decodeReplies([bytes[...]], limits: Self.small).messages.count == 3)
    }

    @Test func `After an error the decoder says the same again`() throws {
        var decoder = ReplyDecoder()
        var buffer = ByteBuffer(string: "?\r\n")
        let error = try #require(throws: ProtocolError.self) { try decoder.next(&buffer) }
        buffer = ByteBuffer(string: "+OK\r\n")
        #expect(throws: error) { try decoder.next(&buffer) }
    }

    @Test(arguments: 0..<50)
    func `Mutated replies are read or refused, the same however they are cut`(seed: UInt64) {
        var random = SplitMix(seed: seed)
        let original = Self.wellFormed.map(\.bytes).joined().bytes
        for _ in 0..<20 {
            var bytes = original
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                let index = Int.random(in: bytes.indices, using: &random)
                bytes[index] = "*$%~>|+-:_#,(=!\r\n0123456789".bytes.randomElement(using: &random) ?? 0
            }
            let whole = decodeReplies([bytes[...]], limits: Self.small)
            #expect(decodeReplies(bytes.indices.map { bytes[$0...$0] }, limits: Self.small) == whole)
        }
    }
}

@Suite struct ValueTests {
    @Test func `A map reads the same in both versions`() {
        let two = Value.array([.bulk(ByteBuffer(string: "epoch")), .integer(3), .simpleString("bytes"), .null])
        let three = Value.map([(.bulk(ByteBuffer(string: "epoch")), .integer(3)), (.simpleString("bytes"), .null)])
        for value in [two, three] {
            #expect(value["epoch"]?.number == 3)
            #expect(value["bytes"]?.isNull == true)
            #expect(value["images"] == nil)
            #expect(value.entries?.count == 2)
        }
        #expect(Value.array([.null]).entries == nil)
    }

    @Test func `Strings of every kind have text and bytes`() {
        let hello = ByteBuffer(string: "hello")
        for value in [Value.simpleString("hello"), .bulk(hello), .verbatim(format: "txt", text: hello)] {
            #expect(value.text == "hello")
            #expect(value.bytes == hello)
        }
        #expect(Value.integer(1).text == nil)
        #expect(Value.set([.null]).elements == [.null])
    }

    @Test func `Values of different kinds are not equal`() {
        let values: [Value] = [
            .simpleString("a"), .error(code: "a", message: ""), .integer(1), .bulk(ByteBuffer(string: "a")), .null,
            .array([]), .map([]), .set([]), .push([]), .double(1), .boolean(true),
            .verbatim(format: "txt", text: ByteBuffer(string: "a")), .bigNumber("1"),
        ]
        for (index, left) in values.enumerated() {
            for (other, right) in values.enumerated() { #expect((left == right) == (index == other)) }
        }
    }
}
