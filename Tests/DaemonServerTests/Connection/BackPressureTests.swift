import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Peers that read slowly or not at all (F17).
@Suite(.timeLimit(.minutes(5))) struct BackPressureTests {
    private static let long: Int64 = 600_000

    private func put(_ profile: String, size: Int, on client: TestClient) async throws {
        let arguments =
            ["PUT", "alice", profile].map { ByteBuffer(string: $0) } + [SampleImage.png(profile, size: size)]
        #expect(try await client.call(arguments) == .ok)
    }

    /// A section of INFO with `size` bytes that counts its requests.
    private func countedInfo(_ count: NIOLockedValueBox<Int>, size: Int) -> ServerInfo {
        ServerInfo([
            "it": { _, _ in
                count.withLockedValue { $0 += 1 }
                return [("filler", String(repeating: "x", count: size))]
            }
        ])
    }

    @Test(arguments: [1, 2, 3, 4, 5])
    func `replies that together exceed the output limit are sent`(_ count: Int) async throws {
        try await TestDaemon.run {
            $0.limits.output = 64 << 10
            $0.limits.stall = Self.long
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await put("bob", size: 20_000, on: client)
            try await client.pipeline(Array(repeating: ["GET", "alice", "bob"], count: count))
            #expect(try await client.replies(count) == Array(repeating: image("bob", size: 20_000), count: count))
        }
    }

    @Test func `F17: the output of a peer that does not read is bounded, and sent when it reads`() async throws {
        let started = NIOLockedValueBox(0)
        try await TestDaemon.run {
            $0.limits.output = 1 << 20
            $0.limits.stall = Self.long
            $0.info = countedInfo(started, size: 10_000)
        } _: { daemon in
            let client = try await daemon.connect(reads: false)
            client.sendWithoutWaiting(request(["INFO"], times: 1_000))
            // The socket buffer, some hundred KiB by default, is not part of the limit.
            try await eventually { started.withLockedValue { $0 } >= 100 }
            let other = try await daemon.connect()
            for _ in 0..<100 { #expect(try await other.call("PING") == .simpleString("PONG")) }
            #expect(started.withLockedValue { $0 } < 200)
            try await client.startReading()
            for _ in 0..<1_000 { #expect(try await client.reply().bytes?.readableBytes == 10_015) }
        }
    }

    @Test func `F17: only a peer that reads nothing is disconnected after the stall`() async throws {
        let started = NIOLockedValueBox(0)
        try await TestDaemon.run {
            $0.limits.output = 1 << 20
            $0.limits.stall = 100
            $0.info = countedInfo(started, size: 10_000)
        } _: { daemon in
            let other = try await daemon.connect()
            #expect(try await other.call("PING") == .simpleString("PONG"))
            let client = try await daemon.connect(reads: false)
            client.sendWithoutWaiting(request(["INFO"], times: 1_000))
            try await eventually { started.withLockedValue { $0 } >= 1 }
            try await eventually { daemon.registry.statistics.connections == 1 }
            #expect(started.withLockedValue { $0 } < 200)
            #expect(try await other.call("PING") == .simpleString("PONG"))
        }
    }

    @Test func `F18: a peer with an unfinished frame is disconnected after the stall, an idle one is not`()
        async throws
    {
        try await TestDaemon.run {
            $0.limits.stall = 100
        } _: { daemon in
            let idle = try await daemon.connect()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            let client = try await daemon.connect()
            try await client.send(raw: "*2\r\n$4\r\nECHO\r\n$5\r\nhel")
            #expect(try await client.rest() == "")
            #expect(try await idle.call("PING") == .simpleString("PONG"))
        }
    }

    @Test(arguments: ["QUIT", "half-close"])
    func `a finished connection closes once its peer has read the last byte`(_ way: String) async throws {
        try await TestDaemon.run {
            $0.limits.stall = Self.long
        } _: { daemon in
            let owner = try await daemon.connectWithAlice()
            try await put("bob", size: 1 << 20, on: owner)
            let client = try await daemon.connect(reads: false)
            try await client.send("GET", "alice", "bob")
            if way == "QUIT" { try await client.send("QUIT") } else { try await client.halfClose() }
            // When this request has its reply, the earlier reply is in the socket buffer.
            #expect(try await owner.call("PING") == .simpleString("PONG"))
            try await client.startReading()
            let rest = try await client.rest()
            #expect(rest.utf8.count >= 1 << 20)
            #expect(rest.hasSuffix(way == "QUIT" ? "+OK\r\n" : "\0\r\n"))
        }
    }

    @Test func `a half-closed peer gets every reply, then the close`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.pipeline([["GET", "alice", "bob"], ["PING"]])
            try await client.halfClose()
            await daemon.fetcher.started(1)
            daemon.finish("bob")
            #expect(try await client.replies(2) == [image("bob"), .simpleString("PONG")])
            #expect(try await client.rest() == "")
        }
    }

    @Test func `a half-closed peer with more requests than fit gets every reply`() async throws {
        try await TestDaemon.run {
            $0.limits.output = 64 << 10
            $0.limits.stall = Self.long
        } _: { daemon in
            let client = try await daemon.connect(reads: false)
            let text = String(repeating: "y", count: 1_000)
            let sending = Task { try await client.send(request(["ECHO", text], times: 5_000)) }
            try await client.startReading()
            try await sending.value
            try await client.halfClose()
            for _ in 0..<5_000 { #expect(try await client.reply() == bulk(text)) }
            #expect(try await client.rest() == "")
        }
    }

    @Test func `I8: connections with many queued requests do not block others`() async throws {
        let done = NIOLockedValueBox(0)
        let seen = NIOLockedValueBox<Int?>(nil)
        let count = 6_000
        try await TestDaemon.run {
            $0.limits.stall = Self.long
            $0.loginThreads = 3
            $0.info = ServerInfo([
                "count": { _, _ in
                    done.withLockedValue { $0 += 1 }
                    return []
                },
                "sample": { _, _ in
                    seen.withLockedValue { $0 = done.withLockedValue { $0 } }
                    return []
                },
            ])
        } _: { daemon in
            let busy = [try await daemon.connect(), try await daemon.connect(), try await daemon.connect()]
            let other = try await daemon.connect()
            #expect(try await other.call("PING") == .simpleString("PONG"))
            let gate = daemon.store.hold(.commitLogin)
            for (number, client) in busy.enumerated() {
                var bytes = TestClient.request(["LOGIN", "user\(number)"])
                bytes.writeImmutableBuffer(request(["INFO", "COUNT"], times: count))
                bytes.writeRequest(["QUIT"])
                // All of it is read ahead while the login is blocked.
                try await client.send(bytes)
            }
            await gate.reached(by: busy.count)
            // The event loop is blocked until the logins may continue and another request has arrived.
            let blocked = Gate()
            daemon.onEventLoop { blocked.pass() }
            await blocked.reached()
            daemon.store.release(.commitLogin)
            try await eventually { (0..<busy.count).allSatisfy { daemon.isOpen("user\($0)") } }
            try await other.send("INFO", "SAMPLE")
            blocked.open()
            _ = try await other.reply()
            #expect(try #require(seen.withLockedValue { $0 }) < count)
            let reply = "$9\r\n# Count\r\n\r\n"
            for client in busy {
                #expect(
                    try await client.restOfBytes().readableBytes == count * reply.utf8.count + 2 * "+OK\r\n".utf8.count)
            }
        }
    }

    @Test func `F66: many connections of one uid delay another uid no more than one does`() async throws {
        let done = NIOLockedValueBox(0)
        let seen = NIOLockedValueBox<Int?>(nil)
        let (connections, count) = (20, 500)
        try await TestDaemon.run {
            $0.limits.stall = Self.long
            $0.info = ServerInfo([
                "count": { _, _ in
                    done.withLockedValue { $0 += 1 }
                    return []
                },
                "sample": { _, _ in
                    seen.withLockedValue { $0 = done.withLockedValue { $0 } }
                    return []
                },
            ])
        } _: { daemon in
            let other = try await daemon.connect(as: Peer(uid: 1001, pid: 1, isAdmin: false))
            #expect(try await other.call("PING") == .simpleString("PONG"))
            var busy: [TestClient] = []
            for _ in 0..<connections {
                busy.append(try await daemon.connect())
                #expect(try await busy.last?.call("PING") == .simpleString("PONG"))
            }
            // The event loop is blocked until all have sent their requests, the other uid last.
            let blocked = Gate()
            daemon.onEventLoop { blocked.pass() }
            await blocked.reached()
            for client in busy { try await client.send(request(["INFO", "COUNT"], times: count)) }
            try await other.send("INFO", "SAMPLE")
            blocked.open()
            _ = try await other.reply()
            let commands = Int(LoopAccount.sharedQuantum / LoopAccount.commandCost)
            #expect(try #require(seen.withLockedValue { $0 }) <= 2 * commands)
            for client in busy { _ = try await client.replies(count) }
            #expect(done.withLockedValue { $0 } == connections * count)
        }
    }

    private func request(_ words: [String], times: Int) -> ByteBuffer {
        let one = TestClient.request(words)
        var bytes = ByteBuffer()
        for _ in 0..<times { bytes.writeImmutableBuffer(one) }
        return bytes
    }
}
