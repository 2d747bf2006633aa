import CacheFakes
import ImageOptions
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Renditions in sizes that the origin lacks, with fakes that run work inline.
@Suite struct RenditionTests {
    private static let bob = OpaqueID("bob")
    private static let unsized = ImageKey(profile: bob)
    private static let small = ImageKey(profile: bob, size: 64)

    private let renderer: FakeRenderer
    private let world: FakeWorld

    init() {
        renderer = FakeRenderer()
        world = Self.world(renderer)
    }

    static func world(_ renderer: FakeRenderer?, memory: Int = 1 << 20, store: FakeStore? = nil) -> FakeWorld {
        var origin = FakeWorld.origin
        origin.url = "https://origin.test/{profile}"
        return FakeWorld(
            store: store, memory: memory, renderer: renderer, settings: CacheSettings(origins: ["default": origin]))
    }

    @Test func `concurrent requests for several sizes share one download and one rendering per size`() throws {
        let cache = try world.cache()
        let answers = Answers()
        let sizes: [UInt16] = [64, 128, 64, 0]
        for size in sizes {
            cache.get(ImageQuery(imageKey: ImageKey(profile: Self.bob, size: size)), resolve: answers.record)
        }
        #expect(world.fetcher.downloads.map(\.url) == ["https://origin.test/bob"])
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(
            answers.outcomes.sorted() == [
                "one from origin", "one@128 from origin", "one@64 from origin", "one@64 from origin",
            ])
        #expect(renderer.requests.map(\.options.size.pixels).sorted() == [64, 128])
        #expect(world.store.held(by: .alice).sorted() == ["one", "one@128", "one@64"])
        let held = cache.hit(Self.small)
        #expect(held?.image.record.sourceDigest == SampleImage.digest(of: SampleImage.png("one")))
        #expect(held?.image.record.provenance == .url("https://origin.test/bob"))
    }

    @Test func `I6: concurrent requests for a size share one rendering`() throws {
        renderer.isHeld = true
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        for _ in 0..<5 { cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record) }
        #expect(renderer.requests.count == 1)
        renderer.requests[0].render()
        #expect(answers.outcomes == Array(repeating: "one@64 from memory", count: 5))
    }

    @Test func `FIT and FORMAT have image keys of their own and reach the renderer`() async throws {
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let styled = ImageKey(profile: Self.bob, size: 64, fit: .contain, format: .png)
        #expect(await cache.outcome(ImageQuery(imageKey: styled)) == "one@64 from memory")
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from memory")
        #expect(renderer.requests.map(\.options.size) == [ImageSize(64, fit: .contain, format: .png), 64])
        #expect((styled.size, styled.fit, styled.format) == (64, .contain, .png))
    }

    // MARK: The source changes

    @Test func `I7: a PUT during a rendering wins, and the rendition of the older image is discarded`() throws {
        renderer.isHeld = true
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("old"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record)
        try cache.put(Self.unsized, SampleImage.png("new"), timeToLive: nil)
        #expect(renderer.requests.map(\.source) == ["old", "new"])
        renderer.requests[0].finish()
        #expect(answers.outcomes == [])
        #expect(cache.hit(Self.small) == nil)
        renderer.requests[1].finish()
        #expect(answers.outcomes == ["new@64 from put"])
        #expect(world.store.held(by: .alice).sorted() == ["new", "new@64"])
    }

    @Test func `I7: a rendition of an older image is not served from memory or disk`() async throws {
        for memory in [1 << 20, 0] {
            let world = Self.world(renderer, memory: memory)
            world.store.isInPageCache = true
            let cache = try world.cache()
            try cache.put(Self.unsized, SampleImage.png("old"), timeToLive: nil)
            _ = await cache.outcome(ImageQuery(imageKey: Self.small))
            try cache.put(Self.unsized, SampleImage.png("new"), timeToLive: nil)
            #expect(cache.hit(Self.small) == nil)
            #expect(cache.lookUpOnDisk(ImageQuery(imageKey: Self.small)).image == nil)
            let outcome = await cache.outcome(ImageQuery(imageKey: Self.small))
            #expect(outcome.hasPrefix("new@64"), "with \(memory) bytes of memory")
        }
    }

    @Test func `two URLs of one profile are each downloaded once, and only renditions of the stored image are kept`()
        throws
    {
        renderer.isHeld = true
        world.settings.origins["default"]?.allow = ["https://one.test/", "https://two.test/"]
        let cache = try world.cache()
        let answers = Answers()
        for host in ["one", "two"] {
            let target = try cache.target(of: Self.small, url: "https://\(host).test/")
            cache.get(ImageQuery(imageKey: Self.small, named: target), resolve: answers.record)
        }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        world.fetcher.downloads[1].end(SampleImage.downloaded("two"))
        #expect(renderer.requests.map(\.source) == ["one", "two"])
        for request in renderer.requests.reversed() { request.render() }
        #expect(answers.outcomes == ["two@64 from origin", "one@64 from origin"])
        #expect(world.fetcher.downloads.count == 2)
        #expect(world.store.held(by: .alice).sorted() == ["two", "two@64"])
        #expect(cache.hit(Self.small)?.image.record.provenance == .url("https://two.test/"))
    }

    @Test func `a rendition on disk is served while its source is the same`() async throws {
        let world = Self.world(renderer, memory: 0)
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from disk")
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from disk")
        #expect(renderer.requests.count == 1)
    }

    @Test func `a 304 for the source keeps its rendition and renews its freshness`() async throws {
        let cache = try world.cache()
        let query = ImageQuery(imageKey: Self.small)
        let answers = Answers()
        cache.get(query, resolve: answers.record)
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["etag": ["\"1\""]]))
        world.time.now += 3_600 + 3_600 + 1
        cache.get(query, resolve: answers.record)
        try #require(world.fetcher.downloads.count == 2)
        world.fetcher.downloads[1].end(.notModified(ResponseHeaders(["etag": ["\"1\""]])))
        #expect(answers.outcomes == ["one@64 from origin", "one@64 from disk"])
        #expect(renderer.requests.count == 1)
        #expect(cache.hit(Self.small) != nil)
    }

    @Test func `a rendition is removed with its source`() async throws {
        let cache = try world.cache()
        let query = ImageQuery(imageKey: Self.small)
        cache.get(query) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        world.time.now += 3_600 + 3_600 + 1
        let answers = Answers()
        cache.get(query, resolve: answers.record)
        world.fetcher.downloads[1].end(.missing(ResponseHeaders()))
        #expect(answers.outcomes == ["null"])
        #expect(cache.hit(Self.small) == nil)
        #expect(await cache.outcome(query) == "null")
        // The negative entry also holds for the size: no second download.
        #expect(world.fetcher.downloads.count == 2)
    }

    @Test(arguments: [0, 1 << 20])
    func `I7: a rendition of a rendition of an older image is not served`(memory: Int) async throws {
        // An origin with sizes: FIT is rendered from the size, which is rendered from the PUT image.
        let world = FakeWorld(memory: memory, renderer: renderer)
        world.store.isInPageCache = true
        let cache = try world.cache()
        let styled = ImageKey(profile: Self.bob, size: 64, fit: .contain)
        try cache.put(Self.unsized, SampleImage.png("old"), timeToLive: nil)
        for imageKey in [Self.small, styled] { _ = await cache.outcome(ImageQuery(imageKey: imageKey)) }
        try cache.put(Self.unsized, SampleImage.png("new"), timeToLive: nil)
        for imageKey in [styled, Self.small, styled] {
            #expect(cache.lookUpOnDisk(ImageQuery(imageKey: imageKey)).image == nil || imageKey == Self.small)
            #expect(await cache.outcome(ImageQuery(imageKey: imageKey)).hasPrefix("new"))
        }
    }

    @Test func `I7: with new tokens during a rendering, waiters with the old ones do not block others`()
        async throws
    {
        renderer.isHeld = true
        let cache = try world.cache()
        cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["vary": ["Authorization"]]))
        #expect(renderer.requests.count == 1)
        var tokens = LoginTokens.of("a")
        tokens.logIn(access: Secret("b".utf8), refresh: nil)
        cache.update(.init(origin: nil, tokens: tokens))
        // Nothing is stored for the new tokens, and the request must not loop.
        let cached = ImageQuery(imageKey: ImageKey(profile: Self.bob, size: 65), download: .never)
        #expect(await cache.outcome(cached) == "null")
    }

    @Test func `CACHED returns null if the source must not be stored, even while another size is rendered`()
        async throws
    {
        renderer.isHeld = true
        let cache = try world.cache()
        cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]))
        let cached = ImageQuery(imageKey: ImageKey(profile: Self.bob, size: 65), download: .never)
        #expect(await cache.outcome(cached) == "null")
    }

    // MARK: Purge and logout

    @Test func `I3: a purge during a rendering cancels it, and a late result is discarded`() throws {
        renderer.isHeld = true
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record)
        _ = try cache.purge([Self.bob])
        #expect(answers.outcomes == ["cancelled"])
        renderer.requests[0].finish()
        #expect(cache.hit(Self.small) == nil)
        #expect(world.store.held(by: .alice) == [])
        #expect(renderer.forgotten == [Owner.alice.uid])
    }

    @Test func `I3: a purge removes renditions in every size and format`() async throws {
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for fit in ImageFit.allCases {
            for format in [ImageFormat.source, .png] {
                let imageKey = ImageKey(profile: Self.bob, size: 64, fit: fit, format: format)
                _ = await cache.outcome(ImageQuery(imageKey: imageKey))
            }
        }
        #expect(world.store.held(by: .alice).count == 5)
        #expect(try cache.purge([Self.bob]).usage.images == 5)
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `I3: a logout during a rendering cancels it, and a late result is discarded`() throws {
        renderer.isHeld = true
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record)
        _ = cache.close()
        renderer.requests[0].finish()
        #expect(answers.outcomes == ["cancelled"])
        #expect(world.store.held(by: .alice) == ["one"])
        #expect(renderer.forgotten == [Owner.alice.uid])
    }

    // MARK: Failures

    @Test func `F82: if rendering fails, the source is served and rendering pauses`() async throws {
        renderer.failure = .unreadableImage
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for _ in 0..<3 { #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one from memory") }
        #expect(renderer.requests.count == 1)
        world.time.now += 300
        renderer.failure = nil
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from memory")
    }

    @Test func `without a renderer one image is downloaded for all sizes`() async throws {
        let world = Self.world(nil)
        let cache = try world.cache()
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one from origin")
        #expect(await cache.outcome(ImageQuery(imageKey: ImageKey(profile: Self.bob, size: 128))) == "one from memory")
        #expect(world.fetcher.downloads.count == 1)
    }

    @Test(arguments: [true, false])
    func `without a renderer an image that was PUT without SIZE is returned for every size`(hasOrigin: Bool)
        async throws
    {
        let world = FakeWorld()
        if !hasOrigin { world.settings.origins = [:] }
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for imageKey in [Self.small, ImageKey(profile: Self.bob, size: 64, fit: .contain)] {
            #expect(await cache.outcome(ImageQuery(imageKey: imageKey)) == "one from memory")
        }
        #expect(world.fetcher.downloads.isEmpty)
        _ = try cache.purge([Self.bob])
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `an image of another size is not returned`() async throws {
        world.settings.origins = [:]
        let cache = try world.cache()
        try cache.put(ImageKey(profile: Self.bob, size: 128), SampleImage.png("large"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "null")
    }

    @Test func `an image with too many pixels is not sent to the renderer`() async throws {
        world.settings.renditionPixels = 255
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one", width: 16, height: 16), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one from memory")
        #expect(renderer.requests.isEmpty)
    }

    @Test func `F82: a rendition that does not match the request is rejected`() async throws {
        renderer.isHeld = true
        let cache = try world.cache()
        let tiny = ImageKey(profile: Self.bob, size: 4)
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: tiny), resolve: answers.record)
        // Eight pixels instead of four.
        renderer.requests[0].finish()
        #expect(answers.outcomes == ["one from memory"])
        #expect(world.store.held(by: .alice) == ["one"])
    }

    @Test func `a request that times out gets the source`() throws {
        renderer.isHeld = true
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        let waiter = cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record)
        cache.expire(waiter)
        #expect(answers.outcomes == ["one from memory"])
        // Without waiters the rendering does not start.
        renderer.requests[0].render()
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `a rendering that has begun is kept even without waiters`() throws {
        renderer.isHeld = true
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let waiter = cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        #expect(renderer.requests[0].begin())
        cache.leave(waiter)
        renderer.requests[0].finish()
        #expect(cache.hit(Self.small) != nil)
    }

    @Test func `a download for renditions is cancelled some time after its last waiter has left`() throws {
        let cache = try world.cache()
        let waiter = cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        cache.leave(waiter)
        #expect(world.fetcher.downloads.count == 1)
        world.time.advance(milliseconds: 5_000)
        #expect(world.log.removeAll().last == "cancel https://origin.test/bob")
    }

    // MARK: Options

    @Test func `CACHED renders the stored image, and STAT does not`() async throws {
        let cache = try world.cache()
        let cached = ImageQuery(imageKey: Self.small, download: .never)
        #expect(await cache.outcome(cached) == "null")
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let stat = ImageQuery(imageKey: Self.small, download: .never, rendersMissing: false)
        #expect(await cache.outcome(stat) == "null")
        #expect(renderer.requests.isEmpty)
        #expect(await cache.outcome(cached) == "one@64 from memory")
        #expect(await cache.outcome(stat) == "one@64 from memory")
        #expect(world.fetcher.downloads.isEmpty)
    }

    @Test func `NOWAIT downloads the source in the background`() async throws {
        let cache = try world.cache()
        let query = ImageQuery(imageKey: Self.small, download: .inBackground)
        #expect(await cache.outcome(query) == "null")
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(await cache.outcome(query) == "one@64 from memory")
    }

    @Test func `an image that must not be stored is rendered for each request and stored in no size`() async throws {
        let cache = try world.cache()
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]) }
        for _ in 0..<2 { #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from origin, stale") }
        #expect(world.fetcher.downloads.count == 2)
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `an image that was PUT with SIZE takes precedence over a rendition`() async throws {
        let cache = try Self.world(renderer, memory: 0).cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        try cache.put(Self.small, SampleImage.png("small"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "small from disk")
        #expect(renderer.requests.isEmpty)
    }

    @Test(arguments: [0, 1 << 20])
    func `an image that was PUT without SIZE is the source of every size, also if the origin has sizes`(memory: Int)
        async throws
    {
        let world = FakeWorld(memory: memory, renderer: renderer)
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)).hasPrefix("one@64"))
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)).hasPrefix("one@64"))
        #expect(renderer.requests.count == 1)
        #expect(world.fetcher.downloads.isEmpty)
    }

    @Test func `an origin with sizes is requested for each, except with FIT, FORMAT or renditions = always`()
        async throws
    {
        let world = FakeWorld(renderer: renderer)
        let cache = try world.cache()
        world.fetcher.answer = { SampleImage.downloaded($0.target.url.hasSuffix("/64") ? "small" : "other") }
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "small from origin")
        #expect(renderer.requests.isEmpty)
        let png = ImageKey(profile: Self.bob, size: 64, format: .png)
        #expect(await cache.outcome(ImageQuery(imageKey: png)) == "small@64 from memory")
        world.settings.origins["default"]?.renditions = .always
        let always = ImageKey(profile: Self.bob, size: 32)
        #expect(await cache.outcome(ImageQuery(imageKey: always)) == "other@32 from origin")
        world.settings.origins["default"]?.renditions = .never
        let webp = ImageKey(profile: Self.bob, size: 64, format: .webp)
        #expect(await cache.outcome(ImageQuery(imageKey: webp)) == "small from memory")
    }

    @Test(arguments: [0, 1 << 20])
    func `a size has its own URL again after a download has replaced the PUT that was its source`(memory: Int) throws {
        let world = FakeWorld(memory: memory, renderer: renderer)
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("put"), timeToLive: 1)
        // The PUT is stale, so the request for its rendition downloads the source.
        world.time.advance(seconds: 1_000)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record)
        #expect(world.fetcher.downloads.map(\.url) == ["https://origin.test/alice/bob/128"])
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(answers.outcomes == ["one@64 from origin"])
        // The rendition is stale as well.
        world.time.advance(seconds: 3_601)
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.record)
        #expect(world.fetcher.downloads.last?.url == "https://origin.test/alice/bob/64")
    }

    @Test func `the number of renditions of a profile is bounded`() async throws {
        world.settings.renditionsPerProfile = 3
        let cache = try world.cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for size in 10..<20 as Range<UInt16> {
            _ = await cache.outcome(ImageQuery(imageKey: ImageKey(profile: Self.bob, size: size)))
        }
        #expect(world.store.held(by: .alice).count == 4)
    }
}
