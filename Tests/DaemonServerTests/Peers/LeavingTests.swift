import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Peers that go while something of theirs is under way.
@Suite(.timeLimit(.minutes(5))) struct LeavingTests {
    @Test func `F19, I6: a peer that is gone leaves its flight, which ends after its grace`() async throws {
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

    @Test func `F19, I6: a peer that is gone takes nothing from the others on its flight`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            try await other.send("GET", "alice", "bob")
            // Answered behind it: by now the GET has joined or waits for the look on disk.
            try await other.send("PING")
            try await client.close()
            try await eventually { daemon.registry.statistics.connections == 1 }
            daemon.time.advance(seconds: 60)
            daemon.finish("bob")
            #expect(try await other.replies(2) == [image("bob"), .simpleString("PONG")])
            #expect(daemon.fetcher.downloads.count == 1)
        }
    }

    @Test func `F19: a peer that goes without reading what it was sent is forgotten`() async throws {
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

    @Test func `F59: a session held by a connection ends with it`() async throws {
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

    @Test func `F59, I8: a connection ends as one task, however many sessions it held`() async throws {
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

    @Test func `F59: another session keeps the cache, and its end ends it`() async throws {
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

    @Test func `F59: a peer that is gone before its LOGIN is durable holds nothing`() async throws {
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

    @Test func `I8: a connection holds a bounded number of sessions, those that ended not counted`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            for number in 0..<1_024 {
                #expect(try await client.call("LOGIN", "user\(number)", "HOLD") == .ok)
            }
            #expect(try await client.call("LOGIN", "one too many", "HOLD").code == "BUSY")
            // Held already, held by nobody, or held instead of another.
            #expect(try await client.call("LOGIN", "user7", "HOLD") == .ok)
            #expect(try await client.call("LOGIN", "one too many") == .ok)
            #expect(try await client.call("LOGOUT", "user7", "SESSION", "default")["users"] == .integer(1))
            #expect(try await client.call("LOGIN", "another", "HOLD") == .ok)
            #expect(try await client.call("LOGOUT", "*")["users"] == .integer(1_025))
            #expect(try await client.call("LOGIN", "one too many", "HOLD") == .ok)
        }
    }
}
