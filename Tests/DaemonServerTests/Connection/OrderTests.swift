import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// The order of replies.
@Suite(.timeLimit(.minutes(5))) struct OrderTests {
    @Test func `replies keep the order of requests if later ones are ready first`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.pipeline([
                ["GET", "alice", "bob"], ["PING"], ["GET", "alice", "carol"], ["ECHO", "last"],
            ])
            await daemon.fetcher.started(2)
            daemon.finish("carol")
            // A reply on another connection: earlier ready replies could have been sent by now.
            let other = try await daemon.connect()
            #expect(try await other.call("PING") == .simpleString("PONG"))
            #expect(client.received == 0)
            daemon.finish("bob")
            #expect(
                try await client.replies(4) == [image("bob"), .simpleString("PONG"), image("carol"), bulk("last")])
        }
    }

    @Test func `a waiting GET does not block later commands`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.pipeline((0..<100).map { ["GET", "alice", "p\($0)"] })
            await daemon.fetcher.started(100)
            for number in (0..<100).reversed() { daemon.finish("p\(number)") }
            #expect(try await client.replies(100) == (0..<100).map { image("p\($0)") })
        }
    }

    @Test func `LOGIN and PUT block later commands, which see their effect`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let login = daemon.store.hold(.commitLogin)
            let put = daemon.store.hold(.appear)
            var bytes = TestClient.request(["LOGIN", "alice"])
            bytes.writeRequest(["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png("bob")])
            bytes.writeRequest(["GET", "alice", "bob"])
            try await client.send(bytes)
            await login.reached()
            #expect(daemon.store.calls(.seal) == 0)
            daemon.store.release(.commitLogin)
            await put.reached()
            #expect(daemon.store.calls(.read) == 0)
            daemon.store.release(.appear)
            #expect(try await client.replies(3) == [.ok, .ok, image("bob")])
        }
    }

    @Test func `PURGE blocks later commands, which find nothing`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let put = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png("bob")]
            #expect(try await client.call(put) == .ok)
            let purge = daemon.store.hold(.commitPurge)
            try await client.pipeline([["PURGE", "alice"], ["GET", "alice", "bob", "CACHED"]])
            await purge.reached()
            daemon.store.release(.commitPurge)
            let replies = try await client.replies(2)
            #expect(replies[0]["images"] == .integer(1))
            #expect(replies[1] == .null)
        }
    }

    @Test(arguments: ["LOGOUT", "PURGE"])
    func `F62, F40: a hanging GET pipelined before an invalidation is CANCELLED`(
        _ invalidation: String
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.pipeline([["GET", "alice", "bob"], [invalidation, "alice"], ["PING"]])
            let replies = try await client.replies(3)
            #expect(replies[0].code == "CANCELLED")
            #expect(replies[1]["users"] == .integer(1))
            #expect(replies[2] == .simpleString("PONG"))
            #expect(daemon.fetcher.downloads.allSatisfy { $0.isCancelled })
        }
    }

    @Test(arguments: [8, 50])
    func `F62: an invalidation does not wait for GETs that fill the queue`(
        _ gets: Int
    ) async throws {
        try await TestDaemon.run {
            $0.limits.queuePerAccount = 8
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.pipeline((0..<gets).map { ["GET", "alice", "p\($0)"] })
            await daemon.fetcher.started(8)
            let other = try await daemon.connect()
            try await (gets == 8 ? client : other).send("LOGOUT", "alice")
            let replies = try await client.replies(gets)
            #expect(replies.prefix(8).allSatisfy { $0.code == "CANCELLED" })
            #expect(try await (gets == 8 ? client : other).reply()["users"] == .integer(1))
        }
    }

    @Test func `a pipeline of more GETs than the queue limit gets all replies`() async throws {
        try await TestDaemon.run {
            $0.limits.queuePerAccount = 8
        } _: { daemon in
            daemon.fetcher.answer = { _ in SampleImage.downloaded("it", framing: TestDaemon.framing) }
            let client = try await daemon.connectWithAlice()
            try await client.pipeline((0..<500).map { ["GET", "alice", "p\($0)"] })
            #expect(try await client.replies(500).allSatisfy { $0 == image("it") })
            try await client.send(
                ["MGET", "alice", "500"].map { ByteBuffer(string: $0) } + (0..<500).map { ByteBuffer(string: "q\($0)") }
            )
            #expect(try await client.reply() == .array(Array(repeating: image("it"), count: 500)))
        }
    }

    @Test func `each reply has the protocol version of its request`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.pipeline([
                ["GET", "alice", "bob", "META"], ["HELLO", "3"], ["GET", "alice", "bob", "META"], ["RESET"],
            ])
            await daemon.fetcher.started(1)
            daemon.finish("bob")
            let replies = try await client.replies(4)
            #expect(replies[0].elements?.count == 24)
            guard case .map = replies[2] else { throw ClientError.closed("\(replies[2])") }
            #expect(replies[3] == .simpleString("RESET"))
        }
    }

    @Test func `a pipeline of 100,000 requests gets its replies in order`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let put = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png("bob")]
            #expect(try await client.call(put) == .ok)
            var requests = ByteBuffer()
            var expected = ByteBuffer()
            for number in 0..<50_000 {
                requests.writeRequest(["GET", "alice", "bob"])
                requests.writeRequest(["ECHO", "\(number)"])
                expected.writeBulkString(SampleImage.png("bob"))
                expected.writeBulkString("\(number)")
            }
            requests.writeRequest(["QUIT"])
            expected.writeSimpleString("OK")
            try await client.send(requests)
            let replies = try await client.restOfBytes()
            // `==` within the expectation would print both values.
            let isEqual = replies == expected
            #expect(isEqual)
        }
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `large images with META are in order, also if the peer reads late`(_ version: RESPVersion) async throws {
        try await TestDaemon.run { daemon in
            let other = try await daemon.connectWithAlice()
            let image = SampleImage.png("bob", size: 8 << 10)
            #expect(try await other.call(["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [image]) == .ok)
            let client = try await daemon.connect(reads: false)
            let requests = (0..<200).flatMap { [["GET", "alice", "bob", "META"], ["ECHO", "\($0)"]] }
            try await client.pipeline((version == .three ? [["HELLO", "3"]] : []) + requests)
            // The loop has filled the socket.
            for _ in 0..<3 { #expect(try await other.call("PING") == .simpleString("PONG")) }
            try await client.startReading()
            if version == .three { _ = try await client.reply() }
            let replies = try await client.replies(requests.count)
            let epoch = try #require(replies[0]["epoch"])
            for number in 0..<200 {
                #expect(replies[2 * number]["image"] == .bulk(image))
                #expect(replies[2 * number]["epoch"] == epoch)
                #expect(replies[2 * number + 1] == bulk("\(number)"))
            }
        }
    }
}
