import Testing

@testable import CacheCore

/// Races of conditional downloads, as lists of events and effects.
@Suite struct RevalidationCoordinatorTests {
    private static let other = "https://other.test/x"
    private static let conditional = "download \(CoordinatorBench.usual) unless it is held"
    private let held = Image.sample("held", etag: "\"1\"")

    /// The result of a 304 for `held`.
    private func confirmed(at now: Int64, storable: Bool = true) -> RequestCoordinator.DownloadResult {
        .confirmed(.sample("held", storedAt: now, etag: "\"1\""), storable: storable)
    }

    /// A bench in which a GET has found an expired image on disk and started a conditional download.
    private func revalidating() -> CoordinatorBench {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("a")
        #expect(bench.readEnds(held) == [Self.conditional])
        return bench
    }

    @Test func `RFC 9111 section 4.3.1: a stored image is revalidated, however stale it is`() {
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

    @Test func `an image without a validator or from another URL is not used for a condition`() {
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

    @Test func `a GET with a URL revalidates only an image from that URL`() {
        var bench = CoordinatorBench()
        bench.now += 4_200
        bench.memory = .sample("held", from: Self.other, etag: "\"1\"")
        #expect(bench.get("a", url: Self.other) == ["download \(Self.other) unless it is held"])
        #expect(bench.get("b", url: "https://other.test/y") == ["download https://other.test/y"])
    }

    @Test func `a 304 answers all waiters in order and stores the confirmed image`() {
        var bench = revalidating()
        bench.memory = held
        #expect(bench.get("b") == [])
        #expect(
            bench.finishes(confirmed(at: bench.now)) == [
                "a: held from revalidated", "b: held from revalidated", "store held",
            ])
        // The next GET gets it from memory, fresh.
        #expect(bench.get("c") == ["c: held from memory"])
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.coordinator.isIdle)
    }

    @Test func `a 304 that must not be stored answers the waiters and stores nothing`() {
        var bench = revalidating()
        #expect(bench.finishes(confirmed(at: bench.now, storable: false)) == ["a: held from revalidated", "drop"])
    }

    @Test func `a 200 replaces the stored image`() {
        var bench = revalidating()
        #expect(
            bench.finishes(.image(.sample("new", storedAt: bench.now), storable: true)) == [
                "a: new from origin", "store new",
            ])
    }

    @Test func `I3: a 304 that arrives after a purge is discarded`() {
        var bench = revalidating()
        _ = bench.starts()
        #expect(bench.purge().effects == ["a: cancelled", "cancel \(CoordinatorBench.usual)"])
        #expect(bench.finishes(confirmed(at: bench.now)) == nil)
        #expect(bench.restarts() == [])
        #expect(!bench.coordinator.mayStore(bench.flight(CoordinatorBench.usual)))
        // The new download is unconditional because nothing is stored.
        _ = bench.get("b")
        #expect(bench.readEnds() == ["download \(CoordinatorBench.usual)"])
    }

    @Test func `I3: a confirmed image that waits to be written is not written after a purge`() {
        var bench = revalidating()
        _ = bench.finishes(confirmed(at: bench.now))
        let storing = bench.flight("store")
        #expect(bench.coordinator.mayStore(storing))
        _ = bench.purge()
        #expect(!bench.coordinator.mayStore(storing))
    }

    @Test func `I7: a 304 that arrives after a PUT is discarded; the waiters got the PUT's image`() {
        var bench = revalidating()
        _ = bench.starts()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(
            bench.putCommits(.sample("mine", from: nil, lifetime: nil), sequence: sequence) == [
                "a: mine from put", "cancel \(CoordinatorBench.usual)",
            ])
        #expect(bench.finishes(confirmed(at: bench.now)) == nil)
    }

    @Test func `I7: a confirmed image that waits to be written gives way to a PUT that began before it`() {
        var bench = revalidating()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        _ = bench.finishes(confirmed(at: bench.now))
        _ = bench.putCommits(.sample("mine", from: nil), sequence: sequence)
        #expect(!bench.coordinator.mayStore(bench.flight("store")))
    }

    @Test func `a 304 for an image that was evicted meanwhile restores it from the download's copy`() {
        var bench = revalidating()
        bench.memory = nil
        #expect(bench.get("b") == ["read"])
        let read = bench.flight("read")
        // The disk lookup finds nothing; its waiter joins the download.
        #expect(bench.readEnds(nil, flight: read) == [])
        #expect(
            bench.finishes(confirmed(at: bench.now)) == [
                "a: held from revalidated", "b: held from revalidated", "store held",
            ])
    }

    @Test func `a disk lookup that began before a 304 does not return an older image`() {
        var bench = revalidating()
        #expect(bench.get("b") == ["read"])
        let read = bench.flight("read")
        #expect(
            bench.finishes(confirmed(at: bench.now)) == [
                "a: held from revalidated", "b: held from revalidated", "store held",
            ])
        #expect(bench.readEnds(held, flight: read) == nil)
    }

    @Test func `a 304 for another image is followed by one unconditional request for the same waiters`() {
        var bench = revalidating()
        _ = bench.starts()
        let first = bench.flight(CoordinatorBench.usual)
        #expect(bench.restarts() == ["download \(CoordinatorBench.usual)"])
        // Late results of the first request do not affect the second.
        #expect(bench.starts(flight: first) == ["cancel \(CoordinatorBench.usual)"])
        #expect(bench.finishes(confirmed(at: bench.now), flight: first) == nil)
        #expect(bench.restarts(flight: first) == [])
        bench.memory = held
        #expect(bench.get("b") == [])
        #expect(
            bench.finishes(.image(.sample("new", storedAt: bench.now), storable: true)) == [
                "a: new from origin", "b: new from origin", "store new",
            ])
    }

    @Test func `I3: a purge also cancels the second request`() {
        var bench = revalidating()
        _ = bench.restarts()
        _ = bench.starts()
        #expect(bench.purge().effects == ["a: cancelled", "cancel \(CoordinatorBench.usual)"])
    }

    @Test
    func `RFC 5861 section 3: of many stale hits only the first starts a revalidation until it ends`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = held
        #expect(bench.get("a") == ["a: held from memory, stale", Self.conditional])
        #expect(bench.get("b") == ["b: held from memory, stale"])
        bench.memory = nil
        #expect(bench.get("c") == ["read"])
        #expect(bench.readEnds(held) == ["c: held from disk, stale"])
        // After a failure of the origin the next attempt follows a second later.
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
        `RFC 5861 section 4: while the origin is down, a stale image is served to every request`()
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

    @Test func `a 404 in the background removes the stale image`() {
        var bench = CoordinatorBench()
        bench.now += 3_700
        bench.memory = held
        _ = bench.get("a")
        #expect(bench.finishes(.missing(until: bench.now + 300)) == ["drop"])
        bench.memory = nil
        #expect(bench.get("b") == ["b: null"])
    }
}
