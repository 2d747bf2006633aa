import Testing

@testable import CacheCore

@Suite struct SingleFlightTests {
    private var bench = CoordinatorBench()

    @Test
    mutating func `I6: GETs of one missing image share one disk lookup and one download and are answered in order`() {
        #expect(bench.get("a") == ["read"])
        #expect(bench.get("b") == [])
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
        #expect(bench.starts() == [])
        // The lookup's result is not known yet: the third GET starts one and then joins the download.
        #expect(bench.get("c") == ["read"])
        #expect(bench.readEnds() == [])
        #expect(
            bench.finishes(.image(.sample("one"), storable: true))
                == ["a: one from origin", "b: one from origin", "c: one from origin", "store one"])
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.coordinator.isIdle)
    }

    @Test(arguments: [
        (RequestCoordinator.DownloadResult.image(.sample("one"), storable: true), "one from origin"),
        (.image(.sample("one"), storable: false), "one from origin"),
        (.missing(until: CoordinatorBench.start + 300), "null"),
        (.failed(.origin("status 500")), "origin status 500"),
        (.failed(.timedOut("late")), "timeout"),
    ])
    func `I6: every waiter gets the same outcome`(
        result: RequestCoordinator.DownloadResult, answer: String
    ) {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.get("b")
        _ = bench.readEnds()
        #expect(bench.finishes(result)?.prefix(2) == ["a: \(answer)", "b: \(answer)"])
    }

    @Test mutating func `I6: different sizes of a profile are different flights`() {
        let other = ImageKey(profile: CoordinatorBench.imageKey.profile, size: 32)
        #expect(bench.get("a") == ["read"])
        #expect(bench.get("b", imageKey: other) == ["read"])
    }

    @Test mutating func `I6: a waiter that leaves cancels nothing while another waits`() {
        _ = bench.get("a")
        _ = bench.get("b")
        _ = bench.readEnds()
        _ = bench.starts()
        #expect(bench.leaves("a") == [])
        #expect(bench.finishes(.image(.sample("one"), storable: false))?.first == "b: one from origin")
    }

    @Test mutating func `I6: a waiter that leaves during the disk lookup is not answered`() {
        _ = bench.get("a")
        _ = bench.get("b")
        #expect(bench.leaves("a") == [])
        #expect(bench.readEnds(.sample("kept")) == ["b: kept from disk"])
        #expect(bench.coordinator.isIdle)
    }

    @Test mutating func `I6: a flight without waiters is cancelled after its grace period`() {
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.starts()
        #expect(bench.leaves("a") == ["grace \(CoordinatorBench.usual)"])
        #expect(bench.graceEnds() == ["cancel \(CoordinatorBench.usual)"])
        #expect(bench.coordinator.isIdle)
        // A late result is discarded.
        #expect(bench.finishes(.image(.sample("late"), storable: true)) == nil)
    }

    @Test mutating func `F54: a client that returns within the grace period joins the same flight`() {
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.starts()
        #expect(bench.expires("a") == ["a: timeout", "grace \(CoordinatorBench.usual)"])
        #expect(bench.get("b") == ["read"])
        #expect(bench.readEnds() == [])
        #expect(bench.graceEnds() == [])
        #expect(bench.finishes(.image(.sample("one"), storable: false))?.first == "b: one from origin")
    }

    @Test mutating func `F54: the grace period starts over each time the last waiter leaves`() {
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.starts()
        _ = bench.leaves("a")
        let first = bench.lastGrace
        _ = bench.get("b")
        _ = bench.readEnds()
        #expect(bench.leaves("b") == ["grace \(CoordinatorBench.usual)"])
        // The first grace period ends shortly after the second has begun.
        #expect(bench.graceEnds(first) == [])
        #expect(bench.graceEnds() == ["cancel \(CoordinatorBench.usual)"])
    }

    @Test
    mutating func `I6: a flight cancelled before the fetcher returns its handle is cancelled when the handle arrives`()
    {
        _ = bench.get("a")
        _ = bench.readEnds()
        #expect(bench.end().cancelled == 1)
        #expect(bench.starts() == ["cancel \(CoordinatorBench.usual)"])
    }

    @Test mutating func `I6: the outcome of an old flight does not affect a newer one`() {
        _ = bench.get("a")
        _ = bench.readEnds()
        let old = bench.flight(CoordinatorBench.usual)
        _ = bench.purge()
        _ = bench.get("b")
        _ = bench.readEnds()
        #expect(bench.flight(CoordinatorBench.usual) != old)
        #expect(bench.finishes(.image(.sample("old"), storable: true), flight: old) == nil)
        #expect(bench.starts(flight: old) == ["cancel \(CoordinatorBench.usual)"])
        #expect(bench.finishes(.image(.sample("new"), storable: false))?.first == "b: new from origin")
    }

    @Test mutating func `I6: an old disk lookup does not end a newer one`() {
        _ = bench.get("a")
        let old = bench.flight("read")
        _ = bench.purge()
        _ = bench.get("b")
        #expect(bench.readEnds(.sample("old"), flight: old) == nil)
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test mutating func `a waiter can leave only once and only for itself`() {
        _ = bench.get("a")
        _ = bench.readEnds()
        #expect(bench.leaves("a") == ["grace \(CoordinatorBench.usual)"])
        #expect(bench.leaves("a") == [])
        #expect(bench.expires("a") == [])
    }

    @Test mutating func `F40: closing the coordinator answers all waiters and cancels all downloads`() {
        _ = bench.get("a")
        _ = bench.get("b")
        _ = bench.readEnds()
        _ = bench.starts()
        _ = bench.get("c", url: "https://other.test/x")
        let ended = bench.end()
        #expect(ended.cancelled == 1)
        #expect(
            ended.effects == ["a: cancelled", "b: cancelled", "c: cancelled", "cancel \(CoordinatorBench.usual)"])
        #expect(bench.coordinator.isIdle)
    }

    @Test mutating func `F40: a purge of a profile ends its flights in every size and no others`() {
        let other = ImageKey(profile: CoordinatorBench.imageKey.profile, size: 32)
        let otherKey = ImageKey(profile: .init("carol"), size: 64)
        _ = bench.get("a")
        _ = bench.get("b", imageKey: other)
        _ = bench.get("c", imageKey: otherKey)
        #expect(Set(bench.purge().effects) == ["a: cancelled", "b: cancelled"])
        #expect(bench.readEnds(.sample("kept")) == ["c: kept from disk"])
    }

    @Test mutating func `F40: a downloaded image that is not yet stored at a purge is not stored`() {
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one"), storable: true))
        let flight = bench.flight("store")
        #expect(bench.coordinator.mayStore(flight))
        _ = bench.purge()
        #expect(!bench.coordinator.mayStore(flight))
        bench.coordinator.stored(flight)
        #expect(bench.coordinator.isIdle)
    }
}
