import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Timeouts of requests.
@Suite(.timeLimit(.minutes(5))) struct WaitTests {
    @Test func `F36: a request times out after its WAIT`() async throws {
        try await TestDaemon.run { daemon in
            let context = try await daemon.connectWithAlice()
            try await context.send("GET", "alice", "bob", "WAIT", "600000")
            await daemon.fetcher.started(1)
            let client = try await daemon.connect()
            #expect(
                try await client.call("GET", "alice", "bob", "WAIT", "1")
                    == .error(code: "TIMEOUT", message: "the origin did not respond within the request's WAIT"))
            #expect(try await client.call("GET", "alice", "bob", "META", "WAIT", "0").code == "TIMEOUT")
            let reply = try await client.call("MGET", "alice", "2", "bob", "carol", "WAIT", "1")
            #expect(reply.elements?.map(\.code) == ["TIMEOUT", "TIMEOUT"])
            daemon.finish("bob")
            #expect(try await context.reply() == image("bob"))
        }
    }

    @Test func `F54: without WAIT a request waits for the origin's timeout`() async throws {
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
            // Repeated requests join the download in flight.
            #expect(daemon.fetcher.downloads.count == 1)
            daemon.finish("bob")
            #expect(try await context.reply() == image("bob"))
        }
    }

    @Test func `I9: a request that times out gets a stale image if there is one`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            daemon.finish("bob", headers: ["cache-control": ["max-age=10"]])
            #expect(try await client.reply() == image("bob"))
            // Stale for stale-while-revalidate, but not for stale-if-error.
            daemon.time.now += 1_000
            let reply = try await client.call("GET", "alice", "bob", "META", "WAIT", "1")
            #expect(reply["image"] == image("bob"))
            #expect(reply["state"] == bulk("stale"))
            #expect(reply["ttl"] == .integer(-990))
        }
    }
}
