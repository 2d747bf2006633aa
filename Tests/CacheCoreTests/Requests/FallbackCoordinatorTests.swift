import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

/// The operator's fallback image, which is served if the origin has no image.
@Suite struct FallbackCoordinatorTests {
    private static let download = "download \(CoordinatorBench.usual)"

    private func bench(_ links: DownloadTarget? = nil) -> CoordinatorBench {
        var bench = CoordinatorBench()
        let target = links ?? DownloadTarget(url: CoordinatorBench.usual, isNamedByClient: false)
        bench.route = .init(fallback: .sample("fallback image", from: nil, lifetime: 0)) { .success(target) }
        return bench
    }

    @Test func `the fallback is served while the 404 is remembered, without a request to the origin`() {
        var bench = bench()
        _ = bench.get("a")
        #expect(bench.readEnds() == [Self.download])
        #expect(bench.finishes(.missing(until: bench.now + 60)) == ["a: fallback image from fallback", "drop"])
        bench.now += 59
        #expect(bench.get("b") == ["b: fallback image from fallback"])
        #expect(bench.get("c", download: .never) == ["c: fallback image from fallback"])
        #expect(bench.get("d", download: .inBackground) == ["d: fallback image from fallback"])
        bench.now += 1
        #expect(bench.get("e", download: .never) == ["e: null"])
    }

    @Test func `no fallback is served before the origin's reply or after a failure`() {
        var bench = bench()
        _ = bench.get("a", download: .never)
        #expect(bench.readEnds() == ["a: null"])
        _ = bench.get("b", download: .inBackground)
        #expect(bench.readEnds() == ["b: null", Self.download])
        #expect(bench.get("c") == ["read"])
        _ = bench.readEnds()
        #expect(bench.finishes(.failed(.origin("500"))) == ["c: origin 500"])
    }

    @Test func `a cached image takes precedence, even if stale`() {
        var bench = bench()
        bench.memory = .sample("held")
        bench.now += 4_300
        #expect(bench.get("a") == [Self.download])
        #expect(bench.finishes(.failed(.origin("500"))) == ["a: held from memory, stale"])
    }

    @Test func `the fallback expires with the first of several remembered 404s`() {
        let links = DownloadTarget(
            url: "https://a.test/", isNamedByClient: false,
            others: [DownloadTarget(url: "https://b.test/", isNamedByClient: false)])
        var bench = bench(links)
        _ = bench.get("a")
        _ = bench.readEnds()
        let flight = bench.flight("https://a.test/")
        let now = bench.now
        let effects = bench.coordinator.downloadEnded(
            flight, .missing(until: now + 30),
            negative: ["https://a.test/": .init(until: now + 60), "https://b.test/": .init(until: now + 30)],
            route: bench.route, now: now)
        guard case .resolve(_, .success(let served?))? = effects?.first else {
            Issue.record("the GET is not answered with an image")
            return
        }
        #expect(served.source == .fallback && served.image.record.freshness.timeToLive(at: now) == 30)
    }

    @Test func `I3: the fallback is not stored for the user and is counted`() async throws {
        let world = FakeWorld()
        var origin = FakeWorld.origin
        origin.fallback = try FallbackImage(SampleImage.png("fallback image"), maximumDimension: 64)
        world.settings = CacheSettings(origins: ["default": origin])
        let cache = try world.cache()
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))
        #expect(await cache.outcome(query) == "fallback image from fallback")
        #expect(await cache.outcome(query) == "fallback image from fallback")
        #expect(world.fetcher.downloads.count == 1)
        #expect(world.store.held(by: .alice) == [] && cache.hit(query.imageKey) == nil)
        #expect(world.services.counters[.fallbacksServed] == 2)
    }
}
