import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// The fields of INFO with Redis's names.
@Suite(.timeLimit(.minutes(2))) struct ClientFiguresTests {
    private static func figures(_ daemon: TestDaemon, for peer: Peer = TestDaemon.defaultPeer) -> PeerRegistry.Figures {
        daemon.registry.figures(for: peer, now: .now())
    }

    @Test func `each request counts, and each image is a hit or a miss`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            try await eventually { Self.figures(daemon).waiting == 1 }
            daemon.finish("bob")
            #expect(try await client.reply() == image("bob"))
            for _ in 0..<3 { #expect(try await client.call("GET", "alice", "bob") == image("bob")) }
            #expect(try await client.call("GET", "alice", "eve", "CACHED") == .null)
            _ = try await client.call("MGET", "alice", "3", "bob", "eve", "bob", "CACHED")
            #expect(try await client.call("NONESUCH").code == "ERR")
            try await eventually { Self.figures(daemon).counts == ClientCounts(commands: 8, hits: 5, misses: 3) }
            #expect(Self.figures(daemon).waiting == 0)
            #expect(Self.figures(daemon).connections == 1)
        }
    }

    @Test func `I1: an account sees its own counters, an observer the sums`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect(as: Peer(uid: 1001, pid: 7, isAdmin: false))
            for _ in 0..<4 { _ = try await other.call("PING") }
            try await client.close()
            try await eventually { Self.figures(daemon).connections == 0 }
            #expect(Self.figures(daemon).counts.commands == 1)
            #expect(Self.figures(daemon).accepted == 1)
            for peer in [TestDaemon.admin, TestDaemon.observer] {
                try await eventually { Self.figures(daemon, for: peer).counts.commands == 5 }
                #expect(Self.figures(daemon, for: peer).accepted == 2)
                #expect(Self.figures(daemon, for: peer).connections == 1)
            }
            // An account that never connected has no counters.
            #expect(Self.figures(daemon, for: Peer(uid: 7, pid: 1, isAdmin: false)).accepted == 0)
        }
    }

    @Test func `INFO counts its own request, and those pipelined with it`() async throws {
        let registry = PeerRegistry()
        try await TestDaemon.run {
            $0.registry = registry
            $0.info = ServerInfo([
                "clients": { peer, _ in registry.clientLines(for: peer) },
                "stats": { peer, _ in registry.statisticsLines(for: peer, evicted: 9) },
            ])
        } _: { daemon in
            let client = try await daemon.connect()
            try await client.pipeline([["PING"], ["PING"], ["INFO"]])
            let own = """
                # Clients
                connected_clients:1
                blocked_clients:0

                # Stats
                total_connections_received:1
                total_commands_processed:3
                instantaneous_ops_per_sec:…
                keyspace_hits:0
                keyspace_misses:0

                """
            let shown = try await client.replies(3).last?.text?.replacing("\r\n", with: "\n")
            // The rate depends on the elapsed time.
            #expect(shown?.replacing(/(per_sec:)\d+/) { "\($0.output.1)…" } == own)
            let admin = try await daemon.connect(as: TestDaemon.admin)
            let all = try await admin.call("INFO", "stats").text ?? ""
            #expect(all.contains("rejected_connections:0\r\nevicted_keys:9\r\n"))
            #expect(all.contains("total_commands_processed:4\r\n"))
        }
    }

    /// Readings of a count at times in seconds, with the expected rates.
    static let readings: [[(at: Double, count: Int, rate: Int)]] = [
        // The first second counts as a whole one.
        [(0.1, 50, 50), (0.5, 100, 100)],
        [(10, 1_000, 100), (20, 1_000, 0), (21, 1_500, 500)],
        // Readings in quick succession do not affect later ones.
        [(10, 0, 0), (20, 1_000, 100), (20.01, 1_000, 100), (20.02, 1_002, 100), (30, 3_000, 200)],
        [(1, 0, 0), (2, 3, 3), (4, 4, 1)],
    ]

    @Test(arguments: readings)
    func `a rate covers the time since a reading at least a second old`(
        _ readings: [(at: Double, count: Int, rate: Int)]
    ) {
        let start = NIODeadline.uptimeNanoseconds(5_000_000_000)
        var rate = CommandRate(since: start)
        for reading in readings {
            #expect(
                rate.update(reading.count, start + .nanoseconds(Int64(reading.at * 1e9))) == reading.rate, "\(reading)")
        }
    }
}
