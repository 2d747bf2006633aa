import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct CacheEndingTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    private func cache(_ world: FakeWorld, token: Secret? = nil) throws -> UserCache {
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        return UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: token),
            services: world.services)
    }

    @Test func `F40: a closed cache has answered its waiters, stopped its downloads, wiped its keys and holds nothing`()
        throws
    {
        let world = FakeWorld()
        let cache = try cache(world, token: Secret([1]))
        try cache.put(ImageKey(profile: OpaqueID("eve")), SampleImage.png("eve"), timeToLive: nil)
        let answers = Answers()
        cache.get(Self.query, resolve: answers.take)
        _ = world.log.take()
        #expect(cache.close().cancelled == 1)
        #expect(answers.told == ["cancelled"])
        #expect(world.log.events == ["cancel https://origin.test/alice/bob/128", "close", "wipe"])
        #expect(cache.hit(ImageKey(profile: OpaqueID("eve"))) == nil)
        #expect(world.services.memory.statistics.images == 0)
        #expect(cache.account.token == nil)
        // Idempotent.
        #expect(cache.close().cancelled == 0)
    }

    @Test(arguments: [false, true])
    func
        `I11: a log-out wipes what is in memory before it goes on; a purge leaves it to be wiped behind, yielding`(
            isPurge: Bool
        ) throws
    {
        let steps = NIOLockedValueBox(0)
        let world = FakeWorld(yield: { steps.withLockedValue { $0 += 1 } })
        let cache = try cache(world)
        weak var entry: MemoryEntry?
        for number in 0..<40 {
            let imageKey = ImageKey(profile: OpaqueID("\(number)"))
            try cache.put(imageKey, SampleImage.png("mine"), timeToLive: nil)
            entry = cache.state.withLockedValue { $0.memory[imageKey] }
        }
        let closing = cache.close(wipesBehind: isPurge)
        #expect(cache.hit(ImageKey(profile: OpaqueID("39"))) == nil)
        #expect((entry != nil) == isPurge)
        #expect(steps.withLockedValue { $0 } == 0)
        closing.wipe?()
        #expect(entry == nil)
        #expect(world.services.memory.statistics.images == 0)
        #expect((steps.withLockedValue { $0 } > 0) == isPurge)
    }

    @Test func `F40: a download that ends after the log-out reaches nobody and stores nothing`() throws {
        let world = FakeWorld()
        let cache = try cache(world)
        cache.get(Self.query) { _ in }
        _ = cache.close()
        world.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(world.store.held(by: .alice) == [])
        #expect(world.services.memory.statistics.images == 0)
        #expect(world.store.calls(.seal) == 0)
    }

    @Test func `F40: an image that has arrived but is not yet judged or written when the log-out comes is not stored`()
        throws
    {
        let disk = GatedPool()
        let world = FakeWorld(disk: disk)
        let cache = try cache(world)
        let answers = Answers()
        cache.get(Self.query, resolve: answers.take)
        disk.runAll()
        // One that is large is judged elsewhere.
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", size: 64 << 10 | 1))
        _ = cache.close()
        disk.runAll()
        #expect(answers.told == ["cancelled"])
        #expect(world.store.held(by: .alice) == [])

        let second = FakeWorld(disk: disk)
        let written = try self.cache(second)
        written.get(Self.query, resolve: answers.take)
        disk.runAll()
        second.fetcher.downloads[0].end(SampleImage.downloaded("two"))
        #expect(answers.told.last == "two from origin")
        _ = written.close()
        disk.runAll()
        #expect(second.store.held(by: .alice) == [])
        // I11: it was not even there any more to be written.
        #expect(second.store.calls(.seal) == 0)
    }

    @Test func `I3: a look on disk that ends after the log-out serves nothing and fills no memory`() throws {
        let disk = GatedPool()
        let world = FakeWorld(disk: disk, memory: 1 << 20)
        let cache = try cache(world)
        try cache.put(Self.imageKey, SampleImage.png("old"), timeToLive: nil)
        world.services.memory.remove(cache.state.withLockedValue { Array($0.memory.entries.values) })
        cache.state.withLockedValue { $0.memory = MemoryTable() }
        let answers = Answers()
        cache.get(Self.query, resolve: answers.take)
        _ = cache.close()
        disk.runAll()
        #expect(answers.told == ["cancelled"])
        #expect(world.services.memory.statistics.images == 0)
    }

    @Test func `a request to a closed cache is CANCELLED, and asks neither disk nor origin`() async throws {
        let world = FakeWorld()
        let cache = try cache(world)
        _ = cache.close()
        #expect(await cache.outcome(Self.query) == "cancelled")
        #expect(world.store.calls(.read) == 0)
        #expect(world.fetcher.downloads.isEmpty)
    }

    @Test(arguments: [false, true])
    func `I3: an answer on its way when an invalidation comes has arrived before the invalidation is done`(
        isPurge: Bool
    )
        async throws
    {
        let world = FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool())
        let cache = try cache(world)
        let gate = Gate()
        cache.get(Self.query) { outcome in
            gate.pass()
            world.log.record("answered")
        }
        await world.fetcher.started(1)
        // On a thread that may stand at the gate.
        world.services.disk.submit(for: 0) { world.fetcher.downloads[0].end(SampleImage.downloaded("one")) }
        await gate.reached()
        let before = cache.state.withLockedValue { $0.deliveries }
        async let ended: Result<Void, any Error> = world.services.lifecycle.attempt {
            if isPurge { _ = try cache.purge([OpaqueID("bob")]) } else { _ = cache.close() }
            world.log.record("ended")
        }
        // Whatever fails, nobody is left standing at the gate.
        defer { gate.open() }
        while !before.isClosed {
            try await turn()
        }
        #expect(!world.log.events.contains("ended"))
        gate.open()
        try (await ended).get()
        let events = world.log.events.filter { ["answered", "wipe", "ended"].contains($0) }
        #expect(events == (isPurge ? ["answered", "ended"] : ["answered", "wipe", "ended"]))
    }

    @Test func `F40: a purge of profiles ends their downloads, removes them in every size, and leaves the others`()
        async throws
    {
        let world = FakeWorld()
        let cache = try cache(world)
        for (profile, size) in [("bob", 0), ("bob", 64), ("carol", 0)] as [(String, UInt16)] {
            try cache.put(
                ImageKey(profile: OpaqueID(profile), size: size), SampleImage.png("\(profile) \(size)", size: 100),
                timeToLive: nil)
        }
        let answers = Answers()
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"), size: 32)), resolve: answers.take)
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("dave"))), resolve: answers.take)
        let removed = try cache.purge([OpaqueID("bob"), OpaqueID("nobody")])
        #expect(removed.usage == Usage(images: 2, bytes: 200))
        #expect(removed.cancelled == 1)
        #expect(answers.told == ["cancelled"])
        #expect(world.store.held(by: .alice) == ["carol 0"])
        #expect(cache.hit(ImageKey(profile: OpaqueID("bob"), size: 64)) == nil)
        #expect(cache.hit(ImageKey(profile: OpaqueID("carol"))) != nil)
        #expect(world.fetcher.downloads.map(\.isCancelled) == [true, false])
    }

    @Test func `a purge of a profile answers who waits for it before the disk has done anything`() async throws {
        let world = FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool())
        let cache = try cache(world)
        async let answer = cache.outcome(Self.query)
        await world.fetcher.started(1)
        let gate = world.store.hold(.remove)
        async let purged: Result<Void, any Error> = world.services.lifecycle.attempt {
            _ = try cache.purge([Self.imageKey.profile])
        }
        defer { gate.open() }
        #expect(await answer == "cancelled")
        #expect(world.fetcher.downloads.map(\.isCancelled) == [true])
        gate.open()
        try (await purged).get()
    }

    @Test func `F41: a purge of profiles happens once, for all: what comes while the entries go stays`() async throws {
        let world = FakeWorld(disk: ThreadPool(), lifecycle: ThreadPool())
        let cache = try cache(world)
        try cache.put(Self.imageKey, SampleImage.png("old"), timeToLive: nil)
        let gate = world.store.hold(.remove)
        async let purged: Result<Void, any Error> = world.services.lifecycle.attempt {
            _ = try cache.purge([Self.imageKey.profile])
        }
        defer { gate.open() }
        await gate.reached()
        // It is on disk still, and nobody sees it any more.
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(cache.lookAtDisk(Self.query).image == nil)
        async let answer = cache.outcome(Self.query)
        await world.fetcher.started(1)
        world.fetcher.downloads[0].end(SampleImage.downloaded("new"))
        #expect(await answer == "new from origin")
        gate.open()
        try (await purged).get()
        #expect(await cache.outcome(Self.query).hasPrefix("new from"))
        await world.services.writes.finish()
        #expect(world.store.held(by: .alice) == ["new"])
    }

    @Test func `a cache that has ended is kept alive by nobody: no timer, no entry in memory, no waiter`() throws {
        let world = FakeWorld()
        weak var ended: UserCache?
        do {
            let cache = try cache(world)
            ended = cache
            try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
            let waiter = cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) { _ in }
            cache.leave(waiter)
            #expect(world.time.timers == 1)
            _ = cache.close()
        }
        // The fetcher lets go of a download when it has stopped it.
        world.fetcher.forgetAll()
        #expect(ended == nil)
    }
}
