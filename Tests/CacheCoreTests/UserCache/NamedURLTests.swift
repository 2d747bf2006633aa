import Testing

@testable import CacheCore

@Suite struct NamedURLTests {
    private static let other = "https://other.test/x"
    private static let third = "https://other.test/y"

    @Test func `F55: two GETs for one profile with different URLs are two flights, and each gets its own image`() {
        var bench = CoordinatorBench()
        #expect(bench.get("a", url: Self.other) == ["read"])
        #expect(bench.get("b", url: Self.third) == [])
        #expect(bench.readEnds() == ["download \(Self.other)", "download \(Self.third)"])
        #expect(
            bench.finishes(.image(.sample("y", from: Self.third), storable: true), url: Self.third)
                == ["b: y from origin", "store y"])
        #expect(
            bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
                == ["a: x from origin", "store x"])
    }

    @Test func `a GET with another URL than the image's is a miss`() {
        var bench = CoordinatorBench()
        bench.memory = .sample("held")
        #expect(bench.get("a", url: Self.other) == ["download \(Self.other)"])
        #expect(bench.get("b", url: CoordinatorBench.usual) == ["b: held from memory"])
        #expect(bench.get("c", url: Self.other, download: .never) == ["c: null"])
    }

    @Test func `a GET without a URL returns the stored image, whatever its URL`() {
        var bench = CoordinatorBench()
        bench.memory = .sample("x", from: Self.other)
        #expect(bench.get("a") == ["a: x from memory"])
    }

    @Test func `an image that was PUT does not match a URL`() {
        var bench = CoordinatorBench()
        bench.memory = .sample("mine", from: nil)
        #expect(bench.get("a", url: Self.other) == ["download \(Self.other)"])
        #expect(bench.get("b") == ["b: mine from memory"])
    }

    @Test func `a stale image from another URL is not a fallback`() {
        var bench = CoordinatorBench()
        bench.now += 4_300
        bench.memory = .sample("held")
        #expect(bench.get("a", url: Self.other) == ["download \(Self.other)"])
        #expect(bench.finishes(.failed(.origin("status 500")), url: Self.other) == ["a: origin status 500"])
    }

    @Test func `I6: a flight for one URL ends without touching the waiters of another`() {
        var bench = CoordinatorBench()
        _ = bench.get("a", url: Self.other)
        _ = bench.readEnds()
        _ = bench.get("b")
        _ = bench.readEnds()
        #expect(bench.finishes(.failed(.origin("status 500")), url: Self.other) == ["a: origin status 500"])
        #expect(bench.finishes(.image(.sample("one"), storable: false))?.first == "b: one from origin")
    }

    @Test func `of two images from two URLs the newer one is stored`() {
        var bench = CoordinatorBench()
        _ = bench.get("a", url: Self.other)
        _ = bench.get("b", url: Self.third)
        _ = bench.readEnds()
        _ = bench.finishes(.image(.sample("x", from: Self.other), storable: true), url: Self.other)
        let older = bench.flight("store")
        _ = bench.finishes(.image(.sample("y", from: Self.third), storable: true), url: Self.third)
        #expect(!bench.coordinator.mayStore(older))
        #expect(bench.coordinator.mayStore(bench.flight("store")))
    }
}
