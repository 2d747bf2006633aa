import Testing

@testable import CacheCore

/// What follows when an origin says that there is no image: 404 or 410.
@Suite struct NegativeCacheTests {
    private static let other = "https://other.test/x"
    private static let missing = RequestCoordinator.DownloadResult.missing(until: CoordinatorBench.start + 300)

    @Test func `a missing image is remembered as null, without a look on disk or a download, for a while`() {
        var bench = CoordinatorBench()
        bench.misses()
        #expect(bench.get("b") == ["b: null"])
        bench.now += 299
        #expect(bench.get("c") == ["c: null"])
        bench.now += 1
        #expect(bench.get("d") == ["read"])
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `F14: with the clock set back a missing image is asked for again`() {
        var bench = CoordinatorBench()
        bench.misses()
        bench.now -= 31_536_000
        #expect(bench.get("b") == ["read"])
    }

    @Test func `that a URL has no image says nothing of another URL`() {
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

    @Test func `I7: an image put since then is not removed`() {
        var bench = CoordinatorBench()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        bench.misses()
        _ = bench.putCommits(.sample("mine", from: nil), sequence: sequence)
        #expect(!bench.coordinator.mayDrop(bench.flight("drop")))
        #expect(bench.get("b") == ["read"])
    }

    @Test func `an image downloaded since then is not removed`() {
        var bench = CoordinatorBench()
        bench.misses()
        _ = bench.get("b", url: Self.other)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        #expect(!bench.coordinator.mayDrop(bench.flight("drop")))
    }

    @Test func `that a named URL has no image leaves alone what is held from elsewhere`() {
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

    @Test func `what came from one URL while another was asked stays, though the other has none`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.get("b", url: Self.other)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        #expect(bench.finishes(Self.missing) == ["a: null"])
        #expect(bench.coordinator.mayStore(bench.flight("store")))
        // What is held now is found on disk, where the template's URL was said to have nothing.
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.get("c") == ["read"])
        #expect(bench.readEnds(.sample("x", from: Self.other)) == ["c: x from disk"])
    }

    @Test func `what a named URL brought is found by a GET without one, though the template's URL has none`() {
        var bench = CoordinatorBench()
        bench.misses()
        _ = bench.get("b", url: Self.other)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.get("c") == ["read"])
    }

    @Test func `a look on disk that began before the removal brings nothing back`() {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("held"))
        #expect(bench.get("b") == ["read"])
        let read = bench.flight("read")
        #expect(bench.finishes(.missing(until: bench.now + 300)) == ["a: null", "b: null", "drop"])
        #expect(bench.readEnds(.sample("held"), flight: read) == nil)
    }

    @Test func `while the removal is under way nobody looks on disk`() {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("held"))
        // Not remembered: a negative time to live of zero.
        _ = bench.finishes(.missing(until: bench.now))
        #expect(bench.get("b", download: .never) == ["b: null"])
        #expect(bench.get("c") == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `an image on its way to the disk is not written once the origin says that there is none`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one", lifetime: 0), storable: true))
        let storing = bench.flight("store")
        #expect(bench.get("b") == ["b: one from memory, stale", "download \(CoordinatorBench.usual)"])
        #expect(bench.finishes(Self.missing) == ["drop"])
        #expect(!bench.coordinator.mayStore(storing))
    }

    @Test func `an image that may not be kept takes the place of an older one all the same`() {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        _ = bench.readEnds(.sample("old"))
        #expect(
            bench.finishes(.image(.sample("new", storedAt: bench.now), storable: false)) == [
                "a: new from origin", "drop",
            ])
    }

    @Test func `a purge of the profile forgets that it is missing`() {
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
        CacheFailure.badImage("HTML"), .tooLarge("7 MiB"), .forbidden("403"), .denied("redirect"), .origin("gzip"),
    ])
    func `a response without a usable image is remembered, and its failure is the answer for a while`(
        failure: CacheFailure
    ) {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        #expect(
            bench.finishes(.unusable(failure, until: bench.now + 300, family: 0))
                == ["a: \(CoordinatorBench.tell(.failure(failure)))"])
        bench.now += 100
        #expect(bench.get("b") == ["read"])
        let reason = NegativeReason(failure)?.failure(askedAgainIn: 200)
        #expect(bench.readEnds() == reason.map { ["b: \(CoordinatorBench.tell(.failure($0)))"] })
        #expect(bench.get("c", download: .never) == ["read"])
        #expect(bench.readEnds() == ["c: null"])
        bench.now += 200
        _ = bench.get("d")
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `a response that may not be used unasked is not remembered`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.unusable(.badImage("HTML"), until: bench.now, family: 0))
        _ = bench.get("b")
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test(arguments: ["purge", "PUT", "another URL", "other tokens", "the clock set back"])
    func `what ends the memory of a response without a usable image`(event: String) {
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

    @Test func `a stale image is served meanwhile, where the failure allows it, and the origin is not asked`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = .sample("held")
        let stale = "held from memory, stale"
        #expect(bench.get("a") == ["a: \(stale)", "download \(CoordinatorBench.usual)"])
        #expect(bench.finishes(.unusable(.badImage("HTML"), until: bench.now + 3_000, family: 0)) == [])
        #expect(bench.get("b") == ["b: \(stale)"])
        // Past what may be served while it is revalidated.
        bench.now += 1_000
        #expect(bench.get("c") == ["c: \(stale)"])
        _ = bench.purge()
        _ = bench.get("d")
        #expect(bench.finishes(.unusable(.forbidden("403"), until: bench.now + 300, family: 0)) != nil)
        #expect(bench.get("e").first?.hasPrefix("e: forbidden") == true)
    }

    @Test func `what was said to other tokens is not remembered`() {
        #expect(!CoordinatorBench().coordinator.suits(.unusable(.forbidden("403"), until: 1, family: 7)))
    }

    @Test func `I8: no more missing images are remembered than the limit says; the oldest are forgotten first`() {
        var bench = CoordinatorBench(absenceLimit: 3)
        for number in 0..<5 { bench.misses(url: "https://other.test/\(number)") }
        let remembered = (0..<5).map { number in
            bench.get("b\(number)", url: "https://other.test/\(number)") == ["b\(number): null"]
        }
        #expect(remembered == [false, false, true, true, true])
    }

    @Test func `I8: a limit of none remembers none`() {
        var bench = CoordinatorBench(absenceLimit: 0)
        bench.misses()
        #expect(bench.get("b") == ["read"])
    }
}

extension CoordinatorBench {
    /// Somebody asks for an image that is not held, and the origin has none either.
    fileprivate mutating func misses(url: String? = nil) {
        _ = get("a", url: url)
        _ = readEnds()
        _ = finishes(.missing(until: now + 300), url: url ?? CoordinatorBench.usual)
        coordinator.dropped(flight("drop"))
    }
}
