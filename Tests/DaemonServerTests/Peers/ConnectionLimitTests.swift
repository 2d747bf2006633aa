import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// How many may be connected, and how many requests of theirs may wait (I8).
@Suite(.timeLimit(.minutes(5))) struct ConnectionLimitTests {
    private func peer(_ uid: UInt32) -> Peer { Peer(uid: uid, pid: 1, isAdmin: false) }

    /// A client that is let in.
    private func enter(_ daemon: TestDaemon, as peer: Peer) async throws -> TestClient {
        let client = try await daemon.connect(as: peer)
        #expect(try await client.call("PING") == .simpleString("PONG"))
        return client
    }

    @Test func `I8, F53: beyond its share a uid is told BUSY, and the last places are the admins'`() async throws {
        try await TestDaemon.run {
            $0.limits.connections = 4
            $0.limits.adminConnections = 1
            $0.limits.connectionsPerUID = 2
        } _: { daemon in
            let first = try await enter(daemon, as: peer(1000))
            let second = try await enter(daemon, as: peer(1000))
            #expect(
                try await daemon.connect(as: peer(1000)).rest()
                    == "-BUSY uid 1000 has 2 connections (limit connections-per-uid): close one, or try again\r\n")
            let third = try await enter(daemon, as: peer(1001))
            #expect(
                try await daemon.connect(as: peer(1001)).rest()
                    == "-BUSY all 3 connections are taken (limit connections): try again\r\n")
            let admin = try await enter(daemon, as: TestDaemon.admin)
            #expect(
                try await daemon.connect(as: TestDaemon.admin).rest()
                    == "-BUSY all 4 connections are taken (limit connections): try again\r\n")
            #expect(daemon.registry.statistics.refused == 3)
            // A place that comes free is taken again.
            try await first.close()
            try await eventually { daemon.registry.statistics.connections == 3 }
            // With the admin in the reserve, it is the others' places that are counted down to it.
            try await admin.close()
            try await eventually { daemon.registry.statistics.connections == 2 }
            _ = try await enter(daemon, as: peer(1000))
            for client in [second, third] { #expect(try await client.call("PING") == .simpleString("PONG")) }
        }
    }

    @Test func `F80: when all places are taken, the idlest connection of who has most is told why and closed`()
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
                    == "-BUSY all connections are taken (limit connections), and uid 1000 has most of them: "
                    + "this one, idle "
                    + "longest of those, is closed\r\n")
            for client in [clients[0], clients[2], clients[3], other] {
                #expect(try await client.call("PING") == .simpleString("PONG"))
            }
            #expect(daemon.registry.statistics.connections == 4)
        }
    }

    @Test func `F80: of an array that is begun, who gives way is told BUSY for each element that is not`() async throws
    {
        try await TestDaemon.run {
            $0.limits.connections = 3
            $0.limits.adminConnections = 1
            $0.limits.queuePerUID = 2
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

    @Test func `F80, F15: who gives way closes, also when its peer reads nothing`() async throws {
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

    @Test func `a refused client that has already asked reads the refusal`() async throws {
        try await TestDaemon.run {
            $0.limits.connectionsPerUID = 1
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
        `I8, F15: refused connections that linger are counted; beyond their limit they are told why and closed`()
        async throws
    {
        try await TestDaemon.run {
            $0.limits.connectionsPerUID = 1
        } _: { daemon in
            _ = try await enter(daemon, as: peer(1000))
            var clients: [TestClient] = []
            for _ in 0..<(3 * DaemonServer.refusedAtOnce) {
                clients.append(try await daemon.connect(as: peer(1000)))
            }
            for client in clients {
                #expect(try await client.rest().hasPrefix("-BUSY "))
            }
            #expect(daemon.registry.statistics.connections == 1)
            // And all of their places come free.
            try await eventually {
                let isFree = daemon.registry.linger(limit: 1)
                if isFree { daemon.registry.endLingering() }
                return isFree
            }
        }
    }

    @Test func `queue-per-uid: a uid whose queue is full is told BUSY on its other connections, others are not`()
        async throws
    {
        try await TestDaemon.run {
            $0.limits.queuePerUID = 2
        } _: { daemon in
            let first = try await daemon.connectWithAlice()
            try await first.pipeline([["GET", "alice", "a"], ["GET", "alice", "b"], ["GET", "alice", "c"]])
            await daemon.fetcher.started(2)
            let second = try await daemon.connect()
            let busy = Value.error(
                code: "BUSY",
                message: "2 requests of uid 1000 wait already (limit queue-per-uid): try again")
            #expect(try await second.call("GET", "alice", "d") == busy)
            #expect(try await second.call("MGET", "alice", "2", "d", "e") == .array([busy, busy]))
            let other = try await daemon.connectWithAlice(as: peer(1001))
            #expect(try await other.call("GET", "alice", "a", "CACHED") == .null)
            // Never for what ends a cache.
            #expect(try await second.call("LOGOUT", "alice")["cancelled"] == .integer(2))
            #expect(try await first.replies(2).allSatisfy { $0.code == "CANCELLED" })
            #expect(["CANCELLED", "NOLOGIN"].contains(try await first.reply().code))
        }
    }

    @Test func `F19: places in the queue come free when the peer that waited is gone`() async throws {
        try await TestDaemon.run {
            $0.limits.queuePerUID = 1
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
