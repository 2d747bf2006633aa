import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Lookups that answer from the page cache on the event loop.
@Suite(.timeLimit(.minutes(5))) struct DiskLookupTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    private let daemon = Daemon(FakeWorld(memory: 0))
    private let threads = ThreadPool(threads: 2)

    /// Alice's cache with an image on disk that is not in memory.
    private func stored() async throws -> UserCache {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "old")
        daemon.store.isInPageCache = true
        return try await daemon.sessions.cache(.alice)
    }

    private func describe(_ served: ServedImage?) -> String? { served.map { CoordinatorBench.describe(.success($0)) } }

    @Test func `an image in the page cache is returned at once`() async throws {
        let cache = try await stored()
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "old from disk")
        daemon.store.isInPageCache = false
        #expect(cache.lookUpOnDisk(Self.query).image == nil)
    }

    @Test func `an image that was found is added to the memory tier`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "old")
        let again = daemon.restarted()
        again.store.isInPageCache = true
        let cache = try await again.sessions.cache(.alice)
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "old from disk")
        #expect(describe(cache.hit(Self.imageKey)) == "old from memory")
    }

    @Test func `a stale image and one from another URL are not returned`() async throws {
        let cache = try await stored()
        let other = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        #expect(cache.lookUpOnDisk(ImageQuery(imageKey: Self.imageKey, named: other)).image == nil)
        try cache.put(Self.imageKey, SampleImage.png("brief"), timeToLive: 60)
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "brief from disk")
        daemon.world.time.now += 60
        #expect(cache.lookUpOnDisk(Self.query).image == nil)
    }

    @Test
    func
        `while a 404 is remembered, its image is not looked up on disk`()
        async throws
    {
        let cache = try await stored()
        let now = daemon.world.time.now
        func remember(_ imageKey: ImageKey, url: String) {
            cache.state.withLockedValue {
                $0.coordinator.negativeCache.missing(
                    imageKey, url: url, until: now + 300, leavesEmpty: true, now: now)
            }
        }
        remember(ImageKey(profile: OpaqueID("bob"), size: 64), url: "https://origin.test/a")
        remember(ImageKey(profile: OpaqueID("carol")), url: "https://origin.test/a")
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "old from disk")
        remember(Self.imageKey, url: "https://other.test/x")
        #expect(cache.lookUpOnDisk(Self.query).image == nil)
        daemon.world.time.now += 300
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "old from disk")
    }

    @Test func `I8: the number of remembered 404s per profile is limited, so that they can be scanned`() {
        var negativeCache = NegativeCache(limit: 100, memory: MemoryBudget().lease(for: 1000))
        func imageKey(_ size: UInt16) -> ImageKey { ImageKey(profile: OpaqueID("bob"), size: size) }
        for size in 1...100 as ClosedRange<UInt16> {
            negativeCache.missing(
                imageKey(size), url: "https://origin.test/\(size)", until: 300, leavesEmpty: true, now: 0)
        }
        #expect((1...100).filter { negativeCache.hasMissing(imageKey($0), at: 1) } == Array(37...100))
        #expect(!negativeCache.hasMissing(Self.imageKey, at: 1))
        negativeCache.forget(profile: OpaqueID("bob"))
        #expect(!(1...100).contains { negativeCache.hasMissing(imageKey($0), at: 1) })
    }

    /// Runs `event` between the lookup on disk and its result.
    private func lookUp(_ cache: UserCache, during event: () throws -> Void) async throws -> ServedImage? {
        let gate = daemon.store.hold(.readCached)
        async let lookup = threads.run(for: 0) { cache.lookUpOnDisk(Self.query).image }
        await gate.reached()
        try event()
        daemon.store.release(.readCached)
        return try await lookup
    }

    @Test func `I3: an image that is purged during the lookup is not served`() async throws {
        let cache = try await stored()
        let served = try await lookUp(cache) { _ = try cache.purge([OpaqueID("bob")]) }
        #expect(served == nil)
        #expect(cache.lookUpOnDisk(Self.query).image == nil && cache.hit(Self.imageKey) == nil)
    }

    @Test func `I7: an image that is replaced during the lookup is not served`() async throws {
        let cache = try await stored()
        let served = try await lookUp(cache) {
            try cache.put(Self.imageKey, SampleImage.png("new"), timeToLive: nil)
        }
        #expect(served == nil)
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "new from disk")
    }

    private static let absent = ImageQuery(imageKey: ImageKey(profile: OpaqueID("carol")))

    @Test func `after an unsuccessful lookup the origin is requested without a second lookup`() async throws {
        let cache = try await stored()
        let answers = Answers()
        cache.get(Self.absent, after: cache.lookUpOnDisk(Self.absent), resolve: answers.record)
        #expect(daemon.store.calls(.read) == 0)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(answers.outcomes == ["one from origin"])
        let cached = ImageQuery(imageKey: ImageKey(profile: OpaqueID("dora")), download: .never)
        cache.get(cached, after: cache.lookUpOnDisk(cached), resolve: answers.record)
        #expect(answers.outcomes.last == "null" && daemon.store.calls(.read) == 0)
    }

    @Test func `I7: an image that is PUT after the lookup is found, without a download`() async throws {
        let cache = try await stored()
        let lookup = cache.lookUpOnDisk(Self.absent)
        try cache.put(Self.absent.imageKey, SampleImage.png("new"), timeToLive: nil)
        let answers = Answers()
        cache.get(Self.absent, after: lookup, resolve: answers.record)
        #expect(answers.outcomes == ["new from disk"] && daemon.fetcher.downloads.isEmpty)
    }

    @Test func `I7: an image that is downloaded after the lookup is found`() async throws {
        let cache = try await stored()
        let lookup = cache.lookUpOnDisk(Self.absent)
        cache.get(Self.absent) { _ in }
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        let answers = Answers()
        cache.get(Self.absent, after: lookup, resolve: answers.record)
        #expect(answers.outcomes == ["one from disk"] && daemon.fetcher.downloads.count == 1)
    }

    @Test func `I3: a logout waits for a running lookup, whose image is not served`() async throws {
        let cache = try await stored()
        let gate = daemon.store.hold(.readCached)
        async let lookup = threads.run(for: 0) { cache.lookUpOnDisk(Self.query).image }
        await gate.reached()
        async let closed = threads.run(for: 0) { cache.close() }
        // The cache is closed although a lookup is running.
        while cache.state.withLockedValue({ $0.isOpen }) { try await yieldTask() }
        #expect(!daemon.world.log.events.contains("wipe"))
        daemon.store.release(.readCached)
        let served = try await lookup
        #expect(served == nil)
        _ = try await closed
        #expect(daemon.world.log.events.contains("wipe"))
    }

    @Test func `an image key that is being written is not looked up`() async throws {
        let cache = try await stored()
        let gate = daemon.store.hold(.appear)
        async let put: Void = threads.run(for: 0) {
            try cache.put(Self.imageKey, SampleImage.png("new"), timeToLive: nil)
        }
        await gate.reached()
        #expect(cache.lookUpOnDisk(Self.query).image == nil)
        daemon.store.release(.appear)
        try await put
        #expect(describe(cache.lookUpOnDisk(Self.query).image) == "new from disk")
    }
}
