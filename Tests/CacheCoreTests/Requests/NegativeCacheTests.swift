import Testing

@testable import CacheCore

/// Remembered responses without an image: 404, 410, and responses whose body is unusable.
@Suite struct NegativeCacheTests {
    private static let other = "https://other.test/x"
    private static let missing = RequestCoordinator.DownloadResult.missing(until: CoordinatorBench.start + 300)

    @Test func `a missing image is remembered as null, without a disk lookup or download, until it expires`() {
        var bench = CoordinatorBench()
        bench.misses()
        #expect(bench.get("b") == ["b: null"])
        bench.now += 299
        #expect(bench.get("c") == ["c: null"])
        bench.now += 1
        #expect(bench.get("d") == ["read"])
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `F14: if the clock is set back, a missing image is requested again`() {
        var bench = CoordinatorBench()
        bench.misses()
        bench.now -= 31_536_000
        #expect(bench.get("b") == ["read"])
    }

    @Test func `a 404 of one URL does not apply to another URL`() {
        var bench = CoordinatorBench()
        bench.misses()
        #expect(bench.get("b", url: Self.other) == ["read"])
        #expect(bench.readEnds() == ["download \(Self.other)"])
    }

    @Test func `an image that the origin no longer has is removed`() {
        var bench = CoordinatorBench()
        bench.now += 4_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("held"))
        #expect(bench.finishes(.missing(until: bench.now + 300)) == ["a: null", "drop"])
        #expect(bench.coordinator.mayDrop(bench.flight("drop")))
        bench.coordinator.dropped(bench.flight("drop"))
        #expect(bench.coordinator.isIdle)
    }

    @Test func `I7: an image that was PUT after the 404 is not removed`() {
        var bench = CoordinatorBench()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        bench.misses()
        _ = bench.putCommits(.sample("mine", from: nil), sequence: sequence)
        #expect(!bench.coordinator.mayDrop(bench.flight("drop")))
        #expect(bench.get("b") == ["read"])
    }

    @Test func `an image that was downloaded after the 404 is not removed`() {
        var bench = CoordinatorBench()
        bench.misses()
        _ = bench.get("b", url: Self.other)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        #expect(!bench.coordinator.mayDrop(bench.flight("drop")))
    }

    @Test func `a 404 of a named URL does not remove an image from another source`() {
        for held in [Image.sample("held"), .sample("mine", from: nil, lifetime: nil)] {
            var bench = CoordinatorBench()
            bench.memory = held
            _ = bench.get("a", url: Self.other)
            #expect(bench.finishes(Self.missing, url: Self.other) == ["a: null"])
            #expect(bench.get("b") == ["b: \(held.label) from memory"])
            bench.memory = nil
            #expect(bench.get("c", url: Self.other) == ["c: null"])
        }
    }

    @Test func `a 404 of one URL does not remove an image that came from another meanwhile`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.get("b", url: Self.other)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        #expect(bench.finishes(Self.missing) == ["a: null"])
        #expect(bench.coordinator.mayStore(bench.flight("store")))
        // The stored image is found on disk despite the remembered 404 of the template's URL.
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.get("c") == ["read"])
        #expect(bench.readEnds(.sample("x", from: Self.other)) == ["c: x from disk"])
    }

    @Test func `an image from a named URL is returned by a GET without URL despite a 404 of the template's URL`() {
        var bench = CoordinatorBench()
        bench.misses()
        _ = bench.get("b", url: Self.other)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.get("c") == ["read"])
    }

    @Test func `a disk lookup that began before the removal does not return the removed image`() {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("held"))
        #expect(bench.get("b") == ["read"])
        let read = bench.flight("read")
        #expect(bench.finishes(.missing(until: bench.now + 300)) == ["a: null", "b: null", "drop"])
        #expect(bench.readEnds(.sample("held"), flight: read) == nil)
    }

    @Test func `no disk lookup starts during the removal`() {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("held"))
        // A lifetime of zero: the 404 is not remembered.
        _ = bench.finishes(.missing(until: bench.now))
        #expect(bench.get("b", download: .never) == ["b: null"])
        #expect(bench.get("c") == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `an image that waits to be written is not written after a 404`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one", lifetime: 0), storable: true))
        let storing = bench.flight("store")
        #expect(bench.get("b") == ["b: one from memory, stale", "download \(CoordinatorBench.usual)"])
        #expect(bench.finishes(Self.missing) == ["drop"])
        #expect(!bench.coordinator.mayStore(storing))
    }

    @Test func `an image that must not be stored replaces an older one`() {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("old"))
        #expect(
            bench.finishes(.image(.sample("new", storedAt: bench.now), storable: false)) == [
                "a: new from origin", "drop",
            ])
    }

    @Test func `a purge of a profile removes its remembered 404`() {
        var bench = CoordinatorBench()
        bench.misses()
        _ = bench.purge("carol")
        #expect(bench.get("b") == ["b: null"])
        _ = bench.purge("bob")
        #expect(bench.get("c") == ["read"])
    }

    private static let html = RequestCoordinator.DownloadResult.unusable(
        .badImage("HTML"), until: CoordinatorBench.start + 300, family: 0)

    @Test(arguments: [
        FetchFailure.badImage("HTML"), .tooLarge("7 MiB"), .forbidden("403"), .denied("redirect"), .origin("gzip"),
    ])
    func `a response without a usable image is remembered, and its failure is returned until it expires`(
        failure: FetchFailure
    ) {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        #expect(
            bench.finishes(.unusable(failure, until: bench.now + 300, family: 0))
                == ["a: \(CoordinatorBench.describe(.failure(CacheFailure(failure))))"])
        bench.now += 100
        #expect(bench.get("b") == ["read"])
        let remembered = CacheFailure(FetchFailure(remembered: failure.kind, retryIn: 200))
        #expect(bench.readEnds() == ["b: \(CoordinatorBench.describe(.failure(remembered)))"])
        #expect(bench.get("c", download: .never) == ["read"])
        #expect(bench.readEnds() == ["c: null"])
        bench.now += 200
        _ = bench.get("d")
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `a response with a lifetime of zero is not remembered`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.unusable(.badImage("HTML"), until: bench.now, family: 0))
        _ = bench.get("b")
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test(arguments: ["purge", "PUT", "another URL", "other tokens", "the clock set back"])
    func `purge, PUT, another URL, other tokens and an earlier clock each invalidate a remembered failure`(
        event: String
    ) {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(Self.html)
        var url: String?
        switch event {
        case "purge": _ = bench.purge()
        case "PUT":
            let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
            _ = bench.putCommits(.sample("mine", from: nil), sequence: sequence)
            bench.coordinator.putEnded(CoordinatorBench.imageKey)
        case "another URL": url = Self.other
        case "other tokens": _ = bench.end()
        default: bench.now -= 1
        }
        _ = bench.get("b", url: url)
        #expect(bench.readEnds() == ["download \(url ?? CoordinatorBench.usual)"])
    }

    @Test
    func
        `while a failure is remembered, a stale image is served if the failure allows it, without a request to the origin`()
    {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        let stale = "held from memory, stale"
        #expect(bench.get("a") == ["a: \(stale)", "download \(CoordinatorBench.usual)"])
        #expect(bench.finishes(.unusable(.badImage("HTML"), until: bench.now + 3_000, family: 0)) == [])
        #expect(bench.get("b") == ["b: \(stale)"])
        // Past stale-while-revalidate.
        bench.now += 1_000
        #expect(bench.get("c") == ["c: \(stale)"])
        _ = bench.purge()
        _ = bench.get("d")
        #expect(bench.finishes(.unusable(.forbidden("403"), until: bench.now + 300, family: 0)) != nil)
        #expect(bench.get("e").first?.hasPrefix("e: forbidden") == true)
    }

    @Test func `a response to other tokens is not remembered`() {
        #expect(!CoordinatorBench().coordinator.suitsTokens(.unusable(.forbidden("403"), until: 1, family: 7)))
    }

    @Test func `I8: the number of remembered 404s is limited; the oldest are dropped first`() {
        var bench = CoordinatorBench(absenceLimit: 3)
        for number in 0..<5 { bench.misses(url: "https://other.test/\(number)") }
        let remembered = (0..<5).map { number in
            bench.get("b\(number)", url: "https://other.test/\(number)") == ["b\(number): null"]
        }
        #expect(remembered == [false, false, true, true, true])
    }

    @Test func `I8: a limit of zero remembers nothing`() {
        var bench = CoordinatorBench(absenceLimit: 0)
        bench.misses()
        #expect(bench.get("b") == ["read"])
    }
}

extension CoordinatorBench {
    /// A GET of an image that is neither stored nor at the origin.
    fileprivate mutating func misses(url: String? = nil) {
        _ = get("a", url: url)
        _ = readEnds()
        _ = finishes(.missing(until: now + 300), url: url ?? CoordinatorBench.usual)
        coordinator.dropped(flight("drop"))
    }
}
