import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import DaemonServer

@Suite struct PeerRegistryTests {
    @Test func `I8: so many refused connections may linger and no more, until one has left`() {
        let registry = PeerRegistry()
        #expect(registry.linger(limit: 2))
        #expect(registry.linger(limit: 2))
        #expect(!registry.linger(limit: 2))
        registry.endLingering()
        #expect(registry.linger(limit: 2))
        #expect(!registry.linger(limit: 2))
    }

    private let somebody = Peer(uid: 1000, pid: 1, isAdmin: false)

    private func enter(
        _ registry: PeerRegistry, as peer: Peer? = nil, drain: @escaping @Sendable () -> Void = {},
        close: @escaping @Sendable () -> Void = {}
    ) throws(PeerRegistry.Refusal) -> PeerRegistry.Place {
        try registry.enter(peer ?? somebody, limits: ServerLimits(), drain: drain, close: close)
    }

    @Test func `connections of one uid share one count of waiting requests, those of another do not`() throws {
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

    @Test func `to leave twice, or without having been there, changes nothing`() throws {
        let registry = PeerRegistry()
        let first = try enter(registry)
        _ = try enter(registry)
        registry.leave(first.id)
        registry.leave(first.id)
        registry.leave(99)
        #expect(registry.statistics.connections == 1)
    }

    @Test func `draining tells everybody, lets nobody in, and is over when the last is gone`() throws {
        let registry = PeerRegistry()
        let told = NIOLockedValueBox(0)
        let drained = NIOLockedValueBox(0)
        let places = try (0..<3).map { _ in try enter(registry, drain: { told.withLockedValue { $0 += 1 } }) }
        registry.drain { drained.withLockedValue { $0 += 1 } }
        #expect(told.withLockedValue { $0 } == 3)
        #expect(throws: PeerRegistry.Refusal.draining) { _ = try enter(registry, as: TestDaemon.admin) }
        for place in places {
            #expect(drained.withLockedValue { $0 } == 0)
            registry.leave(place.id)
        }
        #expect(drained.withLockedValue { $0 } == 1)
        registry.drain { drained.withLockedValue { $0 += 1 } }
        #expect(drained.withLockedValue { $0 } == 2)
    }

    @Test func `closing reaches everybody who is there`() throws {
        let registry = PeerRegistry()
        let closed = NIOLockedValueBox<[Int]>([])
        let places = try (0..<3).map { number in
            try enter(registry, close: { closed.withLockedValue { $0.append(number) } })
        }
        registry.leave(places[1].id)
        registry.closeAll()
        #expect(closed.withLockedValue { $0.sorted() } == [0, 2])
    }

    @Test func `a load lets in as many as the limit says`() {
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
