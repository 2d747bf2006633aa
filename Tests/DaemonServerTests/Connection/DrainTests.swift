import CacheCore
import CacheFakes
import NIOCore
import SocketLoops
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// A stop of the daemon (F47).
@Suite(.timeLimit(.minutes(5))) struct DrainTests {
    @Test func `F47: a stop completes started requests, starts no others, and closes connections`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let idle = try await daemon.connect()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            try await client.pipeline([["GET", "alice", "bob"], ["MGET", "alice", "2", "carol", "bob"]])
            await daemon.fetcher.started(2)
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            #expect(try await idle.rest() == "")
            try await client.send("LOGIN", "late")
            // Each round of the loop reads sockets before it runs tasks; the first task may join a round in progress.
            for _ in 0..<2 { await withCheckedContinuation { done in daemon.onEventLoop { done.resume() } } }
            daemon.finish("bob")
            daemon.finish("carol")
            #expect(try await client.replies(2) == [image("bob"), .array([image("carol"), image("bob")])])
            #expect(try await client.reply().code == "SHUTTINGDOWN")
            #expect(try await client.rest() == "")
            try await draining.value
            #expect(daemon.store.calls(.commitLogin) == 1)
            await #expect(throws: (any Error).self) { try await daemon.connect() }
        }
    }

    @Test func `F47: a connection accepted before the stop is served`() async throws {
        try await TestDaemon.run {
            $0.threads = 2
        } _: { daemon in
            // Connections go to the loops in rotation. The second loop is blocked from here on.
            for _ in 0..<2 {
                #expect(try await daemon.connect().call("PING") == .simpleString("PONG"))
            }
            let gate = Gate()
            daemon.group.loops[1].execute { gate.pass() }
            await gate.reached()
            let clients = [try await daemon.connect(), try await daemon.connect(), try await daemon.connect()]
            clients[1].sendWithoutWaiting(TestClient.request(["PING"]))
            // The reply on the third connection shows that the second is accepted.
            #expect(try await clients[2].call("PING") == .simpleString("PONG"))
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            await withCheckedContinuation { closed in daemon.server.whenListenerCloses { closed.resume() } }
            gate.open()
            #expect(["", "+PONG\r\n"].contains(try await clients[1].rest()))
            try await draining.value
        }
    }

    @Test func `F47: a started login is made durable and acknowledged`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let idle = try await daemon.connect()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            let gate = daemon.store.hold(.commitLogin)
            try await client.pipeline([["LOGIN", "alice"], ["PING"]])
            await gate.reached()
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            #expect(try await idle.rest() == "")
            daemon.store.release(.commitLogin)
            #expect(try await client.replies(2).map(\.code) == [nil, "SHUTTINGDOWN"])
            #expect(try await client.rest() == "")
            try await draining.value
        }
    }

    @Test func `F47: an unread reply is sent completely`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect(reads: false)
            let idle = try await daemon.connect()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            let text = String(repeating: "x", count: 3 << 20)
            client.sendWithoutWaiting(TestClient.request(["ECHO", text]))
            // By now the client's loop has written all of it, and the server's has read it.
            try await client.flushed()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            #expect(try await idle.rest() == "")
            try await client.startReading()
            #expect(try await client.rest() == "$\(text.count)\r\n\(text)\r\n")
            try await draining.value
        }
    }

    @Test func `F72: received requests that are not started get SHUTTINGDOWN in order`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let idle = try await daemon.connect()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            let gate = daemon.store.hold(.commitLogin)
            try await client.pipeline([["LOGIN", "alice"], ["GET", "alice", "bob"], ["LOGOUT", "alice"]])
            await gate.reached()
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            #expect(try await idle.rest() == "")
            // After the received requests, and after the stop has begun.
            try await client.pipeline([["PURGE", "alice"], ["NONSENSE"]])
            daemon.store.release(.commitLogin)
            let stopping = [String?](repeating: "SHUTTINGDOWN", count: 4)
            #expect(try await client.replies(5).map(\.code) == [nil] + stopping)
            #expect(try await client.rest() == "")
            try await draining.value
            #expect(daemon.store.calls(.commitLogin) == 1)
            #expect(daemon.store.calls(.commitLogout) == 0)
        }
    }

    @Test func `F72: requests in the socket buffer of a paused peer get replies as well`() async throws {
        try await TestDaemon.run {
            $0.limits.output = 64 << 10
        } _: { daemon in
            let client = try await daemon.connect(reads: false)
            let idle = try await daemon.connect()
            let text = String(repeating: "x", count: 1 << 20)
            client.sendWithoutWaiting(TestClient.request(["ECHO", text]))
            try await client.flushed()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            // More than one read of the server.
            let count = 10_000
            let pings = TestClient.request(["PING"])
            var bytes = ByteBuffer()
            for _ in 0..<count { bytes.writeImmutableBuffer(pings) }
            client.sendWithoutWaiting(bytes)
            try await client.flushed()
            #expect(try await idle.call("PING") == .simpleString("PONG"))
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            #expect(try await idle.rest() == "")
            try await client.startReading()
            let replies = try await client.rest().split(separator: "\r\n", omittingEmptySubsequences: true)
            #expect(replies.count { $0.hasPrefix("-SHUTTINGDOWN") } == count)
            try await draining.value
        }
    }

    @Test func `F72: a peer that sends until it sees the end gets no reset`() async throws {
        try await TestDaemon.run {
            $0.limits.linger = 600_000
        } _: { daemon in
            let peer = try BlockingPeer(daemon.path)
            #expect(peer.exchange(["PING"]) == "+PONG\r\n")
            let draining = Task { try await daemon.server.drain(grace: .minutes(10)) }
            await withCheckedContinuation { closed in daemon.server.whenListenerCloses { closed.resume() } }
            // The output is closed, and this peer has not read it.
            try await eventually { peer.hasArrived }
            #expect((0..<1_000).allSatisfy { _ in peer.send(["PING"]) == 0 })
            #expect(peer.receive() == "")
            peer.end()
            try await draining.value
        }
    }

    @Test func `F72: a peer that never closes does not delay the stop`() async throws {
        try await TestDaemon.run {
            $0.limits.linger = 1
        } _: { daemon in
            let peer = try BlockingPeer(daemon.path)
            #expect(peer.exchange(["PING"]) == "+PONG\r\n")
            try await daemon.server.drain(grace: .minutes(10))
            #expect(peer.receive() == "")
            peer.end()
        }
    }

    @Test func `F47: a hanging request delays the stop by the grace period only`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("GET", "alice", "bob", "WAIT", "600000")
            await daemon.fetcher.started(1)
            try await daemon.server.drain(grace: .milliseconds(10))
            #expect(daemon.registry.statistics.connections == 1)
            daemon.server.close()
            #expect(try await client.rest() == "")
            try await eventually { daemon.registry.statistics.connections == 0 }
        }
    }
}
