import Glibc
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

@Suite struct PeerRegistryTests {
    @Test func `I8: lingering refused connections are limited`() {
        let registry = PeerRegistry()
        #expect(registry.linger(limit: 2))
        #expect(registry.linger(limit: 2))
        #expect(!registry.linger(limit: 2))
        registry.endLingering()
        #expect(registry.linger(limit: 2))
        #expect(!registry.linger(limit: 2))
    }

    @Test func `I8, F15: a refused connection frees its place when its peer closes`() async throws {
        let limit = DaemonServer.maximumRefused
        let registry = PeerRegistry()
        let loop = try SocketLoop()
        for _ in 1..<limit { #expect(registry.linger(limit: limit)) }
        var ends: [CInt] = [-1, -1]
        let kind = CInt(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        try #require(socketpair(AF_UNIX, kind, 0, &ends) == 0)
        let near = ends[0]
        try await loop.submit { registry.closeSoon(try loop.adopt(near), on: loop, after: 3_600_000) }.get()
        #expect(!registry.linger(limit: limit))
        close(ends[1])
        try await eventually { registry.linger(limit: limit) }
        try await loop.shutdownGracefully()
    }

    @Test func `a refused connection whose peer has closed takes no place`() async throws {
        let registry = PeerRegistry()
        let loop = try SocketLoop()
        var ends: [CInt] = [-1, -1]
        try #require(socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
        let near = ends[0]
        try await loop.submit {
            let stream = try loop.adopt(near)
            stream.close()
            registry.closeSoon(stream, on: loop, after: 100)
        }.get()
        #expect(registry.linger(limit: 1))
        close(ends[1])
        try await loop.shutdownGracefully()
    }

    private let defaultPeer = Peer(uid: 1000, pid: 1, isAdmin: false)

    private func enter(
        _ registry: PeerRegistry, as peer: Peer? = nil, limits: ServerLimits = ServerLimits(),
        drain: @escaping @Sendable () -> Void = {}, close: @escaping @Sendable () -> Void = {},
        evict: @escaping @Sendable (String) -> Void = { _ in }
    ) throws(CommandError) -> PeerRegistry.Registration {
        try registry.enter(peer ?? defaultPeer, limits: limits) { signal in
            switch signal {
            case .drain: drain()
            case .close: close()
            case .evict(let reason): evict(reason)
            }
        }
    }

    private func peer(_ uid: UInt32) -> Peer { Peer(uid: uid, pid: 1, isAdmin: false) }

    @Test func `connection ids grow per account`() throws {
        let registry = PeerRegistry { $0 >= 100_000 ? 1000 : $0 }
        #expect(try enter(registry).client.id == 1)
        for _ in 0..<10 { _ = try enter(registry, as: peer(1001)) }
        let second = try enter(registry)
        #expect(second.client.id == 2)
        registry.leave(second.id)
        #expect(try enter(registry).client.id == 3)
        // Subordinate uids belong to the account.
        #expect(try enter(registry, as: peer(100_007)).client.id == 4)
        #expect(try enter(registry, as: peer(1001)).client.id == 11)
    }

    @Test func `F80: all uids of an account share its connection limit`() throws {
        let registry = PeerRegistry { $0 >= 100_000 ? 1000 : $0 }
        let limits = ServerLimits(connections: 100, connectionsPerAccount: 3)
        let entered = try (0..<3).map { try enter(registry, as: peer(100_000 + $0), limits: limits) }
        let refusal = CommandError(
            .busy, "limits.connections-per-uid: account 1000 has 3 connections; close one, then retry")
        #expect(throws: refusal) { _ = try enter(registry, limits: limits) }
        #expect(throws: refusal) { _ = try enter(registry, as: peer(100_003), limits: limits) }
        _ = try enter(registry, as: peer(1001), limits: limits)
        registry.leave(entered[0].id)
        _ = try enter(registry, limits: limits)
    }

    @Test
    func `F80: at the limit, the longest idle connection of the account with the most is evicted`()
        throws
    {
        let registry = PeerRegistry()
        let limits = ServerLimits(connections: 8, connectionsPerAccount: 5, adminConnections: 1)
        let evicted = NIOLockedValueBox<[Int]>([])
        func fill(_ uid: UInt32, _ numbers: Range<Int>) throws -> [PeerRegistry.Registration] {
            try numbers.map { number in
                let evict = { @Sendable (reason: String) in
                    #expect(
                        reason.hasPrefix(
                            "limits.connections reached; closed the longest idle connection of account \(uid),"))
                    evicted.withLockedValue { $0.append(number) }
                }
                return try enter(registry, as: peer(uid), limits: limits, evict: evict)
            }
        }
        let many = try fill(1000, 0..<4)
        let few = try fill(1001, 4..<7)
        // The first connection has the latest input.
        for (time, registration) in [many[1], few[0], few[1], few[2], many[3], many[2], many[0]].enumerated() {
            registration.client.recordInput(at: .uptimeNanoseconds(UInt64(time + 1)))
        }
        _ = try enter(registry, as: peer(1002), limits: limits)
        #expect(evicted.withLockedValue { $0 } == [1])
        // Two accounts have three connections now; the new one would have two.
        _ = try enter(registry, as: peer(1002), limits: limits)
        #expect(evicted.withLockedValue { $0.count } == 2)
        #expect(registry.statistics.connections == 7)
        #expect(registry.statistics.evicted == 2)
        // With 3, 2 and 2 connections, an eviction would not be fairer.
        let full = CommandError(.busy, "limits.connections: all 7 are in use; retry later")
        #expect(throws: full) { _ = try enter(registry, as: peer(1002), limits: limits) }
        #expect(throws: full) { _ = try enter(registry, as: peer(1000), limits: limits) }
        // The close of an evicted connection frees no second place.
        registry.leave(many[1].id)
        #expect(registry.statistics.connections == 7)
    }

    @Test func `F80: connections of admins are not evicted`() throws {
        let registry = PeerRegistry()
        let limits = ServerLimits(connections: 6, adminConnections: 1)
        for _ in 0..<5 {
            _ = try enter(registry, as: TestDaemon.admin, limits: limits, evict: { _ in Issue.record("an admin's") })
        }
        #expect(throws: CommandError.self) { _ = try enter(registry, limits: limits) }
    }

    @Test func `connections of one uid share a count of waiting requests`() throws {
        let registry = PeerRegistry()
        let first = try enter(registry)
        let second = try enter(registry)
        let other = try enter(registry, as: Peer(uid: 1001, pid: 1, isAdmin: false))
        #expect(first.load === second.load)
        #expect(first.load !== other.load)
        registry.leave(first.id)
        let third = try enter(registry)
        #expect(third.load === second.load)
    }

    @Test func `leaving twice, or without entering, has no effect`() throws {
        let registry = PeerRegistry()
        let first = try enter(registry)
        _ = try enter(registry)
        registry.leave(first.id)
        registry.leave(first.id)
        registry.leave(99)
        #expect(registry.statistics.connections == 1)
    }

    @Test func `draining signals all connections, refuses new ones, and ends with the last`() throws {
        let registry = PeerRegistry()
        let drainSignals = NIOLockedValueBox(0)
        let drained = NIOLockedValueBox(0)
        let entered = try (0..<3).map { _ in
            try enter(registry, drain: { drainSignals.withLockedValue { $0 += 1 } })
        }
        registry.drain { drained.withLockedValue { $0 += 1 } }
        #expect(drainSignals.withLockedValue { $0 } == 3)
        #expect(throws: CommandError.stopping) { _ = try enter(registry, as: TestDaemon.admin) }
        for registration in entered {
            #expect(drained.withLockedValue { $0 } == 0)
            registry.leave(registration.id)
        }
        #expect(drained.withLockedValue { $0 } == 1)
        registry.drain { drained.withLockedValue { $0 += 1 } }
        #expect(drained.withLockedValue { $0 } == 2)
    }

    @Test func `closing reaches all connections`() throws {
        let registry = PeerRegistry()
        let closed = NIOLockedValueBox<[Int]>([])
        let entered = try (0..<3).map { number in
            try enter(registry, close: { closed.withLockedValue { $0.append(number) } })
        }
        registry.leave(entered[1].id)
        registry.closeAll()
        #expect(closed.withLockedValue { $0.sorted() } == [0, 2])
    }

    @Test func `a load admits requests up to the limit`() {
        let load = PeerLoad()
        #expect(load.enter(limit: 2))
        #expect(load.enter(limit: 2))
        #expect(!load.enter(limit: 2))
        #expect(!load.enter(limit: 2))
        load.leave()
        #expect(load.enter(limit: 2))
        #expect(!load.enter(limit: 2))
        #expect(!PeerLoad().enter(limit: 0))
    }
}
