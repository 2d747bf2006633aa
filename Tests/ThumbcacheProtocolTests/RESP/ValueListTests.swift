import NIOCore
import Testing

@testable import ThumbcacheProtocol

@Suite struct ValueListTests {
    private static let pairs: [Value] = [
        .bulk(ByteBuffer(string: "a")), .integer(-7), .simpleString("b"), .null, .bulk(ByteBuffer(string: "c")),
        .array([.bulk(ByteBuffer(string: "a")), .integer(1)]), .bulk(ByteBuffer(string: "d")),
        .bulk(ByteBuffer(string: "text")),
    ]
    private static let reply =
        "x%4\r\n$1\r\na\r\n:-7\r\n+b\r\n_\r\n$1\r\nc\r\n*2\r\n$1\r\na\r\n:1\r\n$1\r\nd\r\n$4\r\ntext\r\n"

    private func list() throws -> ValueList {
        var buffer = ByteBuffer(string: Self.reply)
        buffer.moveReaderIndex(forwardBy: 1)
        guard case .map(let list)? = try buffer.readReply() else { throw MissingList() }
        return list
    }

    private struct MissingList: Error {}

    @Test func `a list of a reply equals the list of its values`() throws {
        let list = try list()
        #expect(list == ValueList(Self.pairs) && Array(list) == Self.pairs)
        #expect(list != ValueList(Self.pairs.dropLast()) && list != ValueList(Self.pairs.reversed()))
    }

    @Test func `the search finds each key from any start and ignores values`() throws {
        for list in [try list(), ValueList(Self.pairs)] {
            for start in stride(from: 0, to: Self.pairs.count, by: 2) {
                #expect(["a", "b", "c", "d"].map { list.indexOfValue($0, from: start) } == [1, 3, 5, 7])
                #expect(["", "text", "aa"].allSatisfy { list.indexOfValue($0, from: start) == nil })
            }
            // After the last key.
            #expect(list.indexOfValue("a", from: Self.pairs.count) == 1)
        }
        #expect(ValueList([]).indexOfValue("a") == nil && ValueList([]).indexOfValue("") == nil)
        #expect(
            ["a", "b"].map { ValueList([.simpleString("a"), .null, .simpleString("b")]).indexOfValue($0) } == [1, nil])
    }

    @Test func `text(at:) equals the text of the value`() throws {
        for list in [try list(), ValueList(Self.pairs)] {
            #expect(list.indices.map(list.text(at:)) == Self.pairs.map(\.text))
        }
    }

    /// The fast path and the general path must agree.
    @Test(arguments: [
        "$3\r\nabc\r\n", "$0\r\n\r\n", "$-1\r\n", "$-2\r\n", "$+3\r\nabc\r\n", "$03\r\nabc\r\n", "$-0\r\n\r\n",
        "$x\r\n", "$\r\n",
        "$9999999999999999999999\r\n", "$3\nabc\r\n", "$3\r\nabcd\r\n", "$3\r\nabc\r", "$3\r\n", "$3\r", "$3", "$",
        ":5\r\n", ":-5\r\n",
        ":+5\r\n", ":007\r\n", ":-0\r\n", ":9223372036854775807\r\n", ":-9223372036854775808\r\n",
        ":9223372036854775808\r\n", ":5 \r\n", ":\r\n", ":5\n", ":5\r", ":5", ":", "_\r\n", "_x\r\n", "+ok\r\n",
        "-ERR no\r\n", "\r\n",
        "\n", "", "=7\r\ntxt:abc\r\n", "*0\r\n", "*-1\r\n",
    ])
    func `an element of a list is parsed as the same reply outside a list`(reply: String) {
        let head = "*1\r\n"
        for limit in 3...reply.utf8.count + 3 {
            var (one, missing) = (ByteBuffer(string: reply), 0)
            let expected = Result { () throws(ProtocolError) -> Value? in
                try one.readReply(limit: limit, missing: &missing).map { .array([$0]) }
            }
            var (list, missingInList) = (ByteBuffer(string: head + reply), 0)
            let parsed = Result { () throws(ProtocolError) -> Value? in
                try list.readReply(limit: limit + head.utf8.count, missing: &missingInList)
            }
            #expect(parsed == expected && missingInList == missing, "at most \(limit) bytes")
            // The head is consumed with the element.
            let isRead = if case .success(_?) = expected { true } else { false }
            #expect(list.readableBytes == one.readableBytes + (isRead ? 0 : head.utf8.count))
        }
    }
}
