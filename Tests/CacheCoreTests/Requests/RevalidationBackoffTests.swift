import CacheFakes
import Testing

@testable import CacheCore

/// The pauses after failed background revalidations.
@Suite struct RevalidationBackoffTests {
    private static let imageKey = CoordinatorBench.imageKey
    private static let url = CoordinatorBench.usual
    private static let download = "download \(CoordinatorBench.usual)"
    private static let stale = "a: held from memory, stale"
    private static let failed = RequestCoordinator.DownloadResult.failed(.badImage("HTML"))

    @Test func `I8: each failure in a row doubles the pause, from a second to a minute`() {
        var backoff = NegativeCache(limit: 10, memory: MemoryBudget().lease(for: 1000))
        var now = CoordinatorBench.start
        #expect(!backoff.hasJustFailed(Self.imageKey, url: Self.url, at: now))
        for length in [1, 2, 4, 8, 16, 32, 60, 60] as [Int64] {
            backoff.failed(Self.imageKey, url: Self.url, at: now)
            #expect(backoff.hasJustFailed(Self.imageKey, url: Self.url, at: now))
            now += length
            #expect(backoff.hasJustFailed(Self.imageKey, url: Self.url, at: now - 1), "\(length)")
            #expect(!backoff.hasJustFailed(Self.imageKey, url: Self.url, at: now), "\(length)")
        }
        // After a minute without a request the pauses start over.
        now += 60
        backoff.failed(Self.imageKey, url: Self.url, at: now)
        #expect(!backoff.hasJustFailed(Self.imageKey, url: Self.url, at: now + 1))
    }

    @Test func `F14: if the clock is set back, there is no pause`() {
        var backoff = NegativeCache(limit: 10, memory: MemoryBudget().lease(for: 1000))
        backoff.failed(Self.imageKey, url: Self.url, at: CoordinatorBench.start)
        #expect(!backoff.hasJustFailed(Self.imageKey, url: Self.url, at: CoordinatorBench.start - 1))
    }

    @Test func `I8: the number of pauses is bounded, and the oldest is dropped first`() {
        var backoff = NegativeCache(limit: 3, memory: MemoryBudget().lease(for: 1000))
        for number in 0..<1_000 { backoff.failed(Self.imageKey, url: "\(number)", at: 0) }
        let held = (0..<1_000).filter { backoff.hasJustFailed(Self.imageKey, url: "\($0)", at: 0) }
        #expect(held == [997, 998, 999])
        var none = NegativeCache(limit: 0, memory: MemoryBudget().lease(for: 1000))
        none.failed(Self.imageKey, url: Self.url, at: 0)
        #expect(!none.hasJustFailed(Self.imageKey, url: Self.url, at: 0))
    }

    /// A bench whose memory holds a stale image, after one failed revalidation.
    private func failedOnce() -> CoordinatorBench {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        #expect(bench.get("a") == [Self.stale, Self.download])
        #expect(bench.finishes(Self.failed) == [])
        return bench
    }

    @Test func `I8: a stale image whose revalidation fails is downloaded rarely, however many requests come`() {
        var bench = failedOnce()
        var downloads = 0
        for _ in 0..<60 {
            for _ in 0..<10 {
                let effects = bench.get("a")
                #expect(effects.first == Self.stale)
                guard effects.contains(Self.download) else { continue }
                downloads += 1
                #expect(bench.finishes(Self.failed) == [])
            }
            bench.now += 1
        }
        // After 1, 3, 7, 15 and 31 s.
        #expect(downloads == 5)
        #expect(bench.coordinator.isIdle)
    }

    @Test func `requests that wait for the origin ignore pauses and cause none`() {
        var bench = failedOnce()
        bench.now = CoordinatorBench.start + 4_199
        #expect(bench.get("a") == [Self.stale, Self.download])
        #expect(bench.finishes(Self.failed) == [])
        bench.now += 1
        for _ in 0..<2 {
            #expect(bench.get("a") == [Self.download])
            #expect(bench.finishes(Self.failed) == [Self.stale])
        }
        bench.memory = nil
        #expect(bench.get("b") == ["read"])
        #expect(bench.readEnds() == [Self.download])
    }

    @Test func `a pause applies to one image key and one URL`() {
        var bench = failedOnce()
        let other = ImageKey(profile: OpaqueID("bob"), size: 65)
        #expect(bench.get("a", imageKey: other) == [Self.stale, Self.download])
        let elsewhere = "https://other.test/x"
        #expect(bench.get("b", url: elsewhere) == ["download \(elsewhere)"])
    }

    @Test(arguments: ["an image", "a 304", "a PUT", "a purge"])
    func `a new image, a 304, a PUT and a purge each end a pause`(event: String) {
        var bench = failedOnce()
        let held = Image.sample("held")
        switch event {
        case "an image", "a 304":
            bench.memory = nil
            _ = bench.get("b")
            _ = bench.readEnds()
            let result =
                event == "a 304"
                ? RequestCoordinator.DownloadResult.confirmed(held, storable: true) : .image(held, storable: true)
            #expect(bench.finishes(result)?.last == "store held")
            bench.coordinator.stored(bench.flight("store"))
        case "a PUT":
            let sequence = bench.coordinator.putBegan(Self.imageKey)
            #expect(bench.putCommits(held, sequence: sequence) == [])
            bench.coordinator.putEnded(Self.imageKey)
        default:
            #expect(bench.purge().effects == [])
        }
        bench.memory = held
        #expect(bench.get("a") == [Self.stale, Self.download])
    }
}
