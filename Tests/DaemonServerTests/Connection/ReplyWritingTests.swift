import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import CacheCore
@testable import DaemonServer

@Suite struct ReplyWritingTests {
    private static let picture = SampleImage.png("bob")

    private static func served(_ freshness: Freshness) -> ServedImage {
        let record = ImageRecord(
            shape: ImageShape(kind: .webp, width: 3, height: 4), digest: SampleImage.digest(of: picture),
            provenance: .put, freshness: freshness)
        return ServedImage(
            Image(record: record, bytes: ImageBytes(copying: picture, framing: TestDaemon.framing)), from: .origin,
            at: 0)
    }

    private func value(_ reply: ByteBuffer) throws -> Value? {
        var reply = reply
        return try reply.readReply()
    }

    @Test func `an image alone is sent from where it lies`() {
        let served = Self.served(Freshness(storedAt: 0, lifetime: nil))
        #expect(ImageReplyShape().reply(.success(served), epoch: 1, now: 0, .two) == served.image.bytes.framed)
    }

    @Test(
        arguments: [
            (nil, RESPVersion.two, "$-1\r\n"), (nil, .three, "_\r\n"),
            (MetaKey.stat, .two, "*-1\r\n"), (MetaKey.stat, .three, "_\r\n"),
        ] as [([MetaKey]?, RESPVersion, String)])
    func `no image is the null of what was due`(_ row: (keys: [MetaKey]?, version: RESPVersion, wire: String)) {
        let shape = ImageReplyShape(keys: row.keys)
        #expect(String(buffer: shape.reply(.success(nil), epoch: 1, now: 0, row.version)) == row.wire)
    }

    typealias Life = (stored: Int64, initialAge: Int64, lifetime: Int64?, now: Int64, age: Int, ttl: Int?)

    static let lives: [Life] = [
        (100, 0, 60, 100, 0, 60), (100, 5, 60, 110, 15, 45), (100, 0, 60, 160, 60, 0), (100, 0, 60, 200, 100, -40),
        (100, 0, nil, 500, 400, nil),
        // Found stored in the future: the clock was set back, and it is taken for one whose life has just ended (F14).
        (100, 0, 60, 10, 60, 0), (100, 0, nil, 10, 0, nil),
    ]

    @Test(arguments: lives)
    func `META tells age and time to live, negative when stale, null without end`(_ life: Life) throws {
        let freshness = Freshness(
            storedAt: life.stored, initialAge: life.initialAge, lifetime: life.lifetime)
        let shape = ImageReplyShape(keys: MetaKey.allCases)
        let served = Self.served(freshness)
        let reply = try #require(try value(shape.reply(.success(served), epoch: 77, now: life.now, .three)))
        #expect(reply["age"] == .integer(life.age))
        #expect(reply["ttl"] == (life.ttl.map { .integer($0) } ?? .null))
        #expect(reply["state"] == bulk((life.ttl ?? 1) <= 0 ? "stale" : "fresh"))
        #expect(reply["type"] == bulk("image/webp"))
        #expect(reply["source"] == bulk("origin"))
        #expect(reply["epoch"] == .integer(77))
        #expect(reply["image"] == .bulk(Self.picture))
    }

    @Test(arguments: [nil, MetaKey.allCases] as [[MetaKey]?])
    func `IFNOT with the digest held is UNCHANGED, with META too, and with another the image`(_ keys: [MetaKey]?) {
        let served = Self.served(Freshness(storedAt: 0, lifetime: nil))
        let digest = ByteBuffer(string: served.image.record.digest.hex)
        let same = ImageReplyShape(keys: keys, ifNot: digest)
        #expect(String(buffer: same.reply(.success(served), epoch: 1, now: 0, .two)) == "+UNCHANGED\r\n")
        let other = ImageReplyShape(keys: keys, ifNot: ByteBuffer(string: String(repeating: "0", count: 64)))
        #expect(
            other.reply(.success(served), epoch: 1, now: 0, .two)
                == ImageReplyShape(keys: keys).reply(.success(served), epoch: 1, now: 0, .two))
        #expect(String(buffer: same.reply(.success(nil), epoch: 1, now: 0, .three)) == "_\r\n")
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `what is not yet counted after a start is null in a receipt`(_ version: RESPVersion) throws {
        var receipt = Receipt()
        receipt.usage = nil
        receipt.epoch = 5
        let reply = try #require(try value(.reply { $0.writeReceipt(receipt, version) }))
        #expect(reply["images"] == .null && reply["bytes"] == .null)
        #expect(reply["cancelled"] == .integer(0) && reply["epoch"] == .integer(5))
    }

    @Test func `an error stays one line, whatever stands in it`() {
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
