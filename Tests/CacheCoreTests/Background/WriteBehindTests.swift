import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// When downloaded images are written, and when they are not.
@Suite struct WriteBehindTests {
    private let pool = GatedPool()
    private let time = ManualTime()
    private let isBusy = NIOLockedValueBox(false)
    private let written = NIOLockedValueBox<[Int]>([])

    private func line(_ limits: WriteBehind.Limits = .init(tier: 0), yield: @escaping YieldToOthers = {}) -> WriteBehind
    {
        WriteBehind(writer: pool, time: time, yield: yield, limits: limits) { isBusy.withLockedValue { $0 } }
    }

    private func add(_ number: Int, to line: WriteBehind, bytes: Int = 10_000, uid: UInt32 = 1) -> Bool {
        line.add(uid: uid, bytes: bytes - WriteBehind.overhead) { written.withLockedValue { $0.append(number) } }
    }

    private func limits(idle: Int, most: Int, mostOfUID: Int) -> WriteBehind.Limits {
        var limits = WriteBehind.Limits(tier: 0)
        (limits.idle, limits.bytes) = (idle, .init(perUID: mostOfUID, total: most))
        return limits
    }

    private var isBusyNow: Bool {
        get { isBusy.withLockedValue { $0 } }
        nonmutating set { isBusy.withLockedValue { $0 = newValue } }
    }

    private var order: [Int] { written.withLockedValue { $0 } }

    @Test func `nothing is written while somebody waits for a download, and all of it when nobody does any more`() {
        let line = line()
        isBusyNow = true
        for number in 0..<3 { #expect(add(number, to: line)) }
        line.downloadEnded()
        #expect(pool.count == 0)
        #expect(line.backlog == .init(images: 3, bytes: 30_000))
        isBusyNow = false
        line.downloadEnded()
        pool.runAll()
        #expect(order == [0, 1, 2])
        #expect(line.backlog == .init())
    }

    @Test func `images are written in their order, by one thread, which yields before each`() {
        let steps = NIOLockedValueBox(0)
        let line = line(yield: { steps.withLockedValue { $0 += 1 } })
        for number in 0..<3 { #expect(add(number, to: line)) }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(order == [0, 1, 2] && steps.withLockedValue { $0 } == 3)
        #expect(add(3, to: line))
        #expect(pool.count == 1)
    }

    @Test func `a download that begins while images are written goes before the rest of them`() {
        let line = line(yield: { if order == [0] { isBusyNow = true } })
        for number in 0..<4 { #expect(add(number, to: line)) }
        pool.runAll()
        // One was under way already.
        #expect(order == [0, 1] && line.backlog.images == 2)
        isBusyNow = false
        line.downloadEnded()
        pool.runAll()
        #expect(order == [0, 1, 2, 3])
    }

    @Test func `an image waits half a second at most, whatever is being downloaded`() {
        let line = line()
        isBusyNow = true
        #expect(add(0, to: line))
        time.advance(milliseconds: 499)
        #expect(add(1, to: line))
        #expect(pool.count == 0)
        time.advance(milliseconds: 1)
        #expect(add(2, to: line))
        pool.runAll()
        // What came after the time was up waits for its own.
        #expect(order == [0, 1])
        time.advance(milliseconds: 500)
        pool.runAll()
        #expect(order == [0, 1, 2] && time.timers == 0)
        // A time that was set before nothing was left to wait is about nothing that comes then.
        #expect(add(3, to: line))
        time.advance(milliseconds: 400)
        isBusyNow = false
        line.downloadEnded()
        pool.runAll()
        isBusyNow = true
        #expect(add(4, to: line))
        time.advance(milliseconds: 400)
        #expect(order == [0, 1, 2, 3] && pool.count == 0)
        time.advance(milliseconds: 100)
        pool.runAll()
        #expect(order == [0, 1, 2, 3, 4])
    }

    @Test func `F16: more than may wait for downloads is written at once, whatever is being downloaded`() {
        let line = line(limits(idle: 20_000, most: 100_000, mostOfUID: 100_000))
        isBusyNow = true
        #expect(add(0, to: line) && add(1, to: line))
        #expect(pool.count == 0)
        #expect(add(2, to: line))
        pool.runAll()
        #expect(order == [0, 1, 2])
    }

    @Test func `I8: uids take turns, so that the images of one do not wait behind all those of another`() {
        let line = line(limits(idle: 0, most: 10_000_000, mostOfUID: 10_000_000))
        for number in 0..<20 { #expect(add(number, to: line, bytes: 60_000)) }
        for number in 100..<103 { #expect(add(number, to: line, bytes: 60_000, uid: 2)) }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(order.prefix(7).filter { $0 >= 100 } == [100, 101, 102])
        #expect(order.count == 23 && line.backlog == .init())
    }

    @Test func `F16: where the disk is too slow no more waits than may, but for one image when nothing does`() {
        let line = line(limits(idle: 0, most: 40_000, mostOfUID: 30_000))
        for number in 0..<3 { #expect(add(number, to: line)) }
        #expect(!add(3, to: line))
        #expect(add(4, to: line, uid: 2))
        #expect(line.backlog == .init(images: 4, bytes: 40_000))
        pool.runAll()
        #expect(order == [0, 1, 2, 4] && line.backlog == .init())
        #expect(add(5, to: line, bytes: 1_000_000))
        #expect(!add(6, to: line))
    }

    @Test func `I8: two uids that take all there is leave a third its part, and twice as much is the end of it`() {
        let line = line(limits(idle: 0, most: 60_000, mostOfUID: 40_000))
        for uid in [1, 2] as [UInt32] { for _ in 0..<4 { _ = add(0, to: line, uid: uid) } }
        // The first came when there was nobody else; the second has half.
        #expect(line.backlog.bytes == 70_000)
        #expect(add(1, to: line, uid: 3) && add(2, to: line, uid: 3))
        #expect(!add(3, to: line, uid: 3))
        let others = (4..<100 as Range<UInt32>).count { add(4, to: line, uid: $0) }
        #expect(others == 3 && line.backlog.bytes == 120_000)
    }

    @Test func `who has to wait for what is to be written need not wait for downloads too`() async throws {
        let line = line()
        isBusyNow = true
        #expect(add(0, to: line) && add(1, to: line))
        async let finished: [Int] = {
            await line.finish()
            return order
        }()
        while pool.count < 2 { try await turn() }
        pool.runAll()
        #expect(await finished == [0, 1])
        // Nor is what comes later held back: whoever waits, waits for that too.
        #expect(add(2, to: line))
        pool.runAll()
        #expect(order == [0, 1, 2])
    }

    private func cache(_ world: FakeWorld) throws -> UserCache {
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        return UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(), services: world.services)
    }

    @Test func `F16: an image for which there is no room is served all the same, and not kept`() throws {
        let world = FakeWorld(disk: pool, memory: 0, writes: limits(idle: 0, most: 1, mostOfUID: 1))
        let cache = try cache(world)
        let answers = Answers()
        for name in ["bob", "carol"] {
            cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID(name))), resolve: answers.take)
        }
        pool.runAll()
        for download in world.fetcher.downloads { download.end(SampleImage.downloaded(download.url)) }
        #expect(answers.told.count == 2)
        pool.runAll()
        #expect(world.store.held(by: .alice) == ["https://origin.test/alice/bob/128"])
        #expect(world.services.counters[.storesSkipped] == 1)
        #expect(cache.state.withLockedValue { $0.coordinator.isIdle })
    }

    @Test(arguments: [false, true])
    func `I7: what a newer image replaced does not come back where that could not be written`(isSkipped: Bool) throws {
        let world = FakeWorld(disk: pool, memory: 0, writes: limits(idle: 0, most: 1, mostOfUID: 1))
        let cache = try cache(world)
        let imageKey = ImageKey(profile: OpaqueID("bob"))
        try cache.put(imageKey, SampleImage.png("old"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("carol"))), resolve: answers.take)
        cache.get(
            ImageQuery(imageKey: imageKey, named: try cache.target(of: imageKey, url: "https://other.test/x")),
            resolve: answers.take)
        pool.runAll()
        // Whose write fails, or takes the room.
        if isSkipped { world.fetcher.downloads[0].end(SampleImage.downloaded("carol")) }
        world.fetcher.downloads[1].end(SampleImage.downloaded("new"))
        if !isSkipped { world.store.fail(.seal, with: .noSpace("full")) }
        pool.runAll()
        #expect(answers.told.last == "new from origin")
        #expect(!world.store.held(by: .alice).contains("old"))
        #expect(cache.state.withLockedValue { $0.coordinator.isIdle } == isSkipped)
    }

    @Test func `what arrives is judged where it arrives, and elsewhere if it is large`() throws {
        let world = FakeWorld(disk: pool, memory: 0)
        let cache = try cache(world)
        let answers = Answers()
        for number in 0..<2 {
            cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("\(number)"))), resolve: answers.take)
        }
        pool.runAll()
        let downloads = world.fetcher.downloads
        downloads[0].end(SampleImage.downloaded("small"))
        #expect(answers.told == ["small from origin"])
        pool.runAll()
        downloads[1].end(SampleImage.downloaded("large", size: 64 << 10 | 1))
        #expect(answers.told.count == 1 && pool.count == 1)
        pool.runAll()
        #expect(answers.told.count == 2)
    }

    @Test func `a stop writes what was downloaded, whoever still waits for a download`() async throws {
        let daemon = Daemon(FakeWorld())
        try await daemon.logIn(.alice)
        daemon.fetcher.isBusy = true
        let cache = try await daemon.sessions.cache(.alice)
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) { _ in }
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(daemon.store.held(by: .alice) == [])
        await daemon.logout.shutDown()
        #expect(daemon.store.held(by: .alice) == ["one"])
    }
}
