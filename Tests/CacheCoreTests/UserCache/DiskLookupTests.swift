import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Answers from what the page cache holds, given without leaving the event loop.
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

    private func told(_ served: ServedImage?) -> String? { served.map { CoordinatorBench.tell(.success($0)) } }

    @Test func `what the page cache holds is answered at once`() async throws {
        let cache = try await stored()
        #expect(told(cache.lookAtDisk(Self.query).image) == "old from disk")
        daemon.store.isInPageCache = false
        #expect(cache.lookAtDisk(Self.query).image == nil)
    }

    @Test func `what was found comes back to memory, where there is one`() async throws {
        try await daemon.logIn(.alice)
        try await daemon.put(.alice, "bob", "old")
        let again = daemon.restarted()
        again.store.isInPageCache = true
        let cache = try await again.sessions.cache(.alice)
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(told(cache.lookAtDisk(Self.query).image) == "old from disk")
        #expect(told(cache.hit(Self.imageKey)) == "old from memory")
    }

    @Test func `a stale image and one from another URL are not answers`() async throws {
        let cache = try await stored()
        let other = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        #expect(cache.lookAtDisk(ImageQuery(imageKey: Self.imageKey, named: other)).image == nil)
        try cache.put(Self.imageKey, SampleImage.png("brief"), timeToLive: 60)
        #expect(told(cache.lookAtDisk(Self.query).image) == "brief from disk")
        daemon.world.time.now += 60
        #expect(cache.lookAtDisk(Self.query).image == nil)
    }

    @Test
    func
        `what the origin said it does not have is not looked for on disk while it is believed`()
        async throws
    {
        let cache = try await stored()
        let now = daemon.world.time.now
        func remember(_ imageKey: ImageKey, url: String) {
            cache.state.withLockedValue {
                $0.coordinator.negativeCache.missing(
                    imageKey, url: url, until: now + 300, leavesKeyAbsent: true, now: now)
            }
        }
        remember(ImageKey(profile: OpaqueID("bob"), size: 64), url: "https://origin.test/a")
        remember(ImageKey(profile: OpaqueID("carol")), url: "https://origin.test/a")
        #expect(told(cache.lookAtDisk(Self.query).image) == "old from disk")
        remember(Self.imageKey, url: "https://other.test/x")
        #expect(cache.lookAtDisk(Self.query).image == nil)
        daemon.world.time.now += 300
        #expect(told(cache.lookAtDisk(Self.query).image) == "old from disk")
    }

    @Test func `I8: so many missing images of a profile are known that they can be looked through, and no more`() {
        var negativeCache = NegativeCache(limit: 100, memory: MemoryBudget().lease(for: 1000))
        func imageKey(_ size: UInt16) -> ImageKey { ImageKey(profile: OpaqueID("bob"), size: size) }
        for size in 1...100 as ClosedRange<UInt16> {
            negativeCache.missing(
                imageKey(size), url: "https://origin.test/\(size)", until: 300, leavesKeyAbsent: true, now: 0)
        }
        #expect((1...100).filter { negativeCache.hasMissing(imageKey($0), at: 1) } == Array(37...100))
        #expect(!negativeCache.hasMissing(Self.imageKey, at: 1))
        negativeCache.forget(profile: OpaqueID("bob"))
        #expect(!(1...100).contains { negativeCache.hasMissing(imageKey($0), at: 1) })
    }

    /// Has something happen between the moment the image was seen on disk and the answer.
    private func overtaken(_ cache: UserCache, by event: () throws -> Void) async throws -> ServedImage? {
        let gate = daemon.store.hold(.readCached)
        async let lookup = threads.run(for: 0) { cache.lookAtDisk(Self.query).image }
        await gate.reached()
        try event()
        daemon.store.release(.readCached)
        return try await lookup
    }

    @Test func `I3: an image purged while it was being looked at is not served`() async throws {
        let cache = try await stored()
        let served = try await overtaken(cache) { _ = try cache.purge([OpaqueID("bob")]) }
        #expect(served == nil)
        #expect(cache.lookAtDisk(Self.query).image == nil && cache.hit(Self.imageKey) == nil)
    }

    @Test func `I7: an image replaced while it was being looked at is not served`() async throws {
        let cache = try await stored()
        let served = try await overtaken(cache) {
            try cache.put(Self.imageKey, SampleImage.png("new"), timeToLive: nil)
        }
        #expect(served == nil)
        #expect(told(cache.lookAtDisk(Self.query).image) == "new from disk")
    }

    private static let absent = ImageQuery(imageKey: ImageKey(profile: OpaqueID("carol")))

    @Test func `what is known not to be on disk is asked of the origin without another look`() async throws {
        let cache = try await stored()
        let answers = Answers()
        cache.get(Self.absent, after: cache.lookAtDisk(Self.absent), resolve: answers.take)
        #expect(daemon.store.calls(.read) == 0)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(answers.told == ["one from origin"])
        let cached = ImageQuery(imageKey: ImageKey(profile: OpaqueID("dora")), download: .never)
        cache.get(cached, after: cache.lookAtDisk(cached), resolve: answers.take)
        #expect(answers.told.last == "null" && daemon.store.calls(.read) == 0)
    }

    @Test func `I7: what was put since the look is found, and nothing is asked of the origin`() async throws {
        let cache = try await stored()
        let lookup = cache.lookAtDisk(Self.absent)
        try cache.put(Self.absent.imageKey, SampleImage.png("new"), timeToLive: nil)
        let answers = Answers()
        cache.get(Self.absent, after: lookup, resolve: answers.take)
        #expect(answers.told == ["new from disk"] && daemon.fetcher.downloads.isEmpty)
    }

    @Test func `I7: what was downloaded since the look is found`() async throws {
        let cache = try await stored()
        let lookup = cache.lookAtDisk(Self.absent)
        cache.get(Self.absent) { _ in }
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        let answers = Answers()
        cache.get(Self.absent, after: lookup, resolve: answers.take)
        #expect(answers.told == ["one from disk"] && daemon.fetcher.downloads.count == 1)
    }

    @Test func `I3: a log-out waits for who is looking, and what was seen is not served`() async throws {
        let cache = try await stored()
        let gate = daemon.store.hold(.readCached)
        async let lookup = threads.run(for: 0) { cache.lookAtDisk(Self.query).image }
        await gate.reached()
        async let closed = threads.run(for: 0) { cache.close() }
        // Nothing is open from here on, though somebody is still inside.
        while cache.state.withLockedValue({ $0.isOpen }) { try await turn() }
        #expect(!daemon.world.log.events.contains("wipe"))
        daemon.store.release(.readCached)
        let served = try await lookup
        #expect(served == nil)
        _ = try await closed
        #expect(daemon.world.log.events.contains("wipe"))
    }

    @Test func `a imageKey that somebody is writing is not looked at`() async throws {
        let cache = try await stored()
        let gate = daemon.store.hold(.appear)
        async let put: Void = threads.run(for: 0) {
            try cache.put(Self.imageKey, SampleImage.png("new"), timeToLive: nil)
        }
        await gate.reached()
        #expect(cache.lookAtDisk(Self.query).image == nil)
        daemon.store.release(.appear)
        try await put
        #expect(told(cache.lookAtDisk(Self.query).image) == "new from disk")
    }
}
