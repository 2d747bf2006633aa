import CacheCore
import CacheFakes
import NIOCore
import TestSupport
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Malformed input, and requests over a limit.
@Suite(.timeLimit(.minutes(5))) struct MalformedInputTests {
    static let malformed: [String] = [
        "PING\r\n", "\n", "\rx", "GET / HTTP/1.1\r\n\r\n", "\0", "*x\r\n", "*01\r\n", "*1\n", "*-2\r\n",
        "*1000000000\r\n", "*9223372036854775807\r\n", "*9223372036854775808\r\n",
        "*1\r\n$-1\r\n", "*1\r\n$-5\r\n", "*1\r\n$x\r\n", "*1\r\n$ 4\r\nPING\r\n", "*1\r\n$+4\r\nPING\r\n",
        "*1\r\n$4\r\nPINGxx", "*1\r\n:4\r\n", "*1\r\n*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\nECHO\r\n%1\r\n",
        "*11111111111111111111111111111111111111", "~1\r\n$4\r\nPING\r\n", "$4\r\nPING\r\n",
    ]

    @Test(arguments: malformed)
    func `F21, F22: a malformed frame gets an error after earlier replies, then the connection closes`(
        _ bytes: String
    ) async throws {
        try await TestDaemon.run { daemon in
            let other = try await daemon.connect()
            let client = try await daemon.connect()
            try await client.send(raw: "*1\r\n$4\r\nPING\r\n" + bytes + "*1\r\n$4\r\nPING\r\n")
            let rest = try await client.rest()
            #expect(rest.hasPrefix("+PONG\r\n-ERR Protocol error: "))
            #expect(rest.hasSuffix("\r\n"))
            #expect(rest.split(separator: "\r\n").count == 2)
            #expect(try await other.call("PING") == .simpleString("PONG"))
        }
    }

    static let tooLarge = ["*1\r\n$9223372036854775807\r\n", "*1\r\n$9223372036854775808\r\n", "*3\r\n$6000000\r\n"]

    @Test(arguments: tooLarge)
    func `F21: a declared length over the limit is TOOLARGE at once, then the connection closes`(
        _ bytes: String
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            try await client.send(raw: bytes)
            let rest = try await client.rest()
            #expect(rest.hasPrefix("-TOOLARGE the command's name has "))
        }
    }

    @Test func `the error of a malformed frame follows the reply to a waiting GET`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            var bytes = TestClient.request(["GET", "alice", "bob"])
            bytes.writeString("nonsense\r\n")
            try await client.send(bytes)
            await daemon.fetcher.started(1)
            daemon.finish("bob")
            #expect(try await client.reply() == image("bob"))
            #expect(try await client.rest().hasPrefix("-ERR Protocol error: "))
        }
    }

    @Test func `F22: random and mutated frames do not affect other connections`() async throws {
        try await TestDaemon.run { daemon in
            let other = try await daemon.connectWithAlice()
            var random = SeededRandom(seed: 20)
            for _ in 0..<150 {
                var frame = Array(
                    TestClient.request(["GET", "alice", "bob", "SIZE", "64", "CACHED"]).readableBytesView)
                for _ in 0...Int(random.next() % 4) {
                    frame[Int(random.next() % UInt64(frame.count))] = UInt8(truncatingIfNeeded: random.next())
                }
                let client = try await daemon.connect()
                client.sendWithoutWaiting(ByteBuffer(bytes: frame))
                try await client.halfClose()
                // Null, an error, or nothing for an incomplete frame; then the close.
                let rest = try await client.rest()
                #expect(rest.isEmpty || rest == "$-1\r\n" || rest.hasPrefix("-"))
            }
            #expect(try await other.call("PING") == .simpleString("PONG"))
        }
    }

    @Test(arguments: [(8, "null"), (9, "ERR")])
    func `F23: ids over the limit are errors, and the connection stays usable`(
        _ row: (length: Int, outcome: String)
    ) async throws {
        try await TestDaemon.run {
            $0.limits.request.id = 8
            $0.settings.origins = [:]
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            let id = String(repeating: "i", count: row.length)
            let reply = try await client.call("GET", "alice", id)
            #expect((reply.code ?? "null") == row.outcome)
            #expect(try await client.call("STAT", id).code == (row.length > 8 ? "ERR" : nil))
            #expect(try await client.call("LOGIN", "u", "SESSION", id).code == (row.length > 8 ? "ERR" : nil))
            #expect(try await client.call("PING") == .simpleString("PONG"))
        }
    }

    @Test func `one argument more than the limit closes the connection`() async throws {
        try await TestDaemon.run {
            $0.limits.request.arguments = 6
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            #expect(try await client.call("MGET", "alice", "2", "a", "b", "CACHED") == .array([.null, .null]))
            try await client.send("MGET", "alice", "3", "a", "b", "c", "CACHED")
            #expect(try await client.rest().hasPrefix("-ERR Protocol error: a request of 7 arguments: at most 6 "))
        }
    }

    @Test func `an image one byte over the limit is TOOLARGE`() async throws {
        try await TestDaemon.run {
            $0.limits.request.image = 9_000
            $0.settings.imageLimit = 9_000
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            let words = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) }
            #expect(try await client.call(words + [SampleImage.png("bob", size: 9_000)]) == .ok)
            try await client.send(words + [SampleImage.png("bob", size: 9_001)])
            #expect(try await client.rest().hasPrefix("-TOOLARGE "))
        }
    }

    @Test func `an image limit below those of tokens and URLs does not affect them`() async throws {
        try await TestDaemon.run {
            $0.limits.request.image = 200
            $0.settings.imageLimit = 200
        } _: { daemon in
            let client = try await daemon.connect()
            let token = String(repeating: "t", count: 8_192)
            #expect(try await client.call("LOGIN", "alice", "TOKEN", token) == .ok)
            let words = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) }
            #expect(try await client.call(words + [SampleImage.png("bob", size: 201)]).code == "TOOLARGE")
            #expect(try await client.call(words + [SampleImage.png("bob", size: 200)]) == .ok)
        }
    }
}
