import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// How long a request waits.
@Suite(.timeLimit(.minutes(5))) struct WaitTests {
    @Test func `F36: a request whose time is up is TIMEOUT, and what waits longer is not`() async throws {
        try await TestDaemon.run { daemon in
            let context = try await daemon.connectWithAlice()
            try await context.send("GET", "alice", "bob", "WAIT", "600000")
            await daemon.fetcher.started(1)
            let client = try await daemon.connect()
            #expect(
                try await client.call("GET", "alice", "bob", "WAIT", "1")
                    == .error(code: "TIMEOUT", message: "no answer from the origin within the time this request waits"))
            #expect(try await client.call("GET", "alice", "bob", "META", "WAIT", "0").code == "TIMEOUT")
            let reply = try await client.call("MGET", "alice", "2", "bob", "carol", "WAIT", "1")
            #expect(reply.elements?.map(\.code) == ["TIMEOUT", "TIMEOUT"])
            daemon.finish("bob")
            #expect(try await context.reply() == image("bob"))
        }
    }

    @Test func `F54: without WAIT a request waits as long as the origin may take`() async throws {
        var origin = TestDaemon.origin
        origin.timeout = 1
        try await TestDaemon.run {
            $0.settings.origins = ["default": origin]
        } _: { daemon in
            let context = try await daemon.connectWithAlice()
            try await context.send("GET", "alice", "bob", "WAIT", "600000")
            await daemon.fetcher.started(1)
            let client = try await daemon.connect()
            #expect(try await client.call("GET", "alice", "bob").code == "TIMEOUT")
            #expect(try await client.call("GET", "alice", "bob").code == "TIMEOUT")
            // Those that come back find the download that is under way.
            #expect(daemon.fetcher.downloads.count == 1)
            daemon.finish("bob")
            #expect(try await context.reply() == image("bob"))
        }
    }

    @Test func `I9: a request whose time is up gets the stale image, where there is one`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            daemon.finish("bob", headers: ["cache-control": ["max-age=10"]])
            #expect(try await client.reply() == image("bob"))
            // Past its life and the time in which it is served at once, not past that in which it is served on errors.
            daemon.time.now += 1_000
            let reply = try await client.call("GET", "alice", "bob", "META", "WAIT", "1")
            #expect(reply["image"] == image("bob"))
            #expect(reply["state"] == bulk("stale"))
            #expect(reply["ttl"] == .integer(-990))
        }
    }
}
