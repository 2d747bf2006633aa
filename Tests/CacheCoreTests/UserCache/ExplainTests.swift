import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// EXPLAIN in one user's cache, over fakes that run work inline.
@Suite struct ExplainTests {
    private static let bob = OpaqueID("bob")
    private static let unsized = ImageKey(profile: bob)
    private static let small = ImageKey(profile: bob, size: 64)
    private static let host = "https://origin.test"

    private let renderer = FakeRenderer()
    private let world: FakeWorld
    private let cache: UserCache

    init() throws {
        world = FakeWorld(renderer: renderer)
        cache = try world.cache(token: Secret("t0k"))
    }

    private func get(_ imageKey: ImageKey = unsized) async -> String {
        await cache.outcome(ImageQuery(imageKey: imageKey))
    }

    /// Explains, and checks that this has no effect.
    private func explain(_ imageKey: ImageKey = unsized, of cache: UserCache? = nil) async throws -> Explanation {
        let cache = cache ?? self.cache
        func figures() -> [Int] {
            let counted = CacheEvent.allCases.map { world.services.counters[$0] }
            return counted + [cache.memoryHits, world.fetcher.downloads.count, renderer.requests.count]
        }
        let (before, events, flights) = (figures(), world.log.events, Self.flights(cache))
        let explanation = try await cache.explain(imageKey)
        #expect(figures() == before && world.log.events == events && Self.flights(cache) == flights)
        return explanation
    }

    private static func flights(_ cache: UserCache) -> [String] {
        cache.state.withLockedValue { state in
            state.coordinator.flights.imageKeys.map { "\(state.coordinator.flights[$0]?.flights.keys.count ?? 0)" }
        }
    }

    private func upstream(
        _ state: Explanation.Upstream.State = .ready, age: Int64? = nil, retryIn: Int64? = nil
    ) -> String {
        "\(Self.host) \(state) \(age ?? -1) \(retryIn ?? -1)"
    }

    private func upstreams(_ explanation: Explanation) -> [String] {
        explanation.upstreams.map { "\($0.host) \($0.state) \($0.age ?? -1) \($0.retryIn ?? -1)" }
    }

    // MARK: A held image

    @Test func `a fresh image in memory is served`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await get() == "one from origin")
        world.time.now += 40
        let explanation = try await explain()
        #expect(explanation.action == .serve && explanation.held?.place == .memory)
        #expect(explanation.held?.host == Self.host && explanation.held?.isFresh == true)
        #expect(explanation.held?.age == 40 && explanation.held?.timeToLive == 3_560)
        #expect(explanation.origin == "default" && upstreams(explanation) == [upstream()])
        #expect(explanation.source.isEmpty && explanation.waiting == nil && explanation.failure == nil)
    }

    @Test func `a fresh image on disk is served, and stays out of memory`() async throws {
        let world = FakeWorld(memory: 0)
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let explanation = try await cache.explain(Self.unsized)
        #expect(explanation.action == .serve && explanation.held?.place == .disk)
        #expect(explanation.held?.host == nil && explanation.held?.timeToLive == nil)
        #expect(world.store.calls(.read) == 0)
    }

    @Test func `a stale image is refreshed, revalidated or downloaded again, depending on its age`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await get() == "one from origin")
        world.time.now += 3_601
        var explanation = try await explain()
        #expect(explanation.action == .refresh && explanation.held?.isFresh == false)
        #expect(explanation.held?.timeToLive == -1)
        world.time.now += 600
        explanation = try await explain()
        #expect(explanation.action == .revalidate)
        world.time.now += 3_600
        explanation = try await explain()
        #expect(explanation.action == .download && explanation.held?.place == .memory)
    }

    @Test func `after a failed refresh, the stale image is served until the next one`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await get() == "one from origin")
        world.time.now += 3_601
        world.fetcher.answer = { _ in .failed(.origin("500")) }
        #expect(await get() == "one from memory, stale")
        var explanation = try await explain()
        #expect(explanation.action == .serve && explanation.retryIn == 1)
        #expect(upstreams(explanation) == [upstream()])
        world.time.now += 1
        explanation = try await explain()
        #expect(explanation.action == .refresh && explanation.retryIn == nil)
    }

    // MARK: No image

    @Test func `without an image the origin is asked, and the upstream is named without path, query and token`()
        async throws
    {
        world.settings.origins["default"]?.url = "https://origin.test/s3cret/{profile}?key=s3cret"
        let explanation = try await explain()
        #expect(explanation.action == .download && explanation.held == nil)
        #expect(upstreams(explanation) == [upstream()])
        #expect(!"\(explanation)".contains("s3cret") && !"\(explanation)".contains("t0k"))
    }

    @Test func `a missing image is remembered for a time`() async throws {
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await get() == "null")
        world.time.now += 40
        var explanation = try await explain()
        #expect(explanation.action == .none && explanation.retryIn == 260)
        #expect(upstreams(explanation) == [upstream(.missing, age: 40, retryIn: 260)])
        world.time.now += 260
        explanation = try await explain()
        #expect(explanation.action == .download && upstreams(explanation) == [upstream()])
    }

    @Test func `a fallback image is announced`() async throws {
        world.settings.origins["default"]?.fallback = try FallbackImage(
            SampleImage.png("nobody"), maximumDimension: 100)
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await get() == "nobody from fallback")
        #expect(try await explain().action == .fallback)
    }

    @Test func `a response without a usable image is remembered as a failure`() async throws {
        world.fetcher.answer = { _ in .unusable(.badImage("html"), ResponseHeaders()) }
        #expect(await get() == "badImage(\"html\")")
        world.time.now += 40
        let explanation = try await explain()
        #expect(explanation.action == .fail && explanation.retryIn == 260)
        #expect(await explanation.failure.map { CoordinatorBench.describe(.failure($0)) } == get())
        #expect(upstreams(explanation) == [upstream(.unusable, age: 40, retryIn: 260)])
    }

    @Test func `without an origin, null is returned`() async throws {
        world.settings.origins = [:]
        let explanation = try await explain()
        #expect(explanation == Explanation(action: .none, size: 0))
    }

    @Test func `a user who is not logged in is a failure`() async throws {
        let daemon = Daemon()
        #expect(try await Self.explain(daemon) == Explanation(action: .fail, failure: .notLoggedIn, size: 0))
        try await daemon.logIn(.alice)
        #expect(try await Self.explain(daemon).action == .download)
    }

    @Test func `I2, I3: what was found before a logout or purge is not delivered after its receipt`() async throws {
        let daemon = Daemon()
        try await daemon.logIn(.alice)
        try await daemon.sessions.cache(.alice).put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        daemon.world.fetcher.onCheck = {
            await #expect(throws: Never.self) {
                _ = try await daemon.invalidationService.purge(.alice, profiles: [Self.bob])
            }
        }
        var explanation = try await Self.explain(daemon)
        #expect(explanation.held == nil && explanation.action == .download)
        daemon.world.fetcher.onCheck = {
            await #expect(throws: Never.self) { _ = try await daemon.invalidationService.logOut(.alice) }
        }
        explanation = try await Self.explain(daemon)
        #expect(explanation == Explanation(action: .fail, failure: .notLoggedIn, size: 0))
    }

    private static func explain(_ daemon: Daemon) async throws -> Explanation {
        let explained = NIOLockedValueBox<Explanation?>(nil)
        try await daemon.sessions.explain(.alice, unsized) { explanation in
            explained.withLockedValue { $0 = explanation }
        }
        return try #require(explained.withLockedValue { $0 })
    }

    @Test func `a download in flight is joined, and its waiters are counted`() async throws {
        let answers = Answers()
        for _ in 0..<2 { cache.get(ImageQuery(imageKey: Self.unsized), resolve: answers.record) }
        let explanation = try await explain()
        #expect(explanation.action == .wait && explanation.waiting == 2)
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(answers.outcomes == ["one from origin", "one from origin"])
    }

    // MARK: Failing upstreams

    @Test func `an open circuit breaker fails a GET, and lets a stale image be served`() async throws {
        world.fetcher.suspended = ["https://origin.test/alice/bob/128": 2_001]
        var explanation = try await explain()
        #expect(explanation.action == .fail && explanation.failure == .origin("suspended for 2001 ms"))
        #expect(explanation.retryIn == 3)
        #expect(upstreams(explanation) == [upstream(.suspended, retryIn: 3)])

        world.fetcher.suspended = [:]
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await get() == "one from origin")
        world.fetcher.suspended = ["https://origin.test/alice/bob/128": 2_001]
        for age in [3_601, 600] as [Int64] {
            world.time.now += age
            explanation = try await explain()
            #expect(explanation.action == .serve && explanation.retryIn == 3 && explanation.failure == nil)
        }
    }

    @Test func `a fetcher that accepts nothing fails a GET`() async throws {
        world.fetcher.refusal = .origin("the fetcher process is being restarted")
        let explanation = try await explain()
        #expect(explanation.action == .fail && upstreams(explanation) == [upstream(.failed)])
        #expect(await explanation.failure.map { CoordinatorBench.describe(.failure($0)) } == get())
    }

    @Test func `of a chain, the first upstream that can be asked decides`() async throws {
        var origin = Origin(name: "default", url: "https://a.test/{profile}")
        origin.then = [Upstream(url: "https://b.test/{profile}"), Upstream(url: "https://c.test/{profile}")]
        world.settings = CacheSettings(origins: ["default": origin])
        world.fetcher.answer = { download in
            download.target.url.hasPrefix("https://a") ? .missing(ResponseHeaders()) : .failed(.origin("500"))
        }
        #expect(await get() == "origin 500")
        world.fetcher.suspended = ["https://b.test/bob": 5_000]
        var explanation = try await explain()
        #expect(explanation.action == .download)
        #expect(explanation.upstreams.map(\.state) == [.missing, .suspended, .ready])
        world.fetcher.suspended["https://c.test/bob"] = 7_000
        explanation = try await explain()
        #expect(explanation.action == .fail && explanation.failure == .origin("suspended for 7000 ms"))
        #expect(explanation.retryIn == 5)
    }

    @Test func `a token that cannot be refreshed fails a GET`() async throws {
        world.settings.origins["default"]?.tokenEndpoint = TokenEndpoint(url: "https://t.test/", clientID: "c")
        let daemon = Daemon(world)
        try await daemon.logIn(.carol, refresh: Secret("r"))
        let cache = try await daemon.sessions.cache(.carol)
        #expect(try await cache.explain(Self.unsized).action == .download)
        #expect(world.tokens.requests.isEmpty)
        world.tokens.answer = { _ in .failure(.unauthorized("invalid_grant")) }
        #expect(await cache.outcome(ImageQuery(imageKey: Self.unsized)) == "unauthorized(\"invalid_grant\")")
        let explanation = try await cache.explain(Self.unsized)
        #expect(explanation.action == .fail && explanation.failure == .unauthorized("invalid_grant"))
        #expect(explanation.upstreams.map(\.state) == [.unauthorized])
    }

    // MARK: Renditions

    @Test func `a rendition is explained with its source`() async throws {
        world.settings.origins["default"]?.url = "https://origin.test/{profile}"
        var explanation = try await explain(Self.small)
        #expect(explanation.action == .download && explanation.upstreams.isEmpty && explanation.size == 64)
        #expect(explanation.source.map(\.action) == [.download] && explanation.source.map(\.size) == [0])

        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await get() == "one from origin")
        explanation = try await explain(Self.small)
        #expect(explanation.action == .render && explanation.held == nil)
        #expect(explanation.source.map(\.action) == [.serve])

        #expect(await get(Self.small) == "one@64 from memory")
        world.time.now += 3_601
        explanation = try await explain(Self.small)
        #expect(explanation.action == .refresh && explanation.held?.isFresh == false)
    }

    @Test func `a fresh rendition is served from memory, or from disk while its source is the same`() async throws {
        for memory in [1 << 20, 0] {
            let world = RenditionTests.world(FakeRenderer(), memory: memory)
            let cache = try world.cache()
            try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
            _ = await cache.outcome(ImageQuery(imageKey: Self.small))
            let explanation = try await cache.explain(Self.small)
            #expect(explanation.action == .serve && explanation.held?.place == (memory > 0 ? .memory : .disk))
            #expect(explanation.source.map(\.action) == [.serve] && explanation.held?.host == nil)
            try cache.put(Self.unsized, SampleImage.png("two"), timeToLive: nil)
            #expect(try await cache.explain(Self.small).action == .render)
        }
    }

    @Test func `without a renderer, and after a failed rendering, the source is served`() async throws {
        for renderer in [nil, renderer] {
            let world = RenditionTests.world(renderer)
            let cache = try world.cache()
            try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
            self.renderer.failure = .unreadableImage
            if renderer != nil { _ = await cache.outcome(ImageQuery(imageKey: Self.small)) }
            let explanation = try await cache.explain(Self.small)
            #expect(explanation.action == .serve && explanation.held == nil)
        }
    }

    @Test func `a source with too many pixels is served, as by GET`() async throws {
        let world = RenditionTests.world(renderer)
        world.settings.renditionPixels = 16 * 16 - 1
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one", width: 16, height: 16), timeToLive: nil)
        #expect(try await cache.explain(Self.small).action == .serve)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)).hasPrefix("one from"))
        #expect(renderer.requests.isEmpty)
    }

    @Test func `a missing source makes its renditions missing`() async throws {
        world.settings.origins["default"]?.url = "https://origin.test/{profile}"
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await get() == "null")
        world.time.now += 40
        let explanation = try await explain(Self.small)
        #expect(explanation.action == .none && explanation.retryIn == 260)
        #expect(explanation.source.map { upstreams($0) } == [[upstream(.missing, age: 40, retryIn: 260)]])
    }
}
