import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// One user's cache over fakes that run work inline.
@Suite struct UserCacheTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    private let world = FakeWorld()

    @Test func `a missing image is downloaded from the template's URL, served, stored and found again`() throws {
        let cache = try world.cache()
        let answers = Answers()
        cache.get(Self.query, resolve: answers.record)
        #expect(world.fetcher.downloads.map(\.url) == ["https://origin.test/alice/bob/128"])
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(answers.outcomes == ["one from origin"])
        #expect(world.store.held(by: .alice) == ["one"])
        #expect(cache.hit(Self.imageKey).map { $0.source } == .memory)
    }

    @Test func `an image that was evicted from memory is found on disk and added to memory again`() async throws {
        let world = FakeWorld(memory: 16 << 10)
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        for number in 0..<40 {
            try cache.put(ImageKey(profile: OpaqueID("\(number)")), SampleImage.png("x", size: 1_000), timeToLive: nil)
        }
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(await cache.outcome(Self.query) == "mine from disk")
        #expect(cache.hit(Self.imageKey) != nil)
    }

    @Test func `an image too large for the memory tier is served from disk each time`() async throws {
        let world = FakeWorld(memory: 0)
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        for _ in 0..<2 {
            #expect(cache.hit(Self.imageKey) == nil)
            #expect(await cache.outcome(Self.query) == "mine from disk")
        }
    }

    @Test func `a hit is fresh and from the requested URL`() throws {
        let cache = try world.cache()
        cache.get(Self.query) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["cache-control": ["max-age=60"]]))
        #expect(cache.hit(Self.imageKey, url: "https://origin.test/alice/bob/128") != nil)
        #expect(cache.hit(Self.imageKey, url: "https://other.test/x") == nil)
        world.time.now += 60
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test func `a download that ends before the fetcher returns is delivered`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("quick") }
        let cache = try world.cache()
        #expect(await cache.outcome(Self.query) == "quick from origin")
        #expect(cache.hit(Self.imageKey) != nil)
    }

    @Test func `if the fetcher rejects a download, the result is BUSY or the stale image`() async throws {
        let cache = try world.cache()
        world.fetcher.refusal = .busy("64 downloads wait")
        #expect(await cache.outcome(Self.query) == "busy(\"64 downloads wait\")")
        world.fetcher.refusal = nil
        cache.get(Self.query) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        world.time.now += 3_600 + 600
        world.fetcher.refusal = .busy("64 downloads wait")
        #expect(await cache.outcome(Self.query) == "one from memory, stale")
    }

    @Test func `an origin that was removed from the configuration is an error only if a download is needed`()
        async throws
    {
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        world.settings.origins = [:]
        #expect(await cache.outcome(Self.query) == "mine from memory")
        #expect(await cache.outcome(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) == "null")
        #expect(throws: CacheFailure.self) { try cache.target(of: Self.imageKey, url: "https://other.test/x") }
    }

    @Test func `I11: a download carries the latest token`() throws {
        let cache = try world.cache(token: Secret([1]))
        cache.get(Self.query) { _ in }
        cache.update(.init(origin: nil, token: Secret([2])))
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) { _ in }
        #expect(world.fetcher.downloads.map(\.request.token) == [Secret([1]), Secret([2])])
    }

    @Test func `a response with no-store is served and not stored`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]) }
        let cache = try world.cache()
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(world.store.held(by: .alice) == [])
    }

    @Test func `a 404 removes the image from memory and disk`() async throws {
        let cache = try world.cache()
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        _ = await cache.outcome(Self.query)
        world.time.now += 3_600 + 3_600
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await cache.outcome(Self.query) == "null")
        #expect(world.store.held(by: .alice) == [])
        #expect(await cache.outcome(ImageQuery(imageKey: Self.imageKey, download: .never)) == "null")
    }

    @Test func `I7: a 404 of a named URL does not remove an image that was PUT`() async throws {
        let cache = try world.cache()
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        #expect(await cache.outcome(ImageQuery(imageKey: Self.imageKey, named: named)) == "null")
        #expect(world.store.held(by: .alice) == ["mine"])
        #expect(cache.hit(Self.imageKey) != nil)
    }

    @Test func `I9: on a full disk a downloaded image is served, also from memory`() async throws {
        let cache = try world.cache()
        world.store.fail(.seal, times: .max, with: .noSpace("disk full"))
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await cache.outcome(Self.query) == "one from origin")
        #expect(cache.hit(Self.imageKey) != nil)
        #expect(world.store.held(by: .alice) == [])
    }

    @Test func `a stale image is revalidated at its own URL, not at the template's`() async throws {
        let cache = try world.cache()
        world.fetcher.answer = { _ in SampleImage.downloaded("x") }
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        _ = await cache.outcome(ImageQuery(imageKey: Self.imageKey, named: named))
        world.time.now += 3_600
        world.fetcher.answer = nil
        #expect(await cache.outcome(Self.query) == "x from memory, stale")
        #expect(world.fetcher.downloads.last?.url == "https://other.test/x")
        #expect(world.fetcher.downloads.last?.request.target.isNamedByClient == true)
    }

    @Test func `F57: an image whose URL is no longer allowed is revalidated at the template's URL`() async throws {
        let cache = try world.cache()
        world.fetcher.answer = { _ in SampleImage.downloaded("x") }
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        _ = await cache.outcome(ImageQuery(imageKey: Self.imageKey, named: named))
        world.settings.origins["default"]?.allow = []
        world.time.now += 3_600
        _ = await cache.outcome(Self.query)
        #expect(world.fetcher.downloads.last?.url == "https://origin.test/alice/bob/128")
    }

    @Test
    func
        `F54: a client that gives up and returns within 5 s joins the download; after 5 s without waiters it is cancelled`()
        throws
    {
        let cache = try world.cache()
        for _ in 0..<10 {
            let waiter = cache.get(Self.query) { _ in }
            world.time.advance(seconds: 5)
            cache.leave(waiter)
            world.time.advance(milliseconds: 4_999)
        }
        #expect(world.fetcher.downloads.count == 1)
        #expect(!world.fetcher.downloads[0].isCancelled)
        world.time.advance(milliseconds: 1)
        #expect(world.fetcher.downloads[0].isCancelled)
        #expect(world.time.timers == 0)
    }

    @Test func `F36: a waiter that times out gets TIMEOUT and no later result`() throws {
        let cache = try world.cache()
        let answers = Answers()
        let waiter = cache.get(Self.query, resolve: answers.record)
        cache.expire(waiter)
        world.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(answers.outcomes == ["timeout"])
    }
}

/// Collects outcomes in the order of arrival.
final class Answers: Sendable {
    private let recorded = NIOLockedValueBox<[String]>([])

    var outcomes: [String] { recorded.withLockedValue { $0 } }

    func record(_ outcome: Result<ServedImage?, CacheFailure>) {
        recorded.withLockedValue { $0.append(CoordinatorBench.describe(outcome)) }
    }
}
