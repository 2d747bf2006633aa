import Testing

@testable import CacheCore

@Suite struct PutCoordinatorTests {
    private let mine = Image.sample("mine", from: nil, lifetime: nil)

    @Test func `I7: a PUT cancels downloads that began before it; their waiters get its image, in order`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.starts()
        _ = bench.get("b", url: "https://other.test/x")
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: sequence) == .commit)
        #expect(
            bench.putCommits(mine, sequence: sequence)
                == ["a: mine from put", "b: mine from put", "cancel \(CoordinatorBench.usual)"])
        bench.coordinator.putEnded(CoordinatorBench.imageKey)
        #expect(bench.coordinator.isIdle)
        #expect(bench.finishes(.image(.sample("late"), storable: true)) == nil)
    }

    @Test func `I7: a PUT wins over a downloaded image that waits to be written`() {
        var bench = CoordinatorBench()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one"), storable: true))
        _ = bench.putCommits(mine, sequence: sequence)
        #expect(!bench.coordinator.mayStore(bench.flight("store")))
    }

    @Test func `I7: a disk lookup that began before the PUT does not return an older image`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(bench.putCommits(mine, sequence: sequence) == ["a: mine from put"])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `a download that began after the PUT was committed is not cancelled by it`() {
        var bench = CoordinatorBench()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.putCommits(mine, sequence: sequence)
        bench.coordinator.putEnded(CoordinatorBench.imageKey)
        bench.memory = mine
        _ = bench.get("a", url: "https://other.test/x")
        #expect(
            bench.finishes(
                .image(.sample("x", from: "https://other.test/x"), storable: true), url: "https://other.test/x")
                == ["a: x from origin", "store x"])
    }

    @Test func `the later of two PUTs is kept, in whichever order they commit`() {
        var bench = CoordinatorBench()
        let first = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        let second = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.putCommits(mine, sequence: second)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: first) == .superseded)
        bench.coordinator.putEnded(CoordinatorBench.imageKey)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: first) == .superseded)
        bench.coordinator.putEnded(CoordinatorBench.imageKey)
        #expect(bench.coordinator.isIdle)

        let third = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: third) == .commit)
    }

    @Test func `I3: a PUT that began before a purge is not committed after it; a later one is`() {
        var bench = CoordinatorBench()
        let early = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.purge()
        let late = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: early) == .cancelled)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: late) == .commit)
    }

    @Test func `I3, F56: no PUT is committed after a logout`() {
        var bench = CoordinatorBench()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.end()
        #expect(bench.coordinator.putVerdict(CoordinatorBench.imageKey, sequence: sequence) == .cancelled)
        bench.coordinator.putEnded(CoordinatorBench.imageKey)
        #expect(bench.coordinator.isIdle)
    }

    @Test func `a PUT removes a remembered 404`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.missing(until: bench.now + 300))
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.putCommits(mine, sequence: sequence)
        #expect(bench.get("b") == ["read"])
    }
}
