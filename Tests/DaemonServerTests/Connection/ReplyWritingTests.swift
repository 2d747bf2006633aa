import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import CacheCore
@testable import DaemonServer

@Suite struct ReplyWritingTests {
    private static let imageBytes = SampleImage.png("bob")

    private static func served(_ freshness: Freshness) -> ServedImage {
        let record = ImageRecord(
            shape: ImageShape(kind: .webp, width: 3, height: 4), digest: SampleImage.digest(of: imageBytes),
            provenance: .put, freshness: freshness)
        return ServedImage(
            Image(record: record, bytes: ImageBytes(copying: imageBytes, framing: TestDaemon.framing)), from: .origin,
            at: 0)
    }

    private func value(_ reply: ByteBuffer) throws -> Value? {
        var reply = reply
        return try reply.readReply()
    }

    @Test(arguments: [nil, MetaKey.allCases] as [[MetaKey]?])
    func `an image is sent without a copy`(_ keys: [MetaKey]?) {
        let served = Self.served(Freshness(storedAt: 0, lifetime: nil))
        let reply = ImageReplyFormat(keys: keys).reply(.success(served), epoch: 1, now: 0, .two)
        let framed = served.image.bytes.framed
        var isShared = false
        reply.forEachPart { if address(of: $0) == address(of: framed) { isShared = $0 == framed } }
        #expect(isShared)
        #expect(reply.readableBytes == bytes(of: reply).readableBytes)
    }

    private func address(of buffer: ByteBuffer) -> UnsafeRawPointer? {
        buffer.withUnsafeReadableBytes { $0.baseAddress }
    }

    private func bytes(of reply: Reply) -> ByteBuffer {
        var bytes = ByteBuffer()
        reply.forEachPart { bytes.writeImmutableBuffer($0) }
        return bytes
    }

    @Test(
        arguments: [
            (nil, RESPVersion.two, "$-1\r\n"), (nil, .three, "_\r\n"),
            (MetaKey.stat, .two, "*-1\r\n"), (MetaKey.stat, .three, "_\r\n"),
        ] as [([MetaKey]?, RESPVersion, String)])
    func `a missing image is the null of the expected type`(
        _ row: (keys: [MetaKey]?, version: RESPVersion, wire: String)
    ) {
        let shape = ImageReplyFormat(keys: row.keys)
        #expect(String(buffer: bytes(of: shape.reply(.success(nil), epoch: 1, now: 0, row.version))) == row.wire)
    }

    typealias Life = (stored: Int64, initialAge: Int64, lifetime: Int64?, now: Int64, age: Int, ttl: Int?)

    static let lives: [Life] = [
        (100, 0, 60, 100, 0, 60), (100, 5, 60, 110, 15, 45), (100, 0, 60, 160, 60, 0), (100, 0, 60, 200, 100, -40),
        (100, 0, nil, 500, 400, nil),
        // Stored in the future because the clock was set back: the image has just become stale (F14).
        (100, 0, 60, 10, 60, 0), (100, 0, nil, 10, 0, nil),
    ]

    @Test(arguments: lives)
    func `META has age and TTL; the TTL is negative if stale and null if unlimited`(_ life: Life) throws {
        let freshness = Freshness(
            storedAt: life.stored, initialAge: life.initialAge, lifetime: life.lifetime)
        let shape = ImageReplyFormat(keys: MetaKey.allCases)
        let served = Self.served(freshness)
        let reply = try #require(
            try value(bytes(of: shape.reply(.success(served), epoch: 77, now: life.now, .three))))
        #expect(reply["age"] == .integer(life.age))
        #expect(reply["ttl"] == (life.ttl.map { .integer($0) } ?? .null))
        #expect(reply["state"] == bulk((life.ttl ?? 1) <= 0 ? "stale" : "fresh"))
        #expect(reply["type"] == bulk("image/webp"))
        #expect(reply["source"] == bulk("origin"))
        #expect(reply["epoch"] == .integer(77))
        #expect(reply["image"] == .bulk(Self.imageBytes))
    }

    @Test(arguments: [nil, MetaKey.allCases] as [[MetaKey]?])
    func `IFNOT with the image's digest is UNCHANGED, also with META; with another digest it is the image`(
        _ keys: [MetaKey]?
    ) {
        let served = Self.served(Freshness(storedAt: 0, lifetime: nil))
        let digest = ByteBuffer(string: served.image.record.digest.hex)
        let same = ImageReplyFormat(keys: keys, ifNot: digest)
        #expect(String(buffer: bytes(of: same.reply(.success(served), epoch: 1, now: 0, .two))) == "+UNCHANGED\r\n")
        let other = ImageReplyFormat(keys: keys, ifNot: ByteBuffer(string: String(repeating: "0", count: 64)))
        #expect(
            bytes(of: other.reply(.success(served), epoch: 1, now: 0, .two))
                == bytes(of: ImageReplyFormat(keys: keys).reply(.success(served), epoch: 1, now: 0, .two)))
        #expect(String(buffer: bytes(of: same.reply(.success(nil), epoch: 1, now: 0, .three))) == "_\r\n")
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `usage that is not counted yet after a start is null in a receipt`(_ version: RESPVersion) throws {
        var receipt = Receipt()
        receipt.usage = nil
        receipt.epoch = 5
        let reply = try #require(try value(.reply { $0.writeReceipt(receipt, version) }))
        #expect(reply["images"] == .null && reply["bytes"] == .null)
        #expect(reply["cancelled"] == .integer(0) && reply["epoch"] == .integer(5))
    }

    @Test func `an error is one line, whatever its text contains`() {
        let error = CommandError(.origin, "status\r\n+OK")
        #expect(String(buffer: .error(error)) == "-ORIGIN status  +OK\r\n")
    }

    static let failures: [(CacheFailure, ErrorCode)] = [
        (.notLoggedIn, .noLogin), (.cancelled, .cancelled), (.invalid("w"), .err), (.denied("w"), .denied),
        (.timedOut("w"), .timeout), (.origin("w"), .origin), (.unauthorized("w"), .unauthorized),
        (.badImage("w"), .badImage), (.tooLarge("w"), .tooLarge), (.busy("w"), .busy), (.noSpace("w"), .noSpace),
        (.inputOutput("w"), .ioErr), (.shuttingDown, .shuttingDown),
    ]

    @Test(arguments: failures)
    func `each failure of the cache has a code`(_ row: (failure: CacheFailure, code: ErrorCode)) {
        #expect(CommandError(row.failure).code == row.code)
        #expect(CommandError(row.failure as any Error).code == row.code)
    }
}
