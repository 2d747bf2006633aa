import Testing

@testable import ThumbnailCache

@Suite struct PutCoordinatorTests {
    private let mine = Image.sample("mine", from: nil, lifetime: nil)

    @Test func `I7: a PUT ends the downloads that began before it, and their waiters get its image, in order`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.starts()
        _ = bench.get("b", url: "https://other.test/x")
        let ticket = bench.coordinator.putBegan(CoordinatorBench.slot)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: ticket) == .commit)
        #expect(
            bench.putCommits(mine, ticket: ticket)
                == ["a: mine from put", "b: mine from put", "cancel \(CoordinatorBench.usual)"])
        bench.coordinator.putEnded(CoordinatorBench.slot)
        #expect(bench.coordinator.isIdle)
        #expect(bench.finishes(.image(.sample("late"), storable: true)) == nil)
    }

    @Test func `I7: a PUT beats a downloaded image that is on its way to the disk`() {
        var bench = CoordinatorBench()
        let ticket = bench.coordinator.putBegan(CoordinatorBench.slot)
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one"), storable: true))
        _ = bench.putCommits(mine, ticket: ticket)
        #expect(!bench.coordinator.mayStore(bench.flight("store")))
    }

    @Test func `I7: a look on disk that began before the PUT brings nothing older back`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        let ticket = bench.coordinator.putBegan(CoordinatorBench.slot)
        #expect(bench.putCommits(mine, ticket: ticket) == ["a: mine from put"])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `a download that began after the PUT was in place is not ended by it`() {
        var bench = CoordinatorBench()
        let ticket = bench.coordinator.putBegan(CoordinatorBench.slot)
        _ = bench.putCommits(mine, ticket: ticket)
        bench.coordinator.putEnded(CoordinatorBench.slot)
        bench.memory = mine
        _ = bench.get("a", url: "https://other.test/x")
        #expect(
            bench.finishes(
                .image(.sample("x", from: "https://other.test/x"), storable: true), url: "https://other.test/x")
                == ["a: x from origin", "store x"])
    }

    @Test func `of two PUTs the later one stays, whichever is in place first`() {
        var bench = CoordinatorBench()
        let first = bench.coordinator.putBegan(CoordinatorBench.slot)
        let second = bench.coordinator.putBegan(CoordinatorBench.slot)
        _ = bench.putCommits(mine, ticket: second)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: first) == .superseded)
        bench.coordinator.putEnded(CoordinatorBench.slot)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: first) == .superseded)
        bench.coordinator.putEnded(CoordinatorBench.slot)
        #expect(bench.coordinator.isIdle)

        let third = bench.coordinator.putBegan(CoordinatorBench.slot)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: third) == .commit)
    }

    @Test func `I3: a PUT that began before a purge is not put in place after it; one that begins later is`() {
        var bench = CoordinatorBench()
        let early = bench.coordinator.putBegan(CoordinatorBench.slot)
        _ = bench.purge()
        let late = bench.coordinator.putBegan(CoordinatorBench.slot)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: early) == .cancelled)
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: late) == .commit)
    }

    @Test func `I3, F56: no PUT is put in place after an ending`() {
        var bench = CoordinatorBench()
        let ticket = bench.coordinator.putBegan(CoordinatorBench.slot)
        _ = bench.end()
        #expect(bench.coordinator.putVerdict(CoordinatorBench.slot, ticket: ticket) == .cancelled)
        bench.coordinator.putEnded(CoordinatorBench.slot)
        #expect(bench.coordinator.isIdle)
    }

    @Test func `a PUT forgets that the image was missing`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.missing(until: bench.now + 300))
        let ticket = bench.coordinator.putBegan(CoordinatorBench.slot)
        _ = bench.putCommits(mine, ticket: ticket)
        #expect(bench.get("b") == ["read"])
    }
}
