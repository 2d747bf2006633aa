import NIOCore
import Testing
import ThumbcacheProtocol

@testable import Thumbcache

@Suite struct ReplyDecoderTests {
    /// Decodes the reads, and returns all replies.
    private func decode(_ decoder: inout ReplyDecoder, _ reads: ByteBuffer...) throws -> [Value] {
        var values: [Value] = []
        for read in reads { try decoder.decode(read) { values.append($0) } }
        return values
    }

    private func bulk(_ byte: Character, _ count: Int) -> String {
        "$\(count)\r\n\(String(repeating: byte, count: count))\r\n"
    }

    @Test func `replies are the same wherever reads begin and end`() throws {
        let text =
            "+OK\r\n" + bulk("a", 9_000) + "*2\r\n:7\r\n" + bulk("b", 5_000) + "-ERR no\r\n" + bulk("c", 0) + "_\r\n"
        let all = ByteBuffer(string: text)
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        let expected = try decode(&decoder, all)
        #expect(expected.count == 6)
        for size in [1, 2, 3, 7, 100, 4_095, 4_096, 4_097, 9_010, 14_000] {
            var (rest, values) = (all, [Value]())
            while let read = rest.readSlice(length: min(size, rest.readableBytes)), read.readableBytes > 0 {
                values += try decode(&decoder, read)
            }
            #expect(values == expected, "\(size) bytes per read")
            #expect(decoder.partial.capacity == 0)
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

    @Test func `only a reply that arrives in two reads is copied`() throws {
        var decoder = ReplyDecoder(longestReply: 1 << 20)
        #expect(try decode(&decoder, ByteBuffer(string: "$6000\r\naaa")).isEmpty)
        let read = ByteBuffer(string: String(repeating: "a", count: 5_997) + "\r\n" + bulk("b", 6_000) + "$6000\r\nc")
        let values = try decode(&decoder, read)
        #expect(
            values == [.bulk(ByteBuffer(repeating: 97, count: 6_000)), .bulk(ByteBuffer(repeating: 98, count: 6_000))])
        let isShared = values.map { value in
            guard case .bulk(let bytes) = value else { return false }
            return read.withUnsafeReadableBytes { read in
                bytes.withUnsafeReadableBytes { bytes in
                    bytes.baseAddress.map { read.indices.contains($0 - (read.baseAddress ?? $0)) } ?? false
                }
            }
        }
        #expect(isShared == [false, true])
        // The read, and with it the second image, is not retained.
        #expect(decoder.partial.storageCapacity <= 8 << 10)
    }

    @Test func `a reply that is too long is an error in its first read`() throws {
        var decoder = ReplyDecoder(longestReply: 1_000)
        #expect(throws: ProtocolError.self) { try decode(&decoder, ByteBuffer(string: "$2000\r\naaa")) }
    }
}
