import Testing

@testable import CacheCore

/// A look on disk that is under way when a newer image comes would bring back the older one.
@Suite struct OvertakenReadTests {
    private static let other = "https://other.test/x"

    /// A download is under way for an image key whose image was on disk and has left memory, and somebody looks on disk.
    private func reading(
        _ name: String, url: String? = nil, download: ImageQuery.Download = .awaited
    ) -> CoordinatorBench {
        var bench = CoordinatorBench()
        bench.now += 7_300
        _ = bench.get("first")
        _ = bench.readEnds(.sample("old"))
        _ = bench.get(name, url: url, download: download)
        return bench
    }

    @Test func `who looks on disk meanwhile gets the newer image, and what the look brings is ignored`() {
        var bench = reading("a")
        let new = Image.sample("new", storedAt: bench.now)
        #expect(
            bench.finishes(.image(new, storable: true)) == [
                "first: new from origin", "a: new from origin", "store new",
            ])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `so does one who asked for CACHED`() {
        var bench = reading("a", download: .never)
        let new = Image.sample("new", storedAt: bench.now)
        #expect(bench.finishes(.image(new, storable: true))?.contains("a: new from origin") == true)
    }

    @Test func `who named another URL flies there`() {
        var bench = reading("a", url: Self.other)
        let new = Image.sample("new", storedAt: bench.now)
        #expect(
            bench.finishes(.image(new, storable: true))
                == ["first: new from origin", "download \(Self.other)", "store new"])
        // What is held is not from there: it stays though that URL has nothing.
        #expect(bench.finishes(.missing(until: bench.now + 300), url: Self.other) == ["a: null"])
    }

    @Test func `an image that may not be kept answers them too, and what it replaces is removed`() {
        var bench = reading("a")
        let new = Image.sample("new", storedAt: bench.now)
        #expect(
            bench.finishes(.image(new, storable: false)) == ["first: new from origin", "a: new from origin", "drop"])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `who comes while the image is on its way to the disk gets it from there`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one"), storable: true))
        #expect(bench.get("b") == ["b: one from memory"])
        #expect(bench.get("c", url: Self.other) == ["download \(Self.other)"])
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.get("d") == ["read"])
    }

    @Test func `the newer image in place of the stored one is not undone by the end of the older write`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one", lifetime: 0), storable: true))
        let older = bench.flight("store")
        _ = bench.get("b")
        _ = bench.finishes(.image(.sample("two"), storable: true))
        bench.coordinator.stored(older)
        #expect(bench.get("c") == ["c: two from memory"])
    }
}
