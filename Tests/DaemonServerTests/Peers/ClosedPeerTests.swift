import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Peers that close while their requests are in progress.
@Suite(.timeLimit(.minutes(5))) struct ClosedPeerTests {
    @Test func `F19, I6: a peer that closes leaves its download, which ends after its grace period`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            try await client.close()
            try await eventually { daemon.time.timers == 1 }
            let download = try #require(daemon.fetcher.downloads.first)
            #expect(!download.isCancelled)
            daemon.time.advance(seconds: 5)
            #expect(download.isCancelled)
        }
    }

    @Test func `F19, I6: a peer that closes does not affect other waiters of its download`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            try await other.send("GET", "alice", "bob")
            try await eventually {
                daemon.registry.clientLines(for: TestDaemon.admin).contains { $0 == ("blocked_clients", "2") }
            }
            try await client.close()
            try await eventually { daemon.registry.statistics.connections == 1 }
            daemon.time.advance(seconds: 60)
            daemon.finish("bob")
            #expect(try await other.replies(1) == [image("bob")])
            #expect(daemon.fetcher.downloads.count == 1)
        }
    }

    @Test func `F19: a peer that closes with unread output is removed`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect(reads: false)
            client.sendWithoutWaiting(TestClient.request(["ECHO", String(repeating: "x", count: 3 << 20)]))
            let other = try await daemon.connect()
            #expect(try await other.call("PING") == .simpleString("PONG"))
            try await client.close()
            try await eventually { daemon.registry.statistics.connections == 1 }
            #expect(try await other.call("PING") == .simpleString("PONG"))
        }
    }

    @Test func `F59: a held session ends with its connection`() async throws {
        try await TestDaemon.run { daemon in
            let other = try await daemon.connect()
            let client = try await daemon.connect()
            #expect(try await client.call("LOGIN", "alice", "HOLD") == .ok)
            #expect(try await other.call("GET", "alice", "bob", "CACHED") == .null)
            try await client.close()
            try await eventually { daemon.store.calls(.commitLogout) == 1 }
            #expect(try await other.call("GET", "alice", "bob", "CACHED").code == "NOLOGIN")
        }
    }

    @Test func `F59, I8: held sessions end in one task per connection`() async throws {
        let tasks = GatedTasks()
        try await TestDaemon.run {
            $0.tasks = tasks
        } _: { daemon in
            let client = try await daemon.connect()
            for user in ["alice", "bob", "carol"] { #expect(try await client.call("LOGIN", user, "HOLD") == .ok) }
            tasks.close()
            try await client.close()
            try await eventually { daemon.registry.statistics.connections == 0 }
            #expect(tasks.count == 1)
            tasks.open()
            try await eventually { daemon.store.calls(.commitLogout) == 3 }
        }
    }

    @Test func `F59: the cache ends with its last session`() async throws {
        try await TestDaemon.run { daemon in
            let other = try await daemon.connect()
            let client = try await daemon.connect()
            #expect(try await client.call("LOGIN", "alice", "SESSION", "held", "HOLD") == .ok)
            #expect(try await client.call("LOGIN", "alice", "SESSION", "held", "HOLD") == .ok)
            #expect(try await other.call("LOGIN", "alice", "SESSION", "kept") == .ok)
            #expect(try await other.call("STAT", "alice")["sessions"] == .integer(2))
            try await client.close()
            try await eventually { try await other.call("STAT", "alice")["sessions"] == .integer(1) }
            #expect(daemon.store.calls(.commitLogout) == 0)
            #expect(try await other.call("LOGOUT", "alice", "SESSION", "kept")["users"] == .integer(1))
        }
    }

    @Test func `F59: a peer that closes before its LOGIN is durable holds no session`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let gate = daemon.store.hold(.commitLogin)
            try await client.send("LOGIN", "alice", "HOLD")
            await gate.reached()
            try await client.close()
            try await eventually { daemon.registry.statistics.connections == 0 }
            daemon.store.release(.commitLogin)
            try await eventually { daemon.store.calls(.commitLogout) == 1 }
            let other = try await daemon.connect()
            #expect(try await other.call("STAT", "alice") == .null)
            #expect(daemon.store.login(of: TestDaemon.alice) == nil)
        }
    }

    @Test func `I8: the sessions held by a connection are bounded`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            for number in 0..<1_024 {
                #expect(try await client.call("LOGIN", "user\(number)", "HOLD") == .ok)
            }
            #expect(try await client.call("LOGIN", "one too many", "HOLD").code == "BUSY")
            // A session held already, one that is not held, and one that replaces another.
            #expect(try await client.call("LOGIN", "user7", "HOLD") == .ok)
            #expect(try await client.call("LOGIN", "one too many") == .ok)
            #expect(try await client.call("LOGOUT", "user7", "SESSION", "default")["users"] == .integer(1))
            #expect(try await client.call("LOGIN", "another", "HOLD") == .ok)
            #expect(try await client.call("LOGOUT", "*")["users"] == .integer(1_025))
            #expect(try await client.call("LOGIN", "one too many", "HOLD") == .ok)
        }
    }
}
