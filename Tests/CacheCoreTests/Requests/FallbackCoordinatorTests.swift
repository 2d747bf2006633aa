import CacheFakes
import NIOCore
import Testing

@testable import CacheCore

/// The operator's picture, where the origin says that there is none.
@Suite struct FallbackCoordinatorTests {
    private static let download = "download \(CoordinatorBench.usual)"

    private func bench(_ links: DownloadTarget? = nil) -> CoordinatorBench {
        var bench = CoordinatorBench()
        let target = links ?? DownloadTarget(url: CoordinatorBench.usual, isNamedByClient: false)
        bench.route = .init(fallback: .sample("nobody", from: nil, lifetime: 0)) { .success(target) }
        return bench
    }

    @Test func `it is served for as long as the origin's word is believed, and asks nobody`() {
        var bench = bench()
        _ = bench.get("a")
        #expect(bench.readEnds() == [Self.download])
        #expect(bench.finishes(.missing(until: bench.now + 60)) == ["a: nobody from fallback", "drop"])
        bench.now += 59
        #expect(bench.get("b") == ["b: nobody from fallback"])
        #expect(bench.get("c", download: .never) == ["c: nobody from fallback"])
        #expect(bench.get("d", download: .behind) == ["d: nobody from fallback"])
        bench.now += 1
        #expect(bench.get("e", download: .never) == ["e: null"])
    }

    @Test func `before the origin was asked there is none, and a failure is a failure`() {
        var bench = bench()
        _ = bench.get("a", download: .never)
        #expect(bench.readEnds() == ["a: null"])
        _ = bench.get("b", download: .behind)
        #expect(bench.readEnds() == ["b: null", Self.download])
        #expect(bench.get("c") == ["read"])
        _ = bench.readEnds()
        #expect(bench.finishes(.failed(.origin("500"))) == ["c: origin 500"])
    }

    @Test func `an image that is held goes before it, stale as it may be, and so does a larger one`() {
        var bench = bench()
        bench.memory = .sample("held")
        bench.now += 4_300
        #expect(bench.get("a") == [Self.download])
        #expect(bench.finishes(.failed(.origin("500"))) == ["a: held from memory, stale"])
        bench.memory = nil
        _ = bench.get("b", larger: true)
        _ = bench.readEnds()
        #expect(bench.finishes(.missing(until: bench.now + 60)) == ["find larger", "drop"])
        #expect(bench.largerEnds(.sample("96", storedAt: bench.now)) == ["b: 96 from disk"])
        _ = bench.get("c", larger: true)
        #expect(bench.largerEnds() == ["c: nobody from fallback"])
    }

    @Test func `it is good until the first of several links is believed no longer`() {
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
            answers: ["https://a.test/": .init(until: now + 60), "https://b.test/": .init(until: now + 30)],
            route: bench.route, now: now)
        guard case .answer(_, .success(let served?))? = effects?.first else {
            Issue.record("no answer")
            return
        }
        #expect(served.source == .fallback && served.image.record.freshness.timeToLive(at: now) == 30)
    }

    @Test func `I3: it is nobody's image: none is kept, and it is counted`() async throws {
        let world = FakeWorld()
        var origin = FakeWorld.origin
        origin.fallback = try FallbackPicture(SampleImage.png("nobody"), maximumDimension: 64)
        world.settings = CacheSettings(origins: ["default": origin])
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        let cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: nil),
            services: world.services)
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))
        #expect(await cache.outcome(query) == "nobody from fallback")
        #expect(await cache.outcome(query) == "nobody from fallback")
        #expect(world.fetcher.downloads.count == 1)
        #expect(world.store.held(by: .alice) == [] && cache.hit(query.imageKey) == nil)
        #expect(world.services.counters[.fallbacksServed] == 2)
    }
}
