import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

/// WARM: background downloads of a list of profiles.
@Suite(.timeLimit(.minutes(2))) struct WarmingTests {
    private static func imageKeys(_ names: String...) -> [ImageKey] { names.map { ImageKey(profile: OpaqueID($0)) } }

    private func end(_ daemon: Daemon, _ index: Int, _ label: String) {
        daemon.fetcher.downloads[index].end(SampleImage.downloaded(label))
    }

    @Test func `two downloads run at a time, and each end starts the next`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        #expect(try await cache.warm(Self.imageKeys("a", "b", "c", "d", "a")) == 4)
        await daemon.fetcher.started(2)
        // Queued and running downloads are not added again.
        #expect(try await cache.warm(Self.imageKeys("a", "c")) == 0)
        #expect(daemon.fetcher.downloads.count == 2)
        end(daemon, 0, "a")
        await daemon.fetcher.started(3)
        daemon.fetcher.downloads[1].end(.failed(.origin("no")))
        await daemon.fetcher.started(4)
        #expect(daemon.fetcher.downloads.map { $0.url.split(separator: "/")[3] } == ["a", "b", "c", "d"])
        end(daemon, 2, "c")
        end(daemon, 3, "d")
        #expect(await daemon.get(.alice, "a", cached: true).hasPrefix("a from"))
        // A failed image can be requested again; a fresh one is skipped.
        #expect(try await cache.warm(Self.imageKeys("a", "b")) == 1)
    }

    @Test func `a GET does not wait for queued downloads`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        #expect(try await cache.warm(Self.imageKeys("a", "b", "c")) == 3)
        await daemon.fetcher.started(2)
        async let requested = daemon.get(.alice, "z")
        await daemon.fetcher.started(3)
        end(daemon, 2, "z")
        #expect(await requested == "z from origin")
        #expect(daemon.fetcher.downloads.count == 3)
    }

    @Test func `WARM replaces an image that may be served stale`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        #expect(bench.get("warm", download: .renewed) == ["download \(CoordinatorBench.usual)"])
        #expect(bench.finishes(.image(.sample("new"), storable: true))?.first == "warm: new from origin, stale")
    }

    @Test func `I11: a logout cancels running downloads, and queued ones do not start`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        #expect(try await cache.warm(Self.imageKeys("a", "b", "c")) == 3)
        await daemon.fetcher.started(2)
        let receipt = try await daemon.logOut(.alice)
        #expect(receipt.cancelled == 2)
        await #expect(throws: CacheFailure.cancelled) { try await cache.warm(Self.imageKeys("d")) }
        try await daemon.logIn(.alice)
        #expect(daemon.fetcher.downloads.count == 2)
        #expect(daemon.world.services.budget.bytes < 10_000)
    }

    @Test func `I3: a profile that is purged while it is queued is not downloaded`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        let before = daemon.world.services.budget.bytes
        #expect(try await cache.warm(Self.imageKeys("a", "b", "c", "d")) == 4)
        await daemon.fetcher.started(2)
        _ = try await daemon.purge(.alice, "c")
        end(daemon, 0, "a")
        await daemon.fetcher.started(3)
        end(daemon, 1, "b")
        end(daemon, 2, "d")
        #expect(daemon.fetcher.downloads.map { $0.url.split(separator: "/")[3] } == ["a", "b", "d"])
        // The profile can be requested again, and its memory was released.
        #expect(try await cache.warm(Self.imageKeys("c")) == 1)
        await daemon.fetcher.started(4)
        end(daemon, 3, "c")
        #expect(await daemon.get(.alice, "c", cached: true).hasPrefix("c from"))
        #expect(daemon.world.services.budget.bytes <= before)
    }

    @Test func `I8: queued downloads are charged to the budget; BUSY if it is used up`() async throws {
        let daemon = Daemon(budget: MemoryBudget(limits: { .init(perAccount: 8_000, total: 8_000) }))
        try await daemon.logIn(.alice)
        let cache = try await daemon.sessions.cache(.alice)
        let imageKeys = (0..<100).map { ImageKey(profile: OpaqueID("\($0)")) }
        await #expect {
            try await cache.warm(imageKeys)
        } throws: { error in
            if case CacheFailure.busy? = error as? CacheFailure { true } else { false }
        }
        await daemon.fetcher.started(2)
        // Earlier entries remain queued and release their memory as they end.
        let held = daemon.world.services.budget.bytes
        end(daemon, 0, "0")
        await daemon.fetcher.started(3)
        #expect(daemon.world.services.budget.bytes < held)
    }
}
