import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

@Suite struct WriteBehindTests {
    private let pool = GatedPool()
    private let time = ManualTime()
    private let isBusy = NIOLockedValueBox(false)
    private let written = NIOLockedValueBox<[Int]>([])

    private func line(_ limits: WriteBehind.Limits = .init(tier: 0), yield: @escaping YieldToOthers = {}) -> WriteBehind
    {
        WriteBehind(writer: pool, time: time, yield: yield, limits: limits) { isBusy.withLockedValue { $0 } }
    }

    private func add(_ number: Int, to line: WriteBehind, bytes: Int = 10_000, account: UInt32 = 1) -> Bool {
        line.add(account: account, bytes: bytes - WriteBehind.overhead) {
            written.withLockedValue { $0.append(number) }
        }
    }

    private func limits(idle: Int, most: Int, mostOfAccount: Int) -> WriteBehind.Limits {
        var limits = WriteBehind.Limits(tier: 0)
        (limits.idle, limits.bytes) = (idle, .init(perAccount: mostOfAccount, total: most))
        return limits
    }

    private var isBusyNow: Bool {
        get { isBusy.withLockedValue { $0 } }
        nonmutating set { isBusy.withLockedValue { $0 = newValue } }
    }

    private var order: [Int] { written.withLockedValue { $0 } }

    @Test func `images are written only when no download is in flight`() {
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

    @Test func `one thread writes images in order and yields before each`() {
        let steps = NIOLockedValueBox(0)
        let line = line(yield: { steps.withLockedValue { $0 += 1 } })
        for number in 0..<3 { #expect(add(number, to: line)) }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(order == [0, 1, 2] && steps.withLockedValue { $0 } == 3)
        #expect(add(3, to: line))
        #expect(pool.count == 1)
    }

    @Test func `several threads write while no download is in flight, otherwise one`() {
        var limits = limits(idle: 0, most: 10_000_000, mostOfAccount: 10_000_000)
        limits.writers = 2
        let line = line(limits)
        isBusyNow = true
        for number in 0..<4 { #expect(add(number, to: line)) }
        #expect(pool.count == 1)
        isBusyNow = false
        line.downloadEnded()
        #expect(pool.count == 2)
        // The second thread finds a download in flight, and leaves the images to the first.
        isBusyNow = true
        pool.runNext(at: 1)
        #expect(order == [] && pool.count == 1)
        pool.runAll()
        #expect(order == [0, 1, 2, 3] && line.backlog == .init())
        isBusyNow = false
        #expect(add(4, to: line))
        #expect(pool.count == 1)
        #expect(add(5, to: line) && add(6, to: line))
        #expect(pool.count == 2)
        pool.runAll()
        #expect(order == [0, 1, 2, 3, 4, 5, 6] && line.backlog == .init())
    }

    @Test func `a download that begins during writing delays the remaining images`() {
        let line = line(yield: { if order == [0] { isBusyNow = true } })
        for number in 0..<4 { #expect(add(number, to: line)) }
        pool.runAll()
        #expect(order == [0, 1] && line.backlog.images == 2)
        isBusyNow = false
        line.downloadEnded()
        pool.runAll()
        #expect(order == [0, 1, 2, 3])
    }

    @Test func `downloads in flight delay a write by at most half a second`() {
        let line = line()
        isBusyNow = true
        #expect(add(0, to: line))
        time.advance(milliseconds: 499)
        #expect(add(1, to: line))
        #expect(pool.count == 0)
        time.advance(milliseconds: 1)
        #expect(add(2, to: line))
        pool.runAll()
        // A later image starts a new timer.
        #expect(order == [0, 1])
        time.advance(milliseconds: 500)
        pool.runAll()
        #expect(order == [0, 1, 2] && time.timers == 0)
        // A timer from before the queue was empty does not apply to later images.
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

    @Test func `F16: images beyond the limit of waiting bytes are written at once`() {
        let line = line(limits(idle: 20_000, most: 100_000, mostOfAccount: 100_000))
        isBusyNow = true
        #expect(add(0, to: line) && add(1, to: line))
        #expect(pool.count == 0)
        #expect(add(2, to: line))
        pool.runAll()
        #expect(order == [0, 1, 2])
    }

    @Test func `I8: accounts take turns`() {
        let line = line(limits(idle: 0, most: 10_000_000, mostOfAccount: 10_000_000))
        for number in 0..<20 { #expect(add(number, to: line, bytes: 60_000)) }
        for number in 100..<103 { #expect(add(number, to: line, bytes: 60_000, account: 2)) }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(order.prefix(7).filter { $0 >= 100 } == [100, 101, 102])
        #expect(order.count == 23 && line.backlog == .init())
    }

    @Test func `F16: with a slow disk, waiting bytes are limited, except for a single image`() {
        let line = line(limits(idle: 0, most: 40_000, mostOfAccount: 30_000))
        for number in 0..<3 { #expect(add(number, to: line)) }
        #expect(!add(3, to: line))
        #expect(add(4, to: line, account: 2))
        #expect(line.backlog == .init(images: 4, bytes: 40_000))
        pool.runAll()
        #expect(order == [0, 1, 2, 4] && line.backlog == .init())
        #expect(add(5, to: line, bytes: 1_000_000))
        #expect(!add(6, to: line))
    }

    @Test func `I8: two accounts that use the whole budget leave a third account its share, up to twice the budget`() {
        let line = line(limits(idle: 0, most: 60_000, mostOfAccount: 40_000))
        for account in [1, 2] as [UInt32] { for _ in 0..<4 { _ = add(0, to: line, account: account) } }
        // The first account was alone; the second gets half.
        #expect(line.backlog.bytes == 70_000)
        #expect(add(1, to: line, account: 3) && add(2, to: line, account: 3))
        #expect(!add(3, to: line, account: 3))
        let others = (4..<100 as Range<UInt32>).count { add(4, to: line, account: $0) }
        #expect(others == 3 && line.backlog.bytes == 120_000)
    }

    @Test func `finish() does not wait for downloads`() async throws {
        let line = line()
        isBusyNow = true
        #expect(add(0, to: line) && add(1, to: line))
        async let finished: [Int] = {
            await line.finish()
            return order
        }()
        while pool.count == 0 { try await yieldTask() }
        pool.runAll()
        #expect(await finished == [0, 1])
        #expect(add(2, to: line))
        pool.runAll()
        #expect(order == [0, 1, 2])
    }

    @Test func `F16: an image beyond the limits is served and not stored`() throws {
        let world = FakeWorld(imagePool: pool, memory: 0, writes: limits(idle: 0, most: 1, mostOfAccount: 1))
        let cache = try world.cache()
        let answers = Answers()
        for name in ["bob", "carol"] {
            cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID(name))), resolve: answers.record)
        }
        pool.runAll()
        for download in world.fetcher.downloads { download.end(SampleImage.downloaded(download.url)) }
        #expect(answers.outcomes.count == 2)
        pool.runAll()
        #expect(world.store.held(by: .alice) == ["https://origin.test/alice/bob/128"])
        #expect(world.services.counters[.storesSkipped] == 1)
        #expect(cache.state.withLockedValue { $0.coordinator.isIdle })
    }

    @Test(arguments: [false, true])
    func `I7: if a newer image cannot be written, the older image is not served again`(isSkipped: Bool) throws {
        let world = FakeWorld(imagePool: pool, memory: 0, writes: limits(idle: 0, most: 1, mostOfAccount: 1))
        let cache = try world.cache()
        let imageKey = ImageKey(profile: OpaqueID("bob"))
        try cache.put(imageKey, SampleImage.png("old"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("carol"))), resolve: answers.record)
        cache.get(
            ImageQuery(imageKey: imageKey, named: try cache.target(of: imageKey, url: "https://other.test/x")),
            resolve: answers.record)
        pool.runAll()
        if isSkipped { world.fetcher.downloads[0].end(SampleImage.downloaded("carol")) }
        world.fetcher.downloads[1].end(SampleImage.downloaded("new"))
        if !isSkipped { world.store.fail(.seal, with: .noSpace("full")) }
        pool.runAll()
        #expect(answers.outcomes.last == "new from origin")
        #expect(!world.store.held(by: .alice).contains("old"))
        #expect(cache.state.withLockedValue { $0.coordinator.isIdle } == isSkipped)
    }

    @Test func `a small image is checked on the arrival thread, a large one on a pool`() throws {
        let world = FakeWorld(imagePool: pool, memory: 0)
        let cache = try world.cache()
        let answers = Answers()
        for number in 0..<2 {
            cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("\(number)"))), resolve: answers.record)
        }
        pool.runAll()
        let downloads = world.fetcher.downloads
        downloads[0].end(SampleImage.downloaded("small"))
        #expect(answers.outcomes == ["small from origin"])
        pool.runAll()
        downloads[1].end(SampleImage.downloaded("large", size: 64 << 10 | 1))
        #expect(answers.outcomes.count == 1 && pool.count == 1)
        pool.runAll()
        #expect(answers.outcomes.count == 2)
    }

    @Test func `a stop writes all downloaded images, even while downloads are in flight`() async throws {
        let daemon = Daemon(FakeWorld())
        try await daemon.logIn(.alice)
        daemon.fetcher.isBusy = true
        let cache = try await daemon.sessions.cache(.alice)
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))) { _ in }
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(daemon.store.held(by: .alice) == [])
        await daemon.invalidationService.shutDown()
        #expect(daemon.store.held(by: .alice) == ["one"])
    }
}
