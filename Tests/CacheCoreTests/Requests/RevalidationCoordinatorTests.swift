import Testing

@testable import CacheCore

/// Races of a download that asks only for what is no longer held, written down as what happened and what followed.
@Suite struct RevalidationCoordinatorTests {
    private static let other = "https://other.test/x"
    private static let conditional = "download \(CoordinatorBench.usual) unless it is held"
    private let held = Image.sample("held", etag: "\"1\"")

    /// `held` again, as a 304 has it.
    private func confirmed(at now: Int64, storable: Bool = true) -> RequestCoordinator.DownloadResult {
        .confirmed(.sample("held", storedAt: now, etag: "\"1\""), storable: storable)
    }

    /// An image that is past every window was found on disk, and the origin is asked about it.
    private func asking() -> CoordinatorBench {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        #expect(bench.readEnds(held) == [Self.conditional])
        return bench
    }

    @Test func `RFC 9111 section 4.3.1: what is held is asked about, however stale it is`() {
        for (age, effects) in [
            (3_600, ["a: held from disk, stale", Self.conditional]), (4_200, [Self.conditional]),
            (7_200, [Self.conditional]), (1_000_000, [Self.conditional]),
        ] {
            var bench = CoordinatorBench()
            bench.now += Int64(age)
            _ = bench.get("a")
            #expect(bench.readEnds(held) == effects)
        }
    }

    @Test func `without a validator, or from elsewhere, an image is asked for whatever is held`() {
        for image in [
            Image.sample("held"), .sample("held", from: Self.other, etag: "\"1\""),
            .sample("held", from: nil, etag: "\"1\""),
        ] {
            var bench = CoordinatorBench()
            bench.now += 4_200
            _ = bench.get("a")
            #expect(bench.readEnds(image) == ["download \(CoordinatorBench.usual)"])
        }
    }

    @Test func `who names a URL asks about what came from there, and about nothing else`() {
        var bench = CoordinatorBench()
        bench.now += 4_200
        bench.memory = .sample("held", from: Self.other, etag: "\"1\"")
        #expect(bench.get("a", url: Self.other) == ["download \(Self.other) unless it is held"])
        #expect(bench.get("b", url: "https://other.test/y") == ["download https://other.test/y"])
    }

    @Test func `a 304 answers all who wait, in order, and writes what is held anew`() {
        var bench = asking()
        bench.memory = held
        #expect(bench.get("b") == [])
        #expect(
            bench.finishes(confirmed(at: bench.now)) == [
                "a: held from revalidated", "b: held from revalidated", "store held",
            ])
        // The next one has it from memory, and fresh.
        #expect(bench.get("c") == ["c: held from memory"])
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.coordinator.isIdle)
    }

    @Test func `a 304 that may not be stored answers and leaves nothing`() {
        var bench = asking()
        #expect(bench.finishes(confirmed(at: bench.now, storable: false)) == ["a: held from revalidated", "drop"])
    }

    @Test func `a 200 replaces what was held`() {
        var bench = asking()
        #expect(
            bench.finishes(.image(.sample("new", storedAt: bench.now), storable: true)) == [
                "a: new from origin", "store new",
            ])
    }

    @Test func `I3: a 304 that ends after a purge reaches nobody and writes nothing`() {
        var bench = asking()
        _ = bench.starts()
        #expect(bench.purge().effects == ["a: cancelled", "cancel \(CoordinatorBench.usual)"])
        #expect(bench.finishes(confirmed(at: bench.now)) == nil)
        #expect(bench.asksAgain() == [])
        #expect(!bench.coordinator.mayStore(bench.flight(CoordinatorBench.usual)))
        // A new download is unconditional: nothing is held any more.
        _ = bench.get("b")
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `I3: a 304 on its way to the disk is not written after a purge`() {
        var bench = asking()
        _ = bench.finishes(confirmed(at: bench.now))
        let storing = bench.flight("store")
        #expect(bench.coordinator.mayStore(storing))
        _ = bench.purge()
        #expect(!bench.coordinator.mayStore(storing))
    }

    @Test func `I7: a 304 that ends after a PUT is ignored, and its waiters had the PUT's image`() {
        var bench = asking()
        _ = bench.starts()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(
            bench.putCommits(.sample("mine", from: nil, lifetime: nil), sequence: sequence) == [
                "a: mine from put", "cancel \(CoordinatorBench.usual)",
            ])
        #expect(bench.finishes(confirmed(at: bench.now)) == nil)
    }

    @Test func `I7: a 304 on its way to the disk gives way to a PUT that began before it`() {
        var bench = asking()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.finishes(confirmed(at: bench.now))
        _ = bench.putCommits(.sample("mine", from: nil), sequence: sequence)
        #expect(!bench.coordinator.mayStore(bench.flight("store")))
    }

    @Test func `a 304 for what was evicted meanwhile brings it back: its bytes were kept for the answer`() {
        var bench = asking()
        bench.memory = nil
        #expect(bench.get("b") == ["read"])
        let read = bench.flight("read")
        // Nothing is found on disk any more; who looked there waits for the same answer.
        #expect(bench.readEnds(nil, flight: read) == [])
        #expect(
            bench.finishes(confirmed(at: bench.now)) == [
                "a: held from revalidated", "b: held from revalidated", "store held",
            ])
    }

    @Test func `a look on disk that began before a 304 brings back nothing older`() {
        var bench = asking()
        #expect(bench.get("b") == ["read"])
        let read = bench.flight("read")
        #expect(
            bench.finishes(confirmed(at: bench.now)) == [
                "a: held from revalidated", "b: held from revalidated", "store held",
            ])
        #expect(bench.readEnds(held, flight: read) == nil)
    }

    @Test func `a 304 about something else is asked again, once, without a condition, for the same waiters`() {
        var bench = asking()
        _ = bench.starts()
        let first = bench.flight(CoordinatorBench.usual)
        #expect(bench.asksAgain() == ["download \(CoordinatorBench.usual)"])
        // What is still to be heard of the first request is not about the second.
        #expect(bench.starts(flight: first) == ["cancel \(CoordinatorBench.usual)"])
        #expect(bench.finishes(confirmed(at: bench.now), flight: first) == nil)
        #expect(bench.asksAgain(flight: first) == [])
        bench.memory = held
        #expect(bench.get("b") == [])
        #expect(
            bench.finishes(.image(.sample("new", storedAt: bench.now), storable: true)) == [
                "a: new from origin", "b: new from origin", "store new",
            ])
    }

    @Test func `I3: a purge stops the second request as it does the first`() {
        var bench = asking()
        _ = bench.asksAgain()
        _ = bench.starts()
        #expect(bench.purge().effects == ["a: cancelled", "cancel \(CoordinatorBench.usual)"])
    }

    @Test
    func `RFC 5861 section 3: of many who are served stale only the first has it revalidated, until that has ended`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = held
        #expect(bench.get("a") == ["a: held from memory, stale", Self.conditional])
        #expect(bench.get("b") == ["b: held from memory, stale"])
        bench.memory = nil
        #expect(bench.get("c") == ["read"])
        #expect(bench.readEnds(held) == ["c: held from disk, stale"])
        // The origin fails: nobody is told, and it is tried again a second later.
        #expect(bench.finishes(.failed(.origin("HTTP status 503"))) == [])
        bench.memory = held
        #expect(bench.get("d") == ["d: held from memory, stale"])
        bench.now += 1
        #expect(bench.get("d") == ["d: held from memory, stale", Self.conditional])
        #expect(bench.finishes(confirmed(at: bench.now)) == ["store held"])
        #expect(bench.get("e") == ["e: held from memory"])
    }

    @Test
    func
        `RFC 5861 section 4: with the origin dead a stale image is served as often as it is asked for`()
    {
        var bench = CoordinatorBench()
        bench.now += 4_300
        for round in 0..<3 {
            _ = bench.get("a\(round)")
            #expect(bench.readEnds(held) == [Self.conditional])
            #expect(bench.finishes(.failed(.timedOut("late"))) == ["a\(round): held from disk, stale"])
            bench.memory = held
            #expect(bench.get("b\(round)") == [Self.conditional])
            #expect(bench.finishes(.failed(.origin("refused"))) == ["b\(round): held from memory, stale"])
            bench.memory = nil
        }
        bench.now += 3_000
        _ = bench.get("c")
        _ = bench.readEnds(held)
        #expect(bench.finishes(.failed(.timedOut("late"))) == ["c: timeout"])
    }

    @Test func `a 404 in the background removes what was served stale`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = held
        _ = bench.get("a")
        #expect(bench.finishes(.missing(until: bench.now + 300)) == ["drop"])
        bench.memory = nil
        #expect(bench.get("b") == ["b: null"])
    }
}
