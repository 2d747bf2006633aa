import Glibc
import NIOCore
import NIOPosix
import Testing

@testable @_spi(Wire) import Thumbcache

@Suite(.timeLimit(.minutes(4))) struct ConnectingTests {
    @Test func `a client on the program's event loop ends before the loop`() async throws {
        let daemon = try await FakeDaemon(hello: FakeDaemon.greeting)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let client = ThumbcacheClient(path: daemon.path)
        let running = Task { await client.run(on: group.next()) }
        let users = Task { try await client.users() }
        let peer = try await daemon.accept()
        #expect(try await peer.next() == ["USERS"])
        peer.send("*0\r\n")
        _ = try await users.value
        running.cancel()
        await running.value
        try await peer.closed()
        await #expect(throws: ThumbcacheError.notRunning) { try await client.users() }
        #expect(try await group.next().submit { 1 }.get() == 1)
        try await group.shutdownGracefully()
        try await daemon.stop()
    }

    @Test(arguments: [
        ("-BUSY no connection to spare\r\n", ThumbcacheError.server(.busy, message: "no connection to spare")),
        ("%1\r\n+server\r\n+redis\r\n", .notThumbcached(name: "redis")),
        ("+OK\r\n", .notThumbcached(name: nil)),
        ("SSH-2.0-x\r\n", .protocolViolation("invalid reply 'SSSH-2.0-x'")),
    ])
    func `a server that is not thumbcached, or rejects HELLO, receives no request`(
        hello: String, expected: ThumbcacheError
    ) async throws {
        try await withClient(hello: hello) { client, daemon in
            let call = Task { try await client.logIn("alice", token: "secret") }
            let peer = try await daemon.accept()
            let failure = await error { () async throws(ThumbcacheError) in
                try await client.reply(to: ThumbcacheRequest("PING"))
            }
            _ = await call.result
            if case .protocolViolation = expected {
                guard case .protocolViolation = failure else {
                    Issue.record("\(String(describing: failure))")
                    return
                }
            } else {
                #expect(failure == expected)
            }
            try await peer.closed()
            #expect(peer.unread == 0)
        }
    }

    @Test func `connecting fails without a daemon, and succeeds when it is started`() async throws {
        try await withClient { client, daemon in
            try await daemon.unlisten()
            let missing = await error { () async throws(ThumbcacheError) in try await client.ping() }
            #expect(missing == .unreachable(path: daemon.path, errno: ENOENT))
            try await daemon.listen()
            let call = Task { try await client.ping() }
            let peer = try await daemon.accept()
            _ = try await peer.next()
            peer.send("+PONG\r\n")
            try await call.value
        }
    }

    @Test func `a path that is too long is rejected`() async throws {
        let path = "/" + String(repeating: "x", count: 107)
        let client = ThumbcacheClient(path: path)
        let running = Task { await client.run() }
        let failure = await error { () async throws(ThumbcacheError) in try await client.ping() }
        #expect(failure == .unreachable(path: path, errno: ENAMETOOLONG))
        running.cancel()
        await running.value
    }

    @Test(arguments: ["", "$5\r\nab", "$-2\r\n", "?\r\n"])
    func `a lost connection fails its requests, and the next request reconnects`(
        last: String
    ) async throws {
        try await withClient { client, daemon in
            let waiting = (0..<3).map { _ in Task { try await client.users() } }
            let peer = try await daemon.accept()
            for _ in 0..<3 { _ = try await peer.next() }
            peer.send(last)
            try await peer.close()
            for task in waiting {
                let failure = await #expect(throws: ThumbcacheError.self) { try await task.value }
                if case .protocolViolation = failure { continue }
                #expect(failure == .connectionLost)
            }
            let again = Task { try await client.users() }
            let another = try await daemon.accept()
            _ = try await another.next()
            another.send("*0\r\n")
            #expect(try await again.value == [])
        }
    }

    @Test func `a reply in the middle of a request takes precedence over the broken pipe`() async throws {
        try await withClient {
            $0.libraryName = nil
        } _: { client, daemon in
            let image = ByteBuffer(repeating: 7, count: 8 << 20)
            let put = Task { try await client.put("alice", "bob", image) }
            let peer = try await daemon.accept()
            _ = await peer.partOfRequest.wait()
            peer.send("-TOOLARGE at most 5 bytes\r\n")
            try await peer.close()
            await #expect(throws: ThumbcacheError.server(.tooLarge, message: "at most 5 bytes")) {
                try await put.value
            }
        }
    }

    @Test func `a reply without a request closes the connection`() async throws {
        try await withClient { client, daemon in
            let ping = Task { try await client.ping() }
            let peer = try await daemon.accept()
            _ = try await peer.next()
            peer.send("+PONG\r\n+PONG\r\n")
            try await ping.value
            try await peer.closed()
        }
    }

    @Test func `requests wait for a client to run, and fail when it ends`() async throws {
        let daemon = try await FakeDaemon()
        let client = ThumbcacheClient(path: daemon.path)
        let early = Task { try await client.ping() }
        let running = Task { await client.run() }
        let peer = try await daemon.accept()
        _ = try await peer.next()
        peer.send("+PONG\r\n")
        try await early.value
        let inFlight = Task { try await client.ping() }
        _ = try await peer.next()
        running.cancel()
        await running.value
        await #expect(throws: ThumbcacheError.notRunning) { try await inFlight.value }
        let late = await error { () async throws(ThumbcacheError) in try await client.ping() }
        #expect(late == .notRunning)
        await client.run()
        try await daemon.stop()
    }

    @Test func `a request of a client that never runs can be cancelled`() async throws {
        let client = ThumbcacheClient(path: "/nonexistent")
        let waiting = Task { try await client.ping() }
        waiting.cancel()
        await #expect(throws: ThumbcacheError.cancelled) { try await waiting.value }
    }

    @Test func `a request during the backoff fails when the client stops`() async throws {
        try await withClient { configuration in
            configuration.firstPause = .seconds(1_000)
            configuration.longestPause = .seconds(1_000)
        } _: { client, daemon in
            try await daemon.unlisten()
            _ = await error { () async throws(ThumbcacheError) in try await client.ping() }
            let pausing = Task { try await client.ping() }
            pausing.cancel()
            await #expect(throws: ThumbcacheError.cancelled) { try await pausing.value }
            // The end of the test stops the pause, which would take 1,000 seconds.
            Task { try await client.get("alice", "bob") }
        }
    }
}
