import Testing

@testable import CacheCore

/// Disk lookups during which a newer image arrives.
@Suite struct ConcurrentReadTests {
    private static let other = "https://other.test/x"

    /// A bench with a download in flight and a concurrent disk lookup that will find the older image.
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

    @Test func `a waiter of the disk lookup gets the newer image, and the lookup's result is ignored`() {
        var bench = reading("a")
        let new = Image.sample("new", storedAt: bench.now)
        #expect(
            bench.finishes(.image(new, storable: true)) == [
                "first: new from origin", "a: new from origin", "store new",
            ])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `a waiter with CACHED gets the newer image too`() {
        var bench = reading("a", download: .never)
        let new = Image.sample("new", storedAt: bench.now)
        #expect(bench.finishes(.image(new, storable: true))?.contains("a: new from origin") == true)
    }

    @Test func `a waiter with another URL starts a download`() {
        var bench = reading("a", url: Self.other)
        let new = Image.sample("new", storedAt: bench.now)
        #expect(
            bench.finishes(.image(new, storable: true))
                == ["first: new from origin", "download \(Self.other)", "store new"])
        // The stored image has another URL and remains despite the 404.
        #expect(bench.finishes(.missing(until: bench.now + 300), url: Self.other) == ["a: null"])
    }

    @Test func `an image that must not be stored answers those waiters too, and the older image is removed`() {
        var bench = reading("a")
        let new = Image.sample("new", storedAt: bench.now)
        #expect(
            bench.finishes(.image(new, storable: false)) == ["first: new from origin", "a: new from origin", "drop"])
        #expect(bench.readEnds(.sample("old")) == nil)
    }

    @Test func `a GET during the write gets the image from memory`() {
        var bench = CoordinatorBench()
        _ = bench.get("a")
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("one"), storable: true))
        #expect(bench.get("b") == ["b: one from memory"])
        #expect(bench.get("c", url: Self.other) == ["download \(Self.other)"])
        bench.coordinator.stored(bench.flight("store"))
        #expect(bench.get("d") == ["read"])
    }

    @Test func `a newer image in memory is not removed when an older write ends`() {
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
