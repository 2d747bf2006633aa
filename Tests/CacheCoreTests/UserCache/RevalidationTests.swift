import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Revalidation and stale images in one user's cache, over fakes that run work inline.
@Suite struct RevalidationTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)
    private static let june = "Mon, 01 Jun 2026 00:00:00 GMT"

    private let world = FakeWorld()
    private let cache: UserCache

    init() throws {
        cache = try world.cache()
    }

    /// Performs a GET that the origin answers with an image of that label.
    private func download(_ label: String, _ headers: [String: [String]], redirectedTo: String? = nil) async {
        world.fetcher.answer = { _ in
            guard case .image(let image) = SampleImage.downloaded(label, headers: headers) else { return nil }
            return .image(
                DownloadedImage(
                    bytes: image.bytes, shape: image.shape, headers: image.headers, redirectedTo: redirectedTo))
        }
        #expect(await cache.outcome(Self.query).hasPrefix("\(label) from origin"))
    }

    private func respond304(_ headers: [String: [String]] = [:]) {
        world.fetcher.answer = { _ in .notModified(ResponseHeaders(headers)) }
    }

    private var record: ImageRecord? { cache.state.withLockedValue { $0.memory[Self.imageKey]?.served.image.record } }
    private var counters: CacheCounters { world.services.counters }

    @Test func `RFC 9110 section 13.1: validators are sent back unchanged`() async throws {
        await download(
            "one", ["cache-control": ["no-cache"], "etag": ["W/\"a b\""], "last-modified": [Self.june]])
        respond304()
        #expect(await cache.outcome(Self.query) == "one from revalidated, stale")
        #expect(
            world.fetcher.downloads.last?.request.condition
                == DownloadCondition(
                    url: "https://origin.test/alice/bob/128", etag: "W/\"a b\"", lastModified: Self.june))
        #expect(counters[.revalidations] == 1)
        #expect(counters[.notModified] == 1)
    }

    @Test func `validators are bound to the URL that they came from, even after a redirect`() async throws {
        await download(
            "one", ["cache-control": ["no-cache"], "etag": ["\"a\""]], redirectedTo: "https://cdn.test/v1")
        respond304()
        #expect(await cache.outcome(Self.query) == "one from revalidated, stale")
        #expect(world.fetcher.downloads.last?.url == "https://origin.test/alice/bob/128")
        #expect(world.fetcher.downloads.last?.request.condition?.url == "https://cdn.test/v1")
    }

    @Test func `without a validator the request is unconditional`() async throws {
        await download("one", ["cache-control": ["no-cache"], "last-modified": ["yesterday"]])
        await download("two", ["cache-control": ["no-cache"]])
        #expect(world.fetcher.downloads.last?.request.condition == nil)
        #expect(counters[.revalidations] == 0)
    }

    @Test
    func `RFC 9111 section 4.3.4: a 304 renews the image in memory and on disk with the updated fields`()
        async throws
    {
        await download("one", ["cache-control": ["max-age=60, stale-if-error=9"], "etag": ["\"a\""]])
        world.time.now += 3_600 + 60
        respond304(["etag": ["\"a\""], "age": ["10"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated")
        #expect(record?.freshness.timeToLive(at: world.time.now) == 50)
        #expect(record?.freshness.staleIfError == 9)
        #expect(world.store.held(by: .alice) == ["one"])

        world.time.now += 3_600 + 60
        respond304(["cache-control": ["max-age=600"], "etag": ["W/\"a\""], "expires": ["0"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated")
        #expect(record?.freshness.timeToLive(at: world.time.now) == 600)
        #expect(record?.freshness.staleIfError == 3_600)
        #expect(record?.fields.etag == "W/\"a\"")
        #expect(cache.hit(Self.imageKey)?.source == .memory)
    }

    @Test func `the image on disk has the record of its latest 304`() async throws {
        await download("one", ["cache-control": ["max-age=60"], "etag": ["\"a\""]])
        world.time.now += 3_600 + 60
        respond304(["cache-control": ["max-age=600"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated")
        let image = try #require(try cache.generationStore.read(Self.imageKey, framing: .bare))
        #expect(image.record == record)
        #expect(image.record.fields.cacheControl == "max-age=600")
    }

    @Test func `a 304 with no-store is served and removes the image`() async throws {
        await download("one", ["cache-control": ["no-cache"], "etag": ["\"a\""]])
        respond304(["cache-control": ["no-store"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated, stale")
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test
    func `RFC 9111 section 4.3.4: a 304 with another strong tag causes one unconditional request`()
        async throws
    {
        await download("one", ["cache-control": ["no-cache"], "etag": ["\"a\""]])
        world.fetcher.answer = { download in
            download.condition == nil
                ? SampleImage.downloaded("two") : .notModified(ResponseHeaders(["etag": ["\"b\""]]))
        }
        #expect(await cache.outcome(Self.query) == "two from origin")
        #expect(world.fetcher.downloads.count == 3)
        #expect(world.store.held(by: .alice) == ["two"])
        #expect(counters[.notModified] == 0)
    }

    @Test(arguments: [
        ["cache-control": ["max-age=60"], "age": ["61"]], ["cache-control": ["max-age=60"], "age": ["60"]],
        ["cache-control": ["max-age=0"]], ["expires": ["0"]], ["expires": ["Thu, 01 Jan 1970 00:00:00 GMT"]],
    ])
    func `section 4.2.4: an image that was stale on arrival is marked stale and revalidated before the next hit`(
        _ headers: [String: [String]]
    ) async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: headers) }
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
        world.fetcher.answer = { _ in SampleImage.downloaded("two") }
        #expect(await cache.outcome(Self.query) == "two from origin")
    }

    @Test
    func
        `RFC 5861: an image that was stale on arrival is served on errors, and at once if stale-while-revalidate allows it`()
        async throws
    {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["max-age=0"]]) }
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
        world.fetcher.answer = { _ in .failed(.origin("HTTP status 503")) }
        #expect(await cache.outcome(Self.query) == "one from memory, stale")
        world.fetcher.answer = { _ in
            SampleImage.downloaded("two", headers: ["cache-control": ["max-age=0, stale-while-revalidate=9"]])
        }
        #expect(await cache.outcome(Self.query) == "two from origin, stale")
        world.fetcher.answer = nil
        #expect(await cache.outcome(Self.query) == "two from memory, stale")
    }

    @Test func `section 5.2.2.5: an image with no-store is marked stale`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]) }
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
    }

    @Test func `F14: a wall clock that jumps by a year changes nothing while the daemon runs`() async throws {
        await download("one", ["cache-control": ["max-age=60"]])
        for year in [31_536_000, -31_536_000] as [Int64] {
            world.time.wallClock += year
            #expect(cache.hit(Self.imageKey) != nil)
        }
        world.time.wallClock += 31_536_000
        world.time.advance(seconds: 60)
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test func `F14: after a start with an earlier clock an image is served stale and revalidated in the background`()
        async throws
    {
        await download("one", ["cache-control": ["max-age=60"], "etag": ["\"a\""]])
        world.fetcher.answer = nil
        world.time.now -= 31_536_000
        #expect(await cache.outcome(Self.query) == "one from memory, stale")
        world.fetcher.downloads.last?.end(.notModified(ResponseHeaders()))
        #expect(await cache.outcome(Self.query) == "one from memory")
        #expect(record?.freshness.storedAt == world.time.now)
    }

    @Test func `a 404 is remembered for its own lifetime, or for negative-ttl`() async throws {
        for (headers, seconds) in [(["cache-control": ["max-age=30"]], 30), ([:], 300)] as [([String: [String]], Int64)]
        {
            let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("nobody \(seconds)")))
            world.fetcher.answer = { _ in .missing(ResponseHeaders(headers)) }
            #expect(await cache.outcome(query) == "null")
            let requests = world.fetcher.downloads.count
            world.time.now += seconds - 1
            #expect(await cache.outcome(query) == "null")
            #expect(world.fetcher.downloads.count == requests)
            world.time.now += 1
            #expect(await cache.outcome(query) == "null")
            #expect(world.fetcher.downloads.count == requests + 1)
        }
    }

    @Test func `I7: a PUT and a purge each remove a remembered 404`() async throws {
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await cache.outcome(Self.query) == "null")
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        #expect(await cache.outcome(Self.query) == "mine from memory")
        _ = try cache.purge([OpaqueID("bob")])
        #expect(await cache.outcome(Self.query) == "null")
        _ = try cache.purge([OpaqueID("bob")])
        await download("one", [:])
    }

    @Test func `RFC 9111 section 4.2.3: a response ages while it waits to be checked`() throws {
        let pool = GatedPool()
        let world = FakeWorld(imagePool: pool)
        let cache = try world.cache()
        let answers = Answers()
        cache.get(Self.query, resolve: answers.record)
        pool.runAll()
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["cache-control": ["max-age=60"]]))
        world.time.now += 40
        pool.runAll()
        #expect(answers.outcomes == ["one from origin"])
        #expect(cache.hit(Self.imageKey)?.image.record.freshness.timeToLive(at: world.time.now) == 20)
    }

    @Test func `an image from a named URL is revalidated there, even before it is written`() throws {
        let pool = GatedPool()
        let world = FakeWorld(imagePool: pool, memory: 0)
        let cache = try world.cache()
        let answers = Answers()
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        cache.get(ImageQuery(imageKey: Self.imageKey, named: named), resolve: answers.record)
        pool.runAll()
        world.fetcher.downloads[0].end(
            SampleImage.downloaded(
                "x", headers: ["cache-control": ["max-age=0, stale-while-revalidate=9"], "etag": ["\"1\""]]))
        // The write is queued.
        #expect(pool.count == 1)
        cache.get(Self.query, resolve: answers.record)
        #expect(answers.outcomes == ["x from origin, stale", "x from memory, stale"])
        #expect(world.fetcher.downloads.last?.url == "https://other.test/x")
        #expect(world.fetcher.downloads.last?.request.condition?.etag == "\"1\"")
        pool.runAll()
    }
}
