import Testing

@testable import CacheCore

/// What stands in for an image of a size that nobody has. The image asked for is 64 pixels wide, the one found 96.
@Suite struct LargerCoordinatorTests {
    private static let download = "download \(CoordinatorBench.usual)"

    /// Somebody waits for the look that follows where there is no origin.
    private func looking() -> CoordinatorBench {
        var bench = CoordinatorBench()
        bench.route = .success(nil)
        _ = bench.get("a", larger: true)
        #expect(bench.readEnds() == ["find larger"])
        return bench
    }

    @Test func `I6: however many ask, one look answers all, in the order they came`() {
        var bench = looking()
        _ = bench.get("b", larger: true)
        #expect(bench.readEnds() == [])
        #expect(bench.largerEnds(.sample("96")) == ["a: 96 from disk", "b: 96 from disk"])
        #expect(bench.coordinator.isIdle)
    }

    @Test func `nothing is looked for where only that size will do, or only what is at a URL`() {
        var bench = CoordinatorBench()
        bench.route = .success(nil)
        _ = bench.get("a")
        #expect(bench.readEnds() == ["a: null"])
        let whole = ImageKey(profile: CoordinatorBench.imageKey.profile)
        _ = bench.get("b", larger: true, imageKey: whole)
        #expect(bench.readEnds() == ["b: null"])
        _ = bench.get("c", url: "https://other.test/x", larger: true)
        _ = bench.readEnds()
        #expect(bench.finishes(.missing(until: bench.now + 60), url: "https://other.test/x") == ["c: null", "drop"])
    }

    @Test func `the origin is asked first; with CACHED nobody is, and it is not known that there is none`() {
        var bench = CoordinatorBench()
        _ = bench.get("a", larger: true)
        #expect(bench.readEnds() == [Self.download])
        _ = bench.get("b", download: .never, larger: true)
        #expect(bench.readEnds() == ["b: null"])
        #expect(bench.finishes(.missing(until: bench.now + 60)) == ["find larger", "drop"])
        #expect(bench.largerEnds(.sample("96")) == ["a: 96 from disk"])
        #expect(bench.get("c", download: .never, larger: true) == ["find larger"])
        #expect(bench.get("d", larger: true) == [])
    }

    @Test func `that there is none is remembered with the origin's word, until an image of the profile comes`() {
        var bench = CoordinatorBench()
        _ = bench.get("a", larger: true)
        _ = bench.readEnds()
        _ = bench.finishes(.missing(until: bench.now + 60))
        // An image came while it was looked for: what was not found says nothing.
        #expect(bench.largerEnds(isConclusive: false) == ["a: null"])
        #expect(bench.get("b", larger: true) == ["find larger"])
        #expect(bench.largerEnds() == ["b: null"])
        #expect(bench.get("c", larger: true) == ["c: null"])
        let other = ImageKey(profile: CoordinatorBench.imageKey.profile, size: 200)
        let sequence = bench.coordinator.putBegan(other)
        _ = bench.coordinator.putCommitted(other, sequence: sequence, .sample("200", lifetime: nil), now: bench.now)
        #expect(bench.get("d", larger: true) == ["find larger"])
        bench.now += 60
        #expect(bench.largerEnds() == ["d: null"])
        #expect(bench.get("e", larger: true) == [Self.download])
    }

    @Test func `I3: a purge ends the look, and what it finds reaches nobody; so does a log-out`() {
        for isPurge in [true, false] {
            var bench = looking()
            let effects = isPurge ? bench.purge().effects : bench.end().effects
            #expect(effects == ["a: cancelled"])
            #expect(bench.largerEnds(.sample("96")) == [])
            #expect(bench.coordinator.isIdle)
        }
    }

    @Test func `I7: a PUT of the size itself is what whoever waits gets`() {
        var bench = looking()
        let sequence = bench.coordinator.putBegan(CoordinatorBench.imageKey)
        #expect(bench.putCommits(.sample("mine", lifetime: nil), sequence: sequence) == ["a: mine from put"])
        #expect(bench.largerEnds(.sample("96")) == [])
    }

    @Test func `a waiter leaves, and one whose time is up is told so`() {
        var bench = looking()
        _ = bench.get("b", larger: true)
        _ = bench.readEnds()
        #expect(bench.leaves("a") == [])
        #expect(bench.expires("b") == ["b: timeout"])
        #expect(bench.largerEnds(.sample("96")) == [])
        #expect(bench.coordinator.isIdle)
    }

    @Test func `what is stale, is being removed, or is for other tokens stands in for nothing`() {
        let found = ImageKey(profile: CoordinatorBench.imageKey.profile, size: 96)
        var stale = looking()
        stale.now += 3_600
        #expect(stale.largerEnds(.sample("96")) == ["a: null"])

        var dropping = looking()
        _ = dropping.coordinator.drop(FlightID(imageKey: found, work: .read, number: 1))
        #expect(dropping.largerEnds(.sample("96"), in: found) == ["a: null"])

        var gone = looking()
        gone.coordinator.negativeCache.missing(
            found, url: "x", until: gone.now + 9, leavesKeyAbsent: true, now: gone.now)
        #expect(gone.largerEnds(.sample("96"), in: found) == ["a: null"])

        var foreign = looking()
        let image = Image.sample("96")
        var record = image.record
        record.tokenFamily = 3
        #expect(foreign.largerEnds(Image(record: record, bytes: image.bytes), in: found) == ["a: null"])
    }

    @Test func `the next larger one comes first, the one of no size last, and none that is smaller`() {
        var bench = CoordinatorBench()
        // On its way to the disk.
        let storing = ImageKey(profile: CoordinatorBench.imageKey.profile, size: 128)
        let served = ServedImage(.sample("128"), from: .memory, at: bench.now)
        bench.coordinator.activity[storing] = ImageKeyState(
            storing: ImageKeyState.Storing(
                flight: FlightID(imageKey: storing, work: .read, number: 1), served: served, isConfirmed: false))
        let onDisk = ([0, 4_096, 32, 65, 64, 128, 63] as [UInt16]).map { ImageKey(profile: OpaqueID("bob"), size: $0) }
        let imageKeys = bench.coordinator.largerImageKeys(than: CoordinatorBench.imageKey, onDisk: onDisk)
        #expect(imageKeys.map(\.size) == [65, 128, 4_096, 0])
        #expect(bench.coordinator.largerImageKeys(than: CoordinatorBench.imageKey, onDisk: []).map(\.size) == [128])
        #expect(
            bench.coordinator.largerImageKeys(than: ImageKey(profile: OpaqueID("eve"), size: 64), onDisk: []).isEmpty)
    }
}
