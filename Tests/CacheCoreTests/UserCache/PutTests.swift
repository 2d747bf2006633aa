import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct PutTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private let world = FakeWorld()

    @Test func `I7: a PUT cancels the download and its waiters get the PUT's image`() throws {
        let cache = try world.cache()
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.imageKey), resolve: answers.record)
        cache.get(ImageQuery(imageKey: Self.imageKey), resolve: answers.record)
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        #expect(answers.outcomes == ["mine from put", "mine from put"])
        #expect(world.fetcher.downloads[0].isCancelled)
        world.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(world.store.held(by: .alice) == ["mine"])
        #expect(cache.hit(Self.imageKey)?.image.label == "mine")
    }

    @Test func `I7: waiters, the PUT and a logout do not wait for the eviction after the PUT`()
        async throws
    {
        let world = FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool())
        let cache = try world.cache()
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.imageKey), resolve: answers.record)
        while world.fetcher.downloads.isEmpty { try await yieldTask() }
        let gate = world.store.hold(.makeRoom)
        defer { gate.open() }
        try await world.services.loginPool.attempt {
            try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        }.get()
        #expect(answers.outcomes == ["mine from put"])
        await gate.reached()
        _ = await world.services.loginPool.value(for: 1000) { cache.close() }
        #expect(world.store.calls(.wipe) == 1)
    }

    @Test(arguments: [("empty", ByteBuffer()), ("text", ByteBuffer(string: "<html>"))])
    func `F38: bytes that are not an image are BADIMAGE and are not stored`(name: String, bytes: ByteBuffer)
        throws
    {
        let cache = try world.cache()
        let error = #expect(throws: CacheFailure.self) { try cache.put(Self.imageKey, bytes, timeToLive: nil) }
        #expect(error.map { $0.name.hasPrefix("badImage") } == true)
        #expect(world.store.calls(.seal) == 0)
    }

    @Test func `F38: dimensions over the limit are BADIMAGE, bytes over the limit TOOLARGE`() throws {
        let cache = try world.cache()
        world.settings.dimensionLimit = 100
        world.settings.imageLimit = 1_000
        let wide = #expect(throws: CacheFailure.self) {
            try cache.put(Self.imageKey, SampleImage.png("wide", width: 101), timeToLive: nil)
        }
        #expect(wide.map { $0.name.hasPrefix("badImage") } == true)
        let heavy = #expect(throws: CacheFailure.self) {
            try cache.put(Self.imageKey, SampleImage.png("heavy", size: 1_001), timeToLive: nil)
        }
        #expect(heavy == .tooLarge("the image has 1001 bytes; the limit is 1000"))
        try cache.put(Self.imageKey, SampleImage.png("right", size: 1_000, width: 100, height: 100), timeToLive: nil)
    }

    @Test func `F4: on a full disk a PUT gets NOSPACE, and the stored image remains`() throws {
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("old"), timeToLive: nil)
        world.store.fail(.appear, with: .noSpace("disk full"))
        #expect(throws: CacheFailure.noSpace("disk full")) {
            try cache.put(Self.imageKey, SampleImage.png("new"), timeToLive: nil)
        }
        #expect(cache.hit(Self.imageKey)?.image.label == "old")
        #expect(world.store.held(by: .alice) == ["old"])
    }

    @Test func `a PUT with a TTL is fresh for that time, then revalidated at the origin`() async throws {
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: 60)
        world.time.now += 59
        #expect(cache.hit(Self.imageKey) != nil)
        world.time.now += 1
        #expect(await cache.outcome(ImageQuery(imageKey: Self.imageKey)) == "mine from memory, stale")
        #expect(world.fetcher.downloads.count == 1)
    }

    @Test
    func `F56: a logout waits for a PUT that is being encrypted; the PUT is discarded`()
        async throws
    {
        let world = FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool())
        let cache = try world.cache()
        let gate = world.store.hold(.appear)
        async let put: Result<Void, any Error> = world.services.imagePool.attempt {
            try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        }
        await gate.reached()
        async let closed = world.services.loginPool.value(for: 1000) { cache.close() }
        defer { gate.open() }
        while world.store.calls(.close) == 0 {
            try await yieldTask()
        }
        #expect(world.store.calls(.wipe) == 0)
        gate.open()
        _ = await closed
        let outcome = await put
        #expect(throws: CacheFailure.cancelled) { try outcome.get() }
        #expect(world.store.held(by: .alice) == [])
        #expect(world.log.events.suffix(4) == ["seal", "appear", "close", "wipe"])
    }

    @Test func `F56: a PUT after the keys are wiped is CANCELLED`() throws {
        let cache = try world.cache()
        _ = cache.close()
        #expect(throws: CacheFailure.cancelled) {
            try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        }
        #expect(world.store.calls(.seal) == 0)
    }

    @Test func `I3: a PUT during which its profile is purged is CANCELLED and stores nothing`() async throws {
        let world = FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool())
        let cache = try world.cache()
        let gate = world.store.hold(.appear)
        async let put: Result<Void, any Error> = world.services.imagePool.attempt {
            try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        }
        await gate.reached()
        _ = try cache.purge([OpaqueID("bob")])
        world.store.release(.appear)
        let outcome = await put
        #expect(throws: CacheFailure.cancelled) { try outcome.get() }
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test func `F42: a PUT that begins after a purge of its profile is stored`() throws {
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("old"), timeToLive: nil)
        _ = try cache.purge([OpaqueID("bob")])
        try cache.put(Self.imageKey, SampleImage.png("new"), timeToLive: nil)
        #expect(world.store.held(by: .alice) == ["new"])
    }

    @Test func `a PUT that a later one overtakes before it writes succeeds and writes nothing`() throws {
        let cache = try world.cache()
        cache.state.withLockedValue { state in
            _ = state.coordinator.putBegan(Self.imageKey)
            _ = state.coordinator.putCommitted(Self.imageKey, sequence: .max, .sample("later", from: nil), now: 0)
        }
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        #expect(world.store.calls(.seal) == 0 && world.store.calls(.makeRoom) == 0)
        #expect(world.services.counters[.puts] == 1)
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test func `after two concurrent PUTs, memory and disk hold the later one`() async throws {
        let world = FakeWorld(imagePool: ThreadPool(threads: 3), loginPool: ThreadPool())
        let cache = try world.cache()
        let gate = world.store.hold(.appear)
        async let first: Result<Void, any Error> = world.services.imagePool.attempt {
            try cache.put(Self.imageKey, SampleImage.png("first"), timeToLive: nil)
        }
        await gate.reached(by: 1)
        async let second: Result<Void, any Error> = world.services.imagePool.attempt {
            try cache.put(Self.imageKey, SampleImage.png("second"), timeToLive: nil)
        }
        await gate.reached(by: 2)
        world.store.release(.appear)
        try (await first).get()
        try (await second).get()
        #expect(world.store.held(by: .alice) == ["second"])
        #expect(cache.hit(Self.imageKey)?.image.label == "second")
    }
}

extension BlockingPool {
    /// Runs blocking work and returns its outcome.
    func attempt(_ work: @escaping @Sendable () throws -> Void) async -> Result<Void, any Error> {
        await withCheckedContinuation { continuation in
            submit(for: 0) { continuation.resume(returning: Result(catching: work)) }
        }
    }
}
