import Testing

@testable import ThumbnailCache

@Suite struct PutTrafficTests {
    private let mine = Image.sample("mine", from: nil, lifetime: nil)

    @Test func `I7: a PUT ends the downloads that began before it, and their waiters get its image, in order`() {
        var bench = TrafficBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.starts()
        _ = bench.get("b", url: "https://other.test/x")
        let ticket = bench.traffic.putBegan(TrafficBench.slot)
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: ticket) == .commit)
        #expect(
            bench.putCommits(mine, ticket: ticket)
                == ["a: mine from put", "b: mine from put", "cancel \(TrafficBench.usual)"])
        bench.traffic.putEnded(TrafficBench.slot)
        #expect(bench.traffic.isIdle)
        #expect(bench.finishes(.image(.sample("late"), storable: true)) == nil)
    }

    @Test func `I7: a PUT beats a downloaded image that is on its way to the disk`() {
        var bench = TrafficBench()
        let ticket = bench.traffic.putBegan(TrafficBench.slot)
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one"), storable: true))
        _ = bench.putCommits(mine, ticket: ticket)
        #expect(!bench.traffic.mayStore(TrafficBench.slot, bench.flight("store")))
    }

    @Test func `I7: a look on disk that began before the PUT brings nothing older back`() {
        var bench = TrafficBench()
        _ = bench.get("a")
        let ticket = bench.traffic.putBegan(TrafficBench.slot)
        #expect(bench.putCommits(mine, ticket: ticket) == ["a: mine from put"])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `a download that began after the PUT was in place is not ended by it`() {
        var bench = TrafficBench()
        let ticket = bench.traffic.putBegan(TrafficBench.slot)
        _ = bench.putCommits(mine, ticket: ticket)
        bench.traffic.putEnded(TrafficBench.slot)
        bench.memory = mine
        _ = bench.get("a", url: "https://other.test/x")
        #expect(
            bench.finishes(.image(.sample("x", from: "https://other.test/x"), storable: true), url: "https://other.test/x")
                == ["a: x from origin", "store x"])
    }

    @Test func `of two PUTs the later one stays, whichever is in place first`() {
        var bench = TrafficBench()
        let first = bench.traffic.putBegan(TrafficBench.slot)
        let second = bench.traffic.putBegan(TrafficBench.slot)
        _ = bench.putCommits(mine, ticket: second)
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: first) == .superseded)
        bench.traffic.putEnded(TrafficBench.slot)
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: first) == .superseded)
        bench.traffic.putEnded(TrafficBench.slot)
        #expect(bench.traffic.isIdle)

        let third = bench.traffic.putBegan(TrafficBench.slot)
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: third) == .commit)
    }

    @Test func `I3: a PUT that began before a purge is not put in place after it; one that begins later is`() {
        var bench = TrafficBench()
        let early = bench.traffic.putBegan(TrafficBench.slot)
        _ = bench.purge()
        let late = bench.traffic.putBegan(TrafficBench.slot)
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: early) == .cancelled)
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: late) == .commit)
    }

    @Test func `I3, F56: no PUT is put in place after an ending`() {
        var bench = TrafficBench()
        let ticket = bench.traffic.putBegan(TrafficBench.slot)
        _ = bench.end()
        #expect(bench.traffic.putVerdict(TrafficBench.slot, ticket: ticket) == .cancelled)
        bench.traffic.putEnded(TrafficBench.slot)
        #expect(bench.traffic.isIdle)
    }

    @Test func `a PUT forgets that the image was missing`() {
        var bench = TrafficBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.missing(until: bench.now + 300))
        let ticket = bench.traffic.putBegan(TrafficBench.slot)
        _ = bench.putCommits(mine, ticket: ticket)
        #expect(bench.get("b") == ["read"])
    }
}
