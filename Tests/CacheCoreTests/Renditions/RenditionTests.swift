import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Pictures in sizes that the origin does not have, over fakes whose work runs at once.
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

    private func cache(_ world: FakeWorld? = nil) throws -> UserCache {
        let world = world ?? self.world
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        return UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil),
            services: world.services)
    }

    @Test func `sizes that are asked for together share one download, and each is made once`() throws {
        let cache = try cache()
        let answers = Answers()
        let sizes: [UInt16] = [64, 128, 64, 0]
        for size in sizes {
            cache.get(ImageQuery(imageKey: ImageKey(profile: Self.bob, size: size)), resolve: answers.take)
        }
        #expect(world.fetcher.downloads.map(\.url) == ["https://origin.test/bob"])
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(
            answers.told.sorted() == [
                "one from origin", "one@128 from origin", "one@64 from origin", "one@64 from origin",
            ])
        #expect(renderer.requests.map(\.wish.side).sorted() == [64, 128])
        #expect(world.store.held(by: .alice).sorted() == ["one", "one@128", "one@64"])
        let held = cache.hit(Self.small)
        #expect(held?.image.record.rendered == SampleImage.digest(of: SampleImage.png("one")))
        #expect(held?.image.record.provenance == .url("https://origin.test/bob"))
    }

    @Test func `I6: however many ask while a picture is made, it is made once`() throws {
        renderer.isHeld = true
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        for _ in 0..<5 { cache.get(ImageQuery(imageKey: Self.small), resolve: answers.take) }
        #expect(renderer.requests.count == 1)
        renderer.requests[0].begin()
        #expect(answers.told == Array(repeating: "one@64 from memory", count: 5))
    }

    @Test func `a style is a imageKey of its own, and asks for what it says`() async throws {
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let style = RenditionStyle(fit: .contain, format: .png)
        let styled = ImageKey(profile: Self.bob, size: 64, style: style)
        #expect(await cache.outcome(ImageQuery(imageKey: styled)) == "one@64 from memory")
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from memory")
        #expect(renderer.requests.map(\.wish.style) == [style, .plain])
        #expect((styled.size, styled.style) == (64, style))
    }

    // MARK: The source changes

    @Test func `I7: a PUT while a picture is made wins, and what was made of the older one is not kept`() throws {
        renderer.isHeld = true
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("old"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.take)
        try cache.put(Self.unsized, SampleImage.png("new"), timeToLive: nil)
        #expect(renderer.requests.map(\.source) == ["old", "new"])
        renderer.requests[0].finish()
        #expect(answers.told == [])
        #expect(cache.hit(Self.small) == nil)
        renderer.requests[1].finish()
        #expect(answers.told == ["new@64 from put"])
        #expect(world.store.held(by: .alice).sorted() == ["new", "new@64"])
    }

    @Test func `I7: what was made of an older picture is not served, from memory or from disk`() async throws {
        for memory in [1 << 20, 0] {
            let world = Self.world(renderer, memory: memory)
            let cache = try cache(world)
            try cache.put(Self.unsized, SampleImage.png("old"), timeToLive: nil)
            _ = await cache.outcome(ImageQuery(imageKey: Self.small))
            try cache.put(Self.unsized, SampleImage.png("new"), timeToLive: nil)
            #expect(cache.hit(Self.small) == nil)
            #expect(cache.lookAtDisk(ImageQuery(imageKey: Self.small)).image == nil)
            let outcome = await cache.outcome(ImageQuery(imageKey: Self.small))
            #expect(outcome.hasPrefix("new@64"), "with \(memory) bytes of memory")
        }
    }

    @Test func `two URLs of one profile are each downloaded once, and only what the imageKey holds is kept`() throws {
        renderer.isHeld = true
        world.settings.origins["default"]?.allow = ["https://one.test/", "https://two.test/"]
        let cache = try cache()
        let answers = Answers()
        for host in ["one", "two"] {
            let target = try cache.target(of: Self.small, url: "https://\(host).test/")
            cache.get(ImageQuery(imageKey: Self.small, named: target), resolve: answers.take)
        }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        world.fetcher.downloads[1].end(SampleImage.downloaded("two"))
        #expect(renderer.requests.map(\.source) == ["one", "two"])
        for request in renderer.requests.reversed() { request.begin() }
        #expect(answers.told == ["two@64 from origin", "one@64 from origin"])
        #expect(world.fetcher.downloads.count == 2)
        #expect(world.store.held(by: .alice).sorted() == ["two", "two@64"])
        #expect(cache.hit(Self.small)?.image.record.provenance == .url("https://two.test/"))
    }

    @Test func `what is found on disk is served while its source is the same`() async throws {
        let world = Self.world(renderer, memory: 0)
        let cache = try cache(world)
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from disk")
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from disk")
        #expect(renderer.requests.count == 1)
    }

    @Test func `a source that is confirmed keeps what was made of it, with a new life`() async throws {
        let cache = try cache()
        let query = ImageQuery(imageKey: Self.small)
        let answers = Answers()
        cache.get(query, resolve: answers.take)
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["etag": ["\"1\""]]))
        world.time.now += 3_600 + 3_600 + 1
        cache.get(query, resolve: answers.take)
        try #require(world.fetcher.downloads.count == 2)
        world.fetcher.downloads[1].end(.notModified(ResponseHeaders(["etag": ["\"1\""]])))
        #expect(answers.told == ["one@64 from origin", "one@64 from disk"])
        #expect(renderer.requests.count == 1)
        #expect(cache.hit(Self.small) != nil)
    }

    @Test func `a source that is gone takes what was made of it along`() async throws {
        let cache = try cache()
        let query = ImageQuery(imageKey: Self.small)
        cache.get(query) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        world.time.now += 3_600 + 3_600 + 1
        let answers = Answers()
        cache.get(query, resolve: answers.take)
        world.fetcher.downloads[1].end(.missing(ResponseHeaders()))
        #expect(answers.told == ["null"])
        #expect(cache.hit(Self.small) == nil)
        #expect(await cache.outcome(query) == "null")
        // That nobody has one is remembered for the size as well: nobody is asked again.
        #expect(world.fetcher.downloads.count == 2)
    }

    @Test(arguments: [0, 1 << 20])
    func `I7: what was made of what was made of an older picture is not served either`(memory: Int) async throws {
        // An origin with sizes: a style is made of the size, and that of what was put without one.
        let world = FakeWorld(memory: memory, renderer: renderer)
        world.store.isInPageCache = true
        let cache = try cache(world)
        let styled = ImageKey(profile: Self.bob, size: 64, style: RenditionStyle(fit: .contain))
        try cache.put(Self.unsized, SampleImage.png("old"), timeToLive: nil)
        for imageKey in [Self.small, styled] { _ = await cache.outcome(ImageQuery(imageKey: imageKey)) }
        try cache.put(Self.unsized, SampleImage.png("new"), timeToLive: nil)
        for imageKey in [styled, Self.small, styled] {
            #expect(cache.lookAtDisk(ImageQuery(imageKey: imageKey)).image == nil || imageKey == Self.small)
            #expect(await cache.outcome(ImageQuery(imageKey: imageKey)).hasPrefix("new"))
        }
    }

    @Test func `I7: other tokens while a picture is made: who asked with the old ones does not keep others from it`()
        async throws
    {
        renderer.isHeld = true
        let cache = try cache()
        cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["vary": ["Authorization"]]))
        #expect(renderer.requests.count == 1)
        var tokens = LoginTokens.of("a")
        tokens.logIn(access: Secret("b".utf8), refresh: nil)
        cache.update(.init(origin: nil, tokens: tokens))
        // Nothing that suits is held: that is the answer, and not asked again and again.
        let cached = ImageQuery(imageKey: ImageKey(profile: Self.bob, size: 65), download: .never)
        #expect(await cache.outcome(cached) == "null")
    }

    @Test func `CACHED of a size is null where the picture may not be kept, though another size is being made`()
        async throws
    {
        renderer.isHeld = true
        let cache = try cache()
        cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]))
        let cached = ImageQuery(imageKey: ImageKey(profile: Self.bob, size: 65), download: .never)
        #expect(await cache.outcome(cached) == "null")
    }

    // MARK: Endings

    @Test func `I3: a purge while a picture is made ends it, and what is made late is not kept`() throws {
        renderer.isHeld = true
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.take)
        _ = try cache.purge([Self.bob])
        #expect(answers.told == ["cancelled"])
        renderer.requests[0].finish()
        #expect(cache.hit(Self.small) == nil)
        #expect(world.store.held(by: .alice) == [])
        #expect(renderer.forgotten == [Owner.alice.uid])
    }

    @Test func `I3: a purge takes what was made along, in every size and style`() async throws {
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for fit in RenditionStyle.Fit.allCases {
            for format in [RenditionStyle.Format.source, .png] {
                let imageKey = ImageKey(profile: Self.bob, size: 64, style: RenditionStyle(fit: fit, format: format))
                _ = await cache.outcome(ImageQuery(imageKey: imageKey))
            }
        }
        #expect(world.store.held(by: .alice).count == 5)
        #expect(try cache.purge([Self.bob]).usage.images == 5)
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `I3: a log-out while a picture is made ends it, and what is made late goes nowhere`() throws {
        renderer.isHeld = true
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: Self.small), resolve: answers.take)
        _ = cache.close()
        renderer.requests[0].finish()
        #expect(answers.told == ["cancelled"])
        #expect(world.store.held(by: .alice) == ["one"])
        #expect(renderer.forgotten == [Owner.alice.uid])
    }

    // MARK: What cannot be made

    @Test func `F82: where none can be made the source is served, and it is not tried again for a while`() async throws
    {
        renderer.failure = .badPicture
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for _ in 0..<3 { #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one from memory") }
        #expect(renderer.requests.count == 1)
        world.time.now += 300
        renderer.failure = nil
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from memory")
    }

    @Test func `without a renderer one picture is downloaded for all sizes`() async throws {
        let world = Self.world(nil)
        let cache = try cache(world)
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one from origin")
        #expect(await cache.outcome(ImageQuery(imageKey: ImageKey(profile: Self.bob, size: 128))) == "one from memory")
        #expect(world.fetcher.downloads.count == 1)
    }

    @Test func `a picture of too many pixels is not even handed to a renderer`() async throws {
        world.settings.renditionPixels = 255
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one", width: 16, height: 16), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one from memory")
        #expect(renderer.requests.isEmpty)
    }

    @Test func `F82: what a renderer returns is held to what was asked for`() async throws {
        renderer.isHeld = true
        let cache = try cache()
        let tiny = ImageKey(profile: Self.bob, size: 4)
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: tiny), resolve: answers.take)
        // Eight pixels for four.
        renderer.requests[0].finish()
        #expect(answers.told == ["one from memory"])
        #expect(world.store.held(by: .alice) == ["one"])
    }

    @Test func `who has waited long enough gets the source`() throws {
        renderer.isHeld = true
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let answers = Answers()
        let waiter = cache.get(ImageQuery(imageKey: Self.small), resolve: answers.take)
        cache.expire(waiter)
        #expect(answers.told == ["one from memory"])
        // Nobody waits for it any more, so it is not even begun.
        renderer.requests[0].begin()
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `what is begun is kept, though nobody waits for it any more`() throws {
        renderer.isHeld = true
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        let waiter = cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        #expect(renderer.requests[0].take())
        cache.leave(waiter)
        renderer.requests[0].finish()
        #expect(cache.hit(Self.small) != nil)
    }

    @Test func `a download that only sizes wait for ends some time after the last has left`() throws {
        let cache = try cache()
        let waiter = cache.get(ImageQuery(imageKey: Self.small)) { _ in }
        cache.leave(waiter)
        #expect(world.fetcher.downloads.count == 1)
        world.time.advance(milliseconds: 5_000)
        #expect(world.log.take().last == "cancel https://origin.test/bob")
    }

    // MARK: What is asked for otherwise

    @Test func `CACHED makes a picture of what is held, and STAT none`() async throws {
        let cache = try cache()
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

    @Test func `NOWAIT has the source downloaded behind it`() async throws {
        let cache = try cache()
        let query = ImageQuery(imageKey: Self.small, download: .behind)
        #expect(await cache.outcome(query) == "null")
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(await cache.outcome(query) == "one@64 from memory")
    }

    @Test func `a picture that may not be kept is made anew for each, and not kept in any size`() async throws {
        let cache = try cache()
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]) }
        for _ in 0..<2 { #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "one@64 from origin, stale") }
        #expect(world.fetcher.downloads.count == 2)
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.small) == nil)
    }

    @Test func `what was PUT in a size goes before what would be made`() async throws {
        let cache = try cache(Self.world(renderer, memory: 0))
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        try cache.put(Self.small, SampleImage.png("small"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "small from disk")
        #expect(renderer.requests.isEmpty)
    }

    @Test(arguments: [0, 1 << 20])
    func `what was PUT without a size is the source of sizes that an origin has as well`(memory: Int) async throws {
        let world = FakeWorld(memory: memory, renderer: renderer)
        let cache = try cache(world)
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)).hasPrefix("one@64"))
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)).hasPrefix("one@64"))
        #expect(renderer.requests.count == 1)
        #expect(world.fetcher.downloads.isEmpty)
    }

    @Test func `an origin that has sizes is asked for each, unless a style is named or it says otherwise`() async throws
    {
        let world = FakeWorld(renderer: renderer)
        let cache = try cache(world)
        world.fetcher.answer = { SampleImage.downloaded($0.target.url.hasSuffix("/64") ? "small" : "other") }
        #expect(await cache.outcome(ImageQuery(imageKey: Self.small)) == "small from origin")
        #expect(renderer.requests.isEmpty)
        let png = ImageKey(profile: Self.bob, size: 64, style: RenditionStyle(format: .png))
        #expect(await cache.outcome(ImageQuery(imageKey: png)) == "small@64 from memory")
        world.settings.origins["default"]?.renditions = .always
        let always = ImageKey(profile: Self.bob, size: 32)
        #expect(await cache.outcome(ImageQuery(imageKey: always)) == "other@32 from origin")
        world.settings.origins["default"]?.renditions = .never
        let webp = ImageKey(profile: Self.bob, size: 64, style: RenditionStyle(format: .webp))
        #expect(await cache.outcome(ImageQuery(imageKey: webp)) == "small from memory")
    }

    @Test func `a profile keeps so many sizes`() async throws {
        world.settings.renditionsPerProfile = 3
        let cache = try cache()
        try cache.put(Self.unsized, SampleImage.png("one"), timeToLive: nil)
        for size in 10..<20 as Range<UInt16> {
            _ = await cache.outcome(ImageQuery(imageKey: ImageKey(profile: Self.bob, size: size)))
        }
        #expect(world.store.held(by: .alice).count == 4)
    }
}
