import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import ThumbnailCache

/// When downloaded images are written, and when they are not.
@Suite struct WriteBehindTests {
    private let pool = GatedPool()
    private let time = ManualTime()
    private let isBusy = NIOLockedValueBox(false)
    private let written = NIOLockedValueBox<[Int]>([])

    private func line(_ limits: WriteBehind.Limits = .init(), stepAside: @escaping StepAside = {}) -> WriteBehind {
        WriteBehind(pool: pool, time: time, stepAside: stepAside, limits: limits) { isBusy.withLockedValue { $0 } }
    }

    private func piece(_ number: Int, bytes: Int = 1_000, uid: UInt32 = 1) -> WriteBehind.Piece {
        WriteBehind.Piece(uid: uid, bytes: bytes) { written.withLockedValue { $0.append(number) } }
    }

    private func limits(patient: Int, most: Int, mostOfUID: Int) -> WriteBehind.Limits {
        var limits = WriteBehind.Limits()
        (limits.patient, limits.most, limits.mostOfUID) = (patient, most, mostOfUID)
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
        for number in 0..<3 { #expect(line.add(piece(number))) }
        line.downloadEnded()
        #expect(pool.count == 0)
        #expect(line.backlog == .init(images: 3, bytes: 3_000))
        isBusyNow = false
        line.downloadEnded()
        pool.runAll()
        #expect(order == [0, 1, 2])
        #expect(line.backlog == .init())
    }

    @Test func `images are written in their order, by one thread, which steps aside before each`() {
        let steps = NIOLockedValueBox(0)
        let line = line(stepAside: { steps.withLockedValue { $0 += 1 } })
        for number in 0..<3 { #expect(line.add(piece(number))) }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(order == [0, 1, 2] && steps.withLockedValue { $0 } == 3)
        #expect(line.add(piece(3)))
        #expect(pool.count == 1)
    }

    @Test func `a download that begins while images are written goes before the rest of them`() {
        let line = line(stepAside: { if order == [0] { isBusyNow = true } })
        for number in 0..<4 { #expect(line.add(piece(number))) }
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
        #expect(line.add(piece(0)))
        time.advance(milliseconds: 499)
        #expect(line.add(piece(1)))
        #expect(pool.count == 0)
        time.advance(milliseconds: 1)
        #expect(line.add(piece(2)))
        pool.runAll()
        // What came after the time was up waits for its own.
        #expect(order == [0, 1])
        time.advance(milliseconds: 500)
        pool.runAll()
        #expect(order == [0, 1, 2] && time.timers == 0)
    }

    @Test func `F16: more than may wait patiently is written at once, whatever is being downloaded`() {
        let line = line(limits(patient: 2_000, most: 10_000, mostOfUID: 10_000))
        isBusyNow = true
        #expect(line.add(piece(0)) && line.add(piece(1)))
        #expect(pool.count == 0)
        #expect(line.add(piece(2)))
        pool.runAll()
        #expect(order == [0, 1, 2])
    }

    @Test func `F16: where more waits than may, several threads write`() {
        let line = line(limits(patient: 3_000, most: 100_000, mostOfUID: 100_000))
        for number in 0..<9 { #expect(line.add(piece(number))) }
        #expect(pool.count == 4)
        pool.runAll()
        #expect(order == Array(0..<9) && line.backlog == .init())
        #expect(line.add(piece(9)))
        #expect(pool.count == 1)
    }

    @Test func `F16, I8: where the disk is too slow no more waits than may, and every uid gets a place`() {
        let line = line(limits(patient: 0, most: 4_000, mostOfUID: 3_000))
        for number in 0..<3 { #expect(line.add(piece(number))) }
        #expect(!line.add(piece(3)))
        #expect(line.add(piece(4, uid: 2)))
        #expect(!line.add(piece(5, uid: 2)))
        // A first one has a place even where it alone is more than all may have.
        #expect(line.add(piece(6, bytes: 100_000, uid: 3)))
        #expect(line.backlog == .init(images: 5, bytes: 104_000))
        pool.runAll()
        #expect(order == [0, 1, 2, 4, 6] && line.backlog == .init())
        #expect(line.add(piece(7)))
    }

    @Test func `who has to wait for what is to be written need not wait for downloads too`() {
        let line = line()
        isBusyNow = true
        #expect(line.add(piece(0)) && line.add(piece(1)))
        line.hurry()
        pool.runAll()
        #expect(order == [0, 1])
    }

    @Test func `F16: an image for which there is no room is served all the same, and not kept`() throws {
        let world = FakeWorld(disk: pool, memory: 0, writes: limits(patient: 0, most: 1, mostOfUID: 1))
        let vault = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        let cache = UserCache(
            owner: .alice, epoch: 1, vault: vault, account: .init(), services: world.services)
        let answers = Answers()
        for name in ["bob", "carol"] {
            cache.get(ImageQuery(slot: Slot(profile: OpaqueID(name))), resolve: answers.take)
        }
        pool.runAll()
        for download in world.fetcher.downloads { download.end(SampleImage.downloaded(download.url)) }
        #expect(answers.told.count == 2)
        pool.runAll()
        #expect(world.store.held(by: .alice) == ["https://origin.test/alice/bob/128"])
        #expect(world.services.counters.snapshot(memoryHits: 0).storesSkipped == 1)
        #expect(cache.state.withLockedValue { $0.traffic.isIdle })
    }

    @Test func `I1: a stop writes what was downloaded, whoever still waits for a download`() async throws {
        let daemon = Daemon(FakeWorld())
        try await daemon.logIn(.alice)
        daemon.fetcher.isBusy = true
        let cache = try await daemon.sessions.cache(.alice)
        cache.get(ImageQuery(slot: Slot(profile: OpaqueID("bob")))) { _ in }
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(daemon.store.held(by: .alice) == [])
        await daemon.sessions.shutDown()
        #expect(daemon.store.held(by: .alice) == ["one"])
    }
}

/// Work that is done one piece after another.
@Suite struct WorkLineTests {
    @Test func `pieces are done in their order, and one thread is woken for all that come while it works`() {
        let pool = GatedPool()
        let line = WorkLine(pool: pool)
        let done = NIOLockedValueBox<[Int]>([])
        line.add {
            // Comes while the thread works.
            line.add { done.withLockedValue { $0.append(2) } }
            done.withLockedValue { $0.append(0) }
        }
        line.add { done.withLockedValue { $0.append(1) } }
        #expect(pool.count == 1)
        pool.runNext()
        #expect(done.withLockedValue { $0 } == [0, 1, 2] && pool.count == 0)
        line.add { done.withLockedValue { $0.append(3) } }
        #expect(pool.count == 1)
        pool.runAll()
        #expect(done.withLockedValue { $0 } == [0, 1, 2, 3])
    }

    @Test func `every piece is done once, whoever adds it from wherever`() async {
        let line = WorkLine(pool: ThreadPool(threads: 3))
        let count = NIOLockedValueBox(0)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<8 {
                group.addTask {
                    for _ in 0..<500 {
                        await withCheckedContinuation { continuation in
                            line.add {
                                count.withLockedValue { $0 += 1 }
                                continuation.resume()
                            }
                        }
                    }
                }
            }
        }
        #expect(count.withLockedValue { $0 } == 4_000)
    }
}
