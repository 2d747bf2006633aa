import NIOCore
import TestSupport
import Testing

@testable import ThumbcacheProtocol

@Suite struct ReplyReadingTests {
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
        (":999999999999999999\r\n", .integer(999_999_999_999_999_999)),
        (":-1000000000000000000\r\n", .integer(-1_000_000_000_000_000_000)),
        (":-0\r\n", .integer(0)),
        (":00\r\n", .integer(0)),
        (":1000000000000000000\r\n", .integer(1_000_000_000_000_000_000)),
        ("+-\r\n", .simpleString("-")),
        (":007\r\n", .integer(7)),
        ("+007\r\n", .simpleString("007")),
        ("+-0\r\n", .simpleString("-0")),
        ("+-12\r\n", .simpleString("-12")),
        ("$-0\r\n\r\n", bulk("")),
        ("$0\r\n\r\n", bulk("")),
        ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
        ("$-1\r\n", .null),
        ("*-1\r\n", .null),
        ("_\r\n", .null),
        ("=8\r\ntxt:a\r\nb\r\n", bulk("a\r\nb")),
        ("*0\r\n", .array([])),
        ("%0\r\n", .map([])),
        ("~1\r\n+x\r\n", .array([.simpleString("x")])),
        (">2\r\n+message\r\n:1\r\n", .push([.simpleString("message"), .integer(1)])),
        ("*3\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n_\r\n", .array([bulk("a"), .array([.integer(1), .array([])]), .null])),
        (
            "%2\r\n+b\r\n:2\r\n+a\r\n%1\r\n+c\r\n~1\r\n:3\r\n",
            .map([
                .simpleString("b"), .integer(2),
                .simpleString("a"), .map([.simpleString("c"), .array([.integer(3)])]),
            ])
        ),
    ]

    @Test(arguments: wellFormed)
    func `Replies do not depend on how the input is split`(bytes: String, value: Value) {
        for pieces in cuts(of: (bytes + bytes).bytes) {
            #expect(decodeReplies(pieces) == Outcome(messages: [value, value]))
        }
    }

    @Test(arguments: wellFormed)
    func `Every truncation of a reply waits for more`(bytes: String, value: Value) {
        for length in 0..<bytes.utf8.count {
            #expect(decodeReplies([bytes.bytes[..<length]]) == Outcome(leftover: length))
        }
    }

    static let malformed: [(bytes: String, message: String)] = [
        ("hello\r\n", "invalid reply 'hello'"),
        ("?\u{e9}\r\n", "invalid reply '?\\xc3\\xa9'"),
        ("\r\n", "a line does not end with CRLF"),
        ("\n", "a line does not end with CRLF"),
        ("+OK\n", "a line does not end with CRLF"),
        ("+a\nb\r\n", "a line does not end with CRLF"),
        (":\r\n", "':' is not an integer"),
        (":1x\r\n", "':1x' is not an integer"),
        (":1/\r\n", "':1/' is not an integer"),
        (":1:\r\n", "':1:' is not an integer"),
        (":-\r\n", "':-' is not an integer"),
        ("$-\r\n", "'$-' is not a length"),
        (":9223372036854775808\r\n", "':9223372036854775808' is not an integer"),
        ("$-2\r\n", "'$-2' is not a length"),
        ("$+2\r\n", "'$+2' is not a length"),
        ("$?\r\n", "'$?' is not a length"),
        ("*-2\r\n", "'*-2' is not a length"),
        ("%-1\r\n", "'%-1' is not a length"),
        ("=3\r\ntxt\r\n", "a verbatim string does not begin with 'txt:'"),
        ("=5\r\ntext:\r\n", "a verbatim string does not begin with 'txt:'"),
        ("_x\r\n", "invalid reply '_x'"),
        // Types that thumbcached never sends: booleans, doubles, big numbers, long errors, messages, attributes.
        ("#t\r\n", "invalid reply '#t'"),
        (",1.5\r\n", "invalid reply ',1.5'"),
        ("(1\r\n", "invalid reply '(1'"),
        ("!9\r\nERR a\r\nbc\r\n", "invalid reply '!9'"),
        ("(1\r\n", "invalid reply '(1'"),
        ("|1\r\n+ttl\r\n:5\r\n+OK\r\n", "invalid reply '|1'"),
        ("$2\r\nabc\r\n", "a string does not end with CRLF after its 2 bytes"),
        ("*2\r\n:1\r\n?\r\n", "invalid reply '?'"),
    ]

    @Test(arguments: malformed)
    func `The error for an invalid reply does not depend on how the input is split`(bytes: String, message: String) {
        for pieces in cuts(of: bytes.bytes) {
            #expect(decodeReplies(pieces).error == ProtocolError(message))
        }
    }

    static let hostile: [String] = [
        "$59\r\n", "$9223372\r\n", "*20\r\n", "*999999999\r\n", "%10\r\n", "%4611686018427387904\r\n",
        "*1\r\n*1\r\n*1\r\n:1\r\n", "+" + String(repeating: "1", count: 59),
        "*7\r\n" + String(repeating: "$10\r\n0123456789\r\n", count: 7),
        "*14\r\n" + String(repeating: ":1\r\n", count: 14), "*15\r\n" + String(repeating: ":1\r\n", count: 15),
    ]

    private static func small(_ pieces: [ArraySlice<UInt8>]) -> Outcome<Value> {
        decodeReplies(pieces, limit: 60, depth: 2)
    }

    @Test(arguments: hostile)
    func `A reply over the limits is rejected`(bytes: String) {
        for pieces in cuts(of: bytes.bytes) { #expect(Self.small(pieces).error?.isTooLarge == true) }
    }

    @Test func `A line over its limit is rejected, whatever the limit of the reply`() {
        let longest = "+" + String(repeating: "x", count: (64 << 10) - 3) + "\r\n"
        #expect(decodeReplies([longest.bytes[...]]).messages.count == 1)
        #expect(decodeReplies([("+x" + longest.dropFirst()).bytes[...]]).error?.isTooLarge == true)
    }

    @Test(arguments: [
        "$53\r\n" + String(repeating: "x", count: 53) + "\r\n",
        "*14\r\n" + String(repeating: ":1\r\n", count: 13) + "_\r\n",
        "*1\r\n*1\r\n:1\r\n", "+" + String(repeating: "x", count: 57) + "\r\n",
    ])
    func `A reply at the limits is accepted, and limits apply to each reply`(bytes: String) {
        let bytes = String(repeating: bytes, count: 3).bytes
        #expect(Self.small([bytes[...]]).messages.count == 3)
    }

    @Test(arguments: 0..<50)
    func `The result for mutated replies does not depend on how they are split`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        let original = Self.wellFormed.map(\.bytes).joined().bytes
        for _ in 0..<20 {
            var bytes = original
            for _ in 0..<Int.random(in: 1...6, using: &random) {
                let index = Int.random(in: bytes.indices, using: &random)
                bytes[index] = "*$%~>|+-:_#,(=!\r\n0123456789".bytes.randomElement(using: &random) ?? 0
            }
            let whole = Self.small([bytes[...]])
            let pieces = Self.small(bytes.indices.map { bytes[$0...$0] })
            #expect(pieces == whole)
        }
    }
}

@Suite struct ValueTests {
    @Test(arguments: [
        ("$10\r\nab", 10), ("$10\r\n0123456789\r", 1), ("%1\r\n+key\r\n$3\r\n", 5), ("*2\r\n:1\r\n", 0), ("$10", 0),
        ("", 0),
    ])
    func `The bytes missing in an incomplete string are known`(_ row: (text: String, missing: Int)) throws {
        var (buffer, missing) = (ByteBuffer(string: row.text), -1)
        #expect(try buffer.readReply(missing: &missing) == nil)
        #expect(missing == row.missing)
        #expect(buffer == ByteBuffer(string: row.text))
    }

    @Test func `A map reads the same in both versions`() {
        let entries: [Value] = [.bulk(ByteBuffer(string: "epoch")), .integer(3), .simpleString("bytes"), .null]
        for value in [Value.array(entries), .map(entries)] {
            #expect(value["epoch"]?.number == 3)
            #expect(value["bytes"]?.isNull == true)
            #expect(value["images"] == nil)
            #expect(value.entries?.count == 2)
        }
        #expect(Value.array([.null]).entries == nil)
    }

    @Test func `Strings of every kind have text and bytes`() {
        let hello = ByteBuffer(string: "hello")
        for value in [Value.simpleString("hello"), .bulk(hello)] {
            #expect(value.text == "hello")
            #expect(value.bytes == hello)
        }
        #expect(Value.integer(1).text == nil)
        #expect(Value.array([.null]).elements == [.null])
    }
}
