import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Limits on connections and waiting requests (I8).
@Suite(.timeLimit(.minutes(5))) struct ConnectionLimitTests {
    private func peer(_ uid: UInt32) -> Peer { Peer(uid: uid, pid: 1, isAdmin: false) }

    /// Connects a client that is accepted.
    private func enter(_ daemon: TestDaemon, as peer: Peer) async throws -> TestClient {
        let client = try await daemon.connect(as: peer)
        #expect(try await client.call("PING") == .simpleString("PONG"))
        return client
    }

    @Test func `I8, F53: a uid over its limit is BUSY, and the last connections are reserved for admins`() async throws
    {
        try await TestDaemon.run {
            $0.limits.connections = 4
            $0.limits.adminConnections = 1
            $0.limits.connectionsPerAccount = 2
        } _: { daemon in
            let first = try await enter(daemon, as: peer(1000))
            let second = try await enter(daemon, as: peer(1000))
            #expect(
                try await daemon.connect(as: peer(1000)).rest()
                    == "-BUSY limits.connections-per-uid: account 1000 has 2 connections; close one, then retry\r\n")
            let third = try await enter(daemon, as: peer(1001))
            #expect(
                try await daemon.connect(as: peer(1001)).rest()
                    == "-BUSY limits.connections: all 3 are in use; retry later\r\n")
            let admin = try await enter(daemon, as: TestDaemon.admin)
            #expect(
                try await daemon.connect(as: TestDaemon.admin).rest()
                    == "-BUSY limits.connections: all 4 are in use; retry later\r\n")
            #expect(daemon.registry.statistics.refused == 3)
            // A freed place is used again.
            try await first.close()
            try await eventually { daemon.registry.statistics.connections == 3 }
            // The admin uses the reserve, so the limit of others is unchanged.
            try await admin.close()
            try await eventually { daemon.registry.statistics.connections == 2 }
            _ = try await enter(daemon, as: peer(1000))
            for client in [second, third] { #expect(try await client.call("PING") == .simpleString("PONG")) }
        }
    }

    @Test func `F80: at the limit, the evicted connection gets the reason and is closed`()
        async throws
    {
        try await TestDaemon.run {
            $0.limits.connections = 5
            $0.limits.adminConnections = 1
        } _: { daemon in
            var clients: [TestClient] = []
            for _ in 0..<4 { clients.append(try await enter(daemon, as: peer(1000))) }
            #expect(try await clients[0].call("PING") == .simpleString("PONG"))
            let other = try await enter(daemon, as: peer(1001))
            #expect(
                try await clients[1].rest()
                    == "-BUSY limits.connections reached; closed the longest idle connection of account 1000, "
                    + "which has the most\r\n")
            for client in [clients[0], clients[2], clients[3], other] {
                #expect(try await client.call("PING") == .simpleString("PONG"))
            }
            #expect(daemon.registry.statistics.connections == 4)
        }
    }

    @Test func `F80: an evicted connection gets BUSY for each missing element of an array`() async throws {
        try await TestDaemon.run {
            $0.limits.connections = 3
            $0.limits.adminConnections = 1
            $0.limits.queuePerAccount = 2
            $0.limits.farewell = 600_000
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("MGET", "alice", "4", "a", "b", "c", "d")
            await daemon.fetcher.started(2)
            _ = try await enter(daemon, as: peer(1000))
            _ = try await enter(daemon, as: peer(1001))
            for profile in ["a", "b"] { daemon.finish(profile) }
            let reply = try await client.reply()
            #expect(reply.elements?.prefix(2) == [image("a"), image("b")])
            #expect(reply.elements?.suffix(2).map(\.code) == ["BUSY", "BUSY"])
            #expect(try await client.rest() == "")
            #expect(daemon.fetcher.downloads.count == 2)
        }
    }

    @Test func `F80, F15: an evicted connection closes even if its peer reads nothing`() async throws {
        let isAnswered = NIOLockedValueBox(false)
        try await TestDaemon.run {
            $0.limits.connections = 3
            $0.limits.adminConnections = 1
            $0.limits.stall = 600_000
            $0.info = ServerInfo([
                "it": { _, _ in
                    isAnswered.withLockedValue { $0 = true }
                    return [("filler", String(repeating: "x", count: 2 << 20))]
                }
            ])
        } _: { daemon in
            let stuck = try await daemon.connect(as: peer(1000), reads: false)
            try await stuck.send("INFO")
            try await eventually { isAnswered.withLockedValue { $0 } }
            _ = try await enter(daemon, as: peer(1000))
            _ = try await enter(daemon, as: peer(1001))
            try await stuck.closed()
        }
    }

    @Test func `a refused client that has sent a request reads the refusal`() async throws {
        try await TestDaemon.run {
            $0.limits.connectionsPerAccount = 1
        } _: { daemon in
            _ = try await enter(daemon, as: peer(1000))
            for _ in 0..<20 {
                let client = try await daemon.connect(as: peer(1000))
                client.sendWithoutWaiting(TestClient.request(["HELLO", "3"]))
                #expect(try await client.rest().hasPrefix("-BUSY "))
            }
            #expect(daemon.registry.statistics.connections == 1)
        }
    }

    @Test
    func
        `I8, F15: connections over the limit get the reason and are closed at once`()
        async throws
    {
        try await TestDaemon.run {
            $0.limits.connectionsPerAccount = 1
        } _: { daemon in
            _ = try await enter(daemon, as: peer(1000))
            var clients: [TestClient] = []
            for _ in 0..<(3 * DaemonServer.maximumRefused) {
                clients.append(try await daemon.connect(as: peer(1000)))
            }
            for client in clients {
                #expect(try await client.rest().hasPrefix("-BUSY "))
            }
            #expect(daemon.registry.statistics.connections == 1)
            // All of their places are freed.
            try await eventually {
                let isFree = daemon.registry.linger(limit: 1)
                if isFree { daemon.registry.endLingering() }
                return isFree
            }
        }
    }

    @Test func `queue-per-uid: the full queue of a uid is BUSY on its other connections only`()
        async throws
    {
        try await TestDaemon.run {
            $0.limits.queuePerAccount = 2
        } _: { daemon in
            let first = try await daemon.connectWithAlice()
            try await first.pipeline([["GET", "alice", "a"], ["GET", "alice", "b"], ["GET", "alice", "c"]])
            await daemon.fetcher.started(2)
            let second = try await daemon.connect()
            let busy = Value.error(
                code: "BUSY",
                message: "limits.queue-per-uid: 2 GETs of this account are waiting; retry later")
            #expect(try await second.call("GET", "alice", "d") == busy)
            #expect(try await second.call("MGET", "alice", "2", "d", "e") == .array([busy, busy]))
            let other = try await daemon.connectWithAlice(as: peer(1001))
            #expect(try await other.call("GET", "alice", "a", "CACHED") == .null)
            // Never for commands that end a cache.
            #expect(try await second.call("LOGOUT", "alice")["cancelled"] == .integer(2))
            #expect(try await first.replies(2).allSatisfy { $0.code == "CANCELLED" })
            #expect(["CANCELLED", "NOLOGIN"].contains(try await first.reply().code))
        }
    }

    @Test func `F19: a peer that closes frees its places in the queue`() async throws {
        try await TestDaemon.run {
            $0.limits.queuePerAccount = 1
        } _: { daemon in
            let second = try await daemon.connectWithAlice()
            let first = try await daemon.connect()
            try await first.send("GET", "alice", "a")
            await daemon.fetcher.started(1)
            #expect(try await second.call("GET", "alice", "b").code == "BUSY")
            try await first.close()
            try await eventually { daemon.registry.statistics.connections == 1 }
            #expect(try await second.call("GET", "alice", "b", "CACHED") == .null)
        }
    }
}
