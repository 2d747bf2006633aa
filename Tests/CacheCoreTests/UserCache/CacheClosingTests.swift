import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

@Suite(.timeLimit(.minutes(5))) struct CacheClosingTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    @Test func `F40: closing a cache answers its waiters, cancels its downloads, wipes its keys and empties it`()
        throws
    {
        let world = FakeWorld()
        let cache = try world.cache(token: Secret([1]))
        try cache.put(ImageKey(profile: OpaqueID("eve")), SampleImage.png("eve"), timeToLive: nil)
        let answers = Answers()
        cache.get(Self.query, resolve: answers.record)
        _ = world.log.removeAll()
        #expect(cache.close().cancelled == 1)
        #expect(answers.outcomes == ["cancelled"])
        #expect(world.log.events == ["cancel https://origin.test/alice/bob/128", "close", "wipe"])
        #expect(cache.hit(ImageKey(profile: OpaqueID("eve"))) == nil)
        #expect(world.services.memory.statistics.images == 0)
        #expect(cache.credentials.token == nil)
        // Closing again does nothing.
        #expect(cache.close().cancelled == 0)
    }

    @Test(arguments: [false, true])
    func
        `I11: a logout wipes memory before it returns; a purge wipes later, with yields`(
            isPurge: Bool
        ) throws
    {
        let steps = NIOLockedValueBox(0)
        let world = FakeWorld(yield: { steps.withLockedValue { $0 += 1 } })
        let cache = try world.cache()
        weak var entry: MemoryEntry?
        for number in 0..<40 {
            let imageKey = ImageKey(profile: OpaqueID("\(number)"))
            try cache.put(imageKey, SampleImage.png("mine"), timeToLive: nil)
            entry = cache.state.withLockedValue { $0.memory[imageKey] }
        }
        let closing = cache.close(wipesLater: isPurge)
        #expect(cache.hit(ImageKey(profile: OpaqueID("39"))) == nil)
        #expect((entry != nil) == isPurge)
        #expect(steps.withLockedValue { $0 } == 0)
        closing.wipe?()
        #expect(entry == nil)
        #expect(world.services.memory.statistics.images == 0)
        #expect((steps.withLockedValue { $0 } > 0) == isPurge)
    }

    @Test func `F40: a download that ends after the logout is discarded`() throws {
        let world = FakeWorld()
        let cache = try world.cache()
        cache.get(Self.query) { _ in }
        _ = cache.close()
        world.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(world.store.held(by: .alice) == [])
        #expect(world.services.memory.statistics.images == 0)
        #expect(world.store.calls(.seal) == 0)
    }

    @Test func `F40: a downloaded image that is not yet checked or written at the logout is not stored`()
        throws
    {
        let disk = GatedPool()
        let world = FakeWorld(imagePool: disk)
        let cache = try world.cache()
        let answers = Answers()
        cache.get(Self.query, resolve: answers.record)
        disk.runAll()
        // Large images are checked on the pool.
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", size: 64 << 10 | 1))
        _ = cache.close()
        disk.runAll()
        #expect(answers.outcomes == ["cancelled"])
        #expect(world.store.held(by: .alice) == [])

        let second = FakeWorld(imagePool: disk)
        let written = try second.cache()
        written.get(Self.query, resolve: answers.record)
        disk.runAll()
        second.fetcher.downloads[0].end(SampleImage.downloaded("two"))
        #expect(answers.outcomes.last == "two from origin")
        _ = written.close()
        disk.runAll()
        #expect(second.store.held(by: .alice) == [])
        // I11: no write was even started.
        #expect(second.store.calls(.seal) == 0)
    }

    @Test func `I3: a disk lookup that ends after the logout serves nothing and fills no memory`() throws {
        let disk = GatedPool()
        let world = FakeWorld(imagePool: disk, memory: 1 << 20)
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("old"), timeToLive: nil)
        world.services.memory.remove(cache.state.withLockedValue { Array($0.memory.entries.values) })
        cache.state.withLockedValue { $0.memory = MemoryTable() }
        let answers = Answers()
        cache.get(Self.query, resolve: answers.record)
        _ = cache.close()
        disk.runAll()
        #expect(answers.outcomes == ["cancelled"])
        #expect(world.services.memory.statistics.images == 0)
    }

    @Test func `a request to a closed cache is CANCELLED without a disk lookup or download`() async throws {
        let world = FakeWorld()
        let cache = try world.cache()
        _ = cache.close()
        #expect(await cache.outcome(Self.query) == "cancelled")
        #expect(world.store.calls(.read) == 0)
        #expect(world.fetcher.downloads.isEmpty)
    }

    @Test(arguments: [false, true])
    func `I3: a reply that is being delivered arrives before a purge or logout completes`(
        isPurge: Bool
    )
        async throws
    {
        let world = FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool())
        let cache = try world.cache()
        let gate = Gate()
        cache.get(Self.query) { outcome in
            gate.pass()
            world.log.record("answered")
        }
        await world.fetcher.started(1)
        // On the pool, because delivery blocks at the gate.
        world.services.imagePool.submit(for: 0) { world.fetcher.downloads[0].end(SampleImage.downloaded("one")) }
        await gate.reached()
        let before = cache.state.withLockedValue { $0.deliveries }
        async let ended: Result<Void, any Error> = world.services.loginPool.attempt {
            if isPurge { _ = try cache.purge([OpaqueID("bob")]) } else { _ = cache.close() }
            world.log.record("ended")
        }
        defer { gate.open() }
        while !before.isClosed {
            try await yieldTask()
        }
        #expect(!world.log.events.contains("ended"))
        gate.open()
        try (await ended).get()
        let events = world.log.events.filter { ["answered", "wipe", "ended"].contains($0) }
        #expect(events == (isPurge ? ["answered", "ended"] : ["answered", "wipe", "ended"]))
    }

    @Test func `F40: a purge of profiles cancels their downloads, removes every size, and leaves other profiles`()
        async throws
    {
        let world = FakeWorld()
        let cache = try world.cache()
        for (profile, size) in [("bob", 16), ("bob", 64), ("carol", 0)] as [(String, UInt16)] {
            try cache.put(
                ImageKey(profile: OpaqueID(profile), size: size), SampleImage.png("\(profile) \(size)", size: 100),
                timeToLive: nil)
        }
        let answers = Answers()
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"), size: 32)), resolve: answers.record)
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("dave"))), resolve: answers.record)
        let removed = try cache.purge([OpaqueID("bob"), OpaqueID("nobody")])
        #expect(removed.usage == Usage(images: 2, bytes: 200))
        #expect(removed.cancelled == 1)
        #expect(answers.outcomes == ["cancelled"])
        #expect(world.store.held(by: .alice) == ["carol 0"])
        #expect(cache.hit(ImageKey(profile: OpaqueID("bob"), size: 64)) == nil)
        #expect(cache.hit(ImageKey(profile: OpaqueID("carol"))) != nil)
        #expect(world.fetcher.downloads.map(\.isCancelled) == [true, false])
    }

    @Test func `a purge of a profile answers its waiters before it removes entries from disk`() async throws {
        let world = FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool())
        let cache = try world.cache()
        async let answer = cache.outcome(Self.query)
        await world.fetcher.started(1)
        let gate = world.store.hold(.remove)
        async let purged: Result<Void, any Error> = world.services.loginPool.attempt {
            _ = try cache.purge([Self.imageKey.profile])
        }
        defer { gate.open() }
        #expect(await answer == "cancelled")
        await gate.reached()
        // A download that has just started is cancelled by the thread that starts it.
        while !world.fetcher.downloads[0].isCancelled { await Task.yield() }
        gate.open()
        try (await purged).get()
    }

    @Test func `F41: images that arrive while a purge removes entries are kept`() async throws {
        let world = FakeWorld(imagePool: ThreadPool(), loginPool: ThreadPool())
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("old"), timeToLive: nil)
        let gate = world.store.hold(.remove)
        async let purged: Result<Void, any Error> = world.services.loginPool.attempt {
            _ = try cache.purge([Self.imageKey.profile])
        }
        defer { gate.open() }
        await gate.reached()
        // The entry is still on disk but no longer visible.
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(cache.lookUpOnDisk(Self.query).image == nil)
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

    @Test func `a closed cache is not retained by timers, memory entries or waiters`() throws {
        let world = FakeWorld()
        weak var ended: UserCache?
        do {
            let cache = try world.cache()
            ended = cache
            try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
            let waiter = cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) { _ in }
            cache.leave(waiter)
            #expect(world.time.timers == 1)
            _ = cache.close()
        }
        // The fetcher releases a download after it has been cancelled.
        world.fetcher.forgetAll()
        #expect(ended == nil)
    }
}
