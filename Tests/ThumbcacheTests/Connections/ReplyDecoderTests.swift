import NIOCore
import Testing
import ThumbcacheProtocol

@testable import Thumbcache

@Suite struct ReplyDecoderTests {
    /// Decodes the reads, and returns all replies.
    private func decode(_ decoder: inout ReplyDecoder, _ reads: ByteBuffer...) throws -> [Value] {
        var values: [Value] = []
        for read in reads {
            decoder.append(read)
            while let value = try decoder.next() { values.append(value) }
        }
        return values
    }

    private func bulk(_ byte: Character, _ count: Int) -> String {
        "$\(count)\r\n\(String(repeating: byte, count: count))\r\n"
    }

    private func image(_ bytes: String) -> Value { .bulk(ByteBuffer(string: bytes)) }

    @Test func `replies are the same wherever reads begin and end`() throws {
        let array = "*120\r\n" + (0..<40).map { "$5\r\nimage\r\n:\($0)\r\n_\r\n" }.joined()
        let text = "+OK\r\n" + bulk("a", 9_000) + array + bulk("b", 70_000) + "-ERR no\r\n" + bulk("c", 0) + "_\r\n"
        let all = ByteBuffer(string: text)
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        let expected = try decode(&decoder, all)
        #expect(expected.count == 7)
        for size in [1, 2, 3, 7, 100, 511, 512, 513, 4_096, 9_010, 60_000] {
            var (rest, values) = (all, [Value]())
            while rest.readableBytes > 0 {
                // Not at the beginning of its buffer.
                var read = ByteBuffer(string: "before")
                read.moveReaderIndex(forwardBy: read.readableBytes)
                if var bytes = rest.readSlice(length: min(size, rest.readableBytes)) { read.writeBuffer(&bytes) }
                values += try decode(&decoder, read)
            }
            #expect(values == expected, "\(size) bytes per read")
            #expect(decoder.partial.storageCapacity == 0 && decoder.read.storageCapacity == 0)
        }
    }

    @Test func `a reply is delivered with its last byte`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        for length in [10, 4_096, 70_000] {
            let reply = ByteBuffer(string: bulk("a", length))
            for first in [1, length / 2, reply.readableBytes - 1] {
                let rest = try #require(reply.getSlice(at: first, length: reply.readableBytes - first))
                #expect(try decode(&decoder, try #require(reply.getSlice(at: 0, length: first))).isEmpty)
                #expect(try decode(&decoder, rest).count == 1)
            }
        }
    }

    @Test func `only a reply that spans two reads is copied`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        #expect(try decode(&decoder, ByteBuffer(string: "$6000\r\naaa")).isEmpty)
        let read = ByteBuffer(string: String(repeating: "a", count: 5_997) + "\r\n" + bulk("b", 6_000) + "$6000\r\nc")
        let values = try decode(&decoder, read)
        #expect(
            values == [image(String(repeating: "a", count: 6_000)), image(String(repeating: "b", count: 6_000))])
        let isShared = values.map { value in
            guard case .bulk(let bytes) = value else { return false }
            return read.withUnsafeReadableBytes { read in
                bytes.withUnsafeReadableBytes { bytes in
                    guard let start = read.baseAddress, let address = bytes.baseAddress else { return false }
                    return (start..<start + read.count).contains(address)
                }
            }
        }
        #expect(isShared == [false, true])
        // The incomplete third reply does not retain the read, and so the second image.
        #expect(decoder.partial.storageCapacity <= 8 << 10)
    }

    @Test func `an idle connection releases the last reply`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        #expect(try decode(&decoder, ByteBuffer(substring: bulk("a", 5_000).prefix(3_000))).isEmpty)
        #expect(decoder.read.storageCapacity == 0)
        #expect(try decode(&decoder, ByteBuffer(string: "a")).isEmpty)
        #expect(decoder.read.storageCapacity == 0)
        #expect(try decode(&decoder, ByteBuffer(substring: bulk("a", 5_000).dropFirst(3_001))).count == 1)
        #expect(decoder.partial.storageCapacity == 0 && decoder.read.storageCapacity == 0)
    }

    @Test func `few bytes of the replies after an incomplete one are copied`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        #expect(try decode(&decoder, ByteBuffer(string: "$60000\r\na")).isEmpty)
        let next = (0..<100).map { bulk("b", 900 + $0) }.joined()
        let values = try decode(&decoder, ByteBuffer(string: String(repeating: "a", count: 59_999) + "\r\n" + next))
        #expect(values.count == 101)
        guard case .bulk(let first) = values[0] else { throw MissingValue() }
        // The storage of 2^16 bytes suffices, since the missing bytes were known.
        #expect(first.readableBytes == 60_000 && first.storageCapacity == 1 << 16)
    }

    private struct MissingValue: Error {}

    @Test func `a declared length causes no large allocation`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 30)
        #expect(try decode(&decoder, ByteBuffer(string: "$1000000000\r\na")).isEmpty)
        #expect(decoder.partial.storageCapacity <= 256 << 10)
    }

    @Test func `invalid input is an error after the replies before it`() throws {
        for reads in [["$2\r\na", "bXX"], ["$2\r\nab\r", "X"], ["?\r\n"]] {
            var (decoder, values) = (ReplyDecoder(longestReply: 1_000), [Value]())
            decoder.append(ByteBuffer(string: "+first\r"))
            #expect(try decoder.next() == nil)
            decoder.append(ByteBuffer(string: "\n" + reads[0]))
            #expect(throws: ProtocolError.self) {
                while let value = try decoder.next() { values.append(value) }
                for read in reads.dropFirst() {
                    decoder.append(ByteBuffer(string: read))
                    while let value = try decoder.next() { values.append(value) }
                }
            }
            #expect(values == [.simpleString("first")])
        }
    }

    @Test func `a reply or line that is too long is an error`() throws {
        var decoder = ReplyDecoder(longestReply: 1_000)
        #expect(throws: ProtocolError.self) { try decode(&decoder, ByteBuffer(string: "$2000\r\naaa")) }
        decoder = ReplyDecoder(longestReply: 1_000)
        let read = ByteBuffer(string: "+" + String(repeating: "a", count: 99))
        var reads = 0
        #expect(throws: ProtocolError.self) {
            while reads < 100 {
                reads += 1
                _ = try decode(&decoder, read)
            }
        }
        #expect(reads <= 11)
    }
}
