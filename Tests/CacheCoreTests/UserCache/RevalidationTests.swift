import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Revalidation and staleness in one user's cache, over fakes whose work runs at once.
@Suite struct RevalidationTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)
    private static let june = "Mon, 01 Jun 2026 00:00:00 GMT"

    private let world = FakeWorld()
    private let cache: UserCache

    init() throws {
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: nil),
            services: world.services)
    }

    /// The origin answers the next GET with an image of that label.
    private func download(_ label: String, _ headers: [String: [String]], redirectedTo: String? = nil) async {
        world.fetcher.answer = { _ in
            guard case .image(let image) = SampleImage.downloaded(label, headers: headers) else { return nil }
            return .image(
                DownloadedImage(
                    bytes: image.bytes, shape: image.shape, headers: image.headers, redirectedTo: redirectedTo))
        }
        #expect(await cache.outcome(Self.query).hasPrefix("\(label) from origin"))
    }

    private func says304(_ headers: [String: [String]] = [:]) {
        world.fetcher.answer = { _ in .notModified(ResponseHeaders(headers)) }
    }

    private var record: ImageRecord? { cache.state.withLockedValue { $0.memory[Self.imageKey]?.served.image.record } }
    private var counters: CacheCounters { world.services.counters }

    @Test func `RFC 9110 section 13.1: validators are sent back as they came`() async throws {
        await download(
            "one", ["cache-control": ["no-cache"], "etag": ["W/\"a b\""], "last-modified": [Self.june]])
        says304()
        #expect(await cache.outcome(Self.query) == "one from revalidated, stale")
        #expect(
            world.fetcher.downloads.last?.request.condition
                == DownloadCondition(
                    url: "https://origin.test/alice/bob/128", etag: "W/\"a b\"", lastModified: Self.june))
        #expect(counters[.revalidations] == 1)
        #expect(counters[.notModified] == 1)
    }

    @Test func `validators belong to the URL that gave them, also where a redirect led there`() async throws {
        await download(
            "one", ["cache-control": ["no-cache"], "etag": ["\"a\""]], redirectedTo: "https://cdn.test/v1")
        says304()
        #expect(await cache.outcome(Self.query) == "one from revalidated, stale")
        #expect(world.fetcher.downloads.last?.url == "https://origin.test/alice/bob/128")
        #expect(world.fetcher.downloads.last?.request.condition?.url == "https://cdn.test/v1")
    }

    @Test func `without a validator the origin is asked without a condition`() async throws {
        await download("one", ["cache-control": ["no-cache"], "last-modified": ["yesterday"]])
        await download("two", ["cache-control": ["no-cache"]])
        #expect(world.fetcher.downloads.last?.request.condition == nil)
        #expect(counters[.revalidations] == 0)
    }

    @Test
    func `RFC 9111 section 4.3.4: a 304 gives the image new life, in memory and on disk, by the fields it updates`()
        async throws
    {
        await download("one", ["cache-control": ["max-age=60, stale-if-error=9"], "etag": ["\"a\""]])
        world.time.now += 3_600 + 60
        says304(["etag": ["\"a\""], "age": ["10"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated")
        #expect(record?.freshness.timeToLive(at: world.time.now) == 50)
        #expect(record?.freshness.staleIfError == 9)
        #expect(world.store.held(by: .alice) == ["one"])

        world.time.now += 3_600 + 60
        says304(["cache-control": ["max-age=600"], "etag": ["W/\"a\""], "expires": ["0"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated")
        #expect(record?.freshness.timeToLive(at: world.time.now) == 600)
        #expect(record?.freshness.staleIfError == 3_600)
        #expect(record?.fields.etag == "W/\"a\"")
        #expect(cache.hit(Self.imageKey)?.source == .memory)
    }

    @Test func `what was revalidated is found on disk as it was confirmed`() async throws {
        await download("one", ["cache-control": ["max-age=60"], "etag": ["\"a\""]])
        world.time.now += 3_600 + 60
        says304(["cache-control": ["max-age=600"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated")
        let image = try #require(try cache.generationStore.read(Self.imageKey, framing: .bare))
        #expect(image.record == record)
        #expect(image.record.fields.cacheControl == "max-age=600")
    }

    @Test func `a 304 that forbids to store is served and leaves nothing`() async throws {
        await download("one", ["cache-control": ["no-cache"], "etag": ["\"a\""]])
        says304(["cache-control": ["no-store"]])
        #expect(await cache.outcome(Self.query) == "one from revalidated, stale")
        #expect(world.store.held(by: .alice) == [])
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test
    func `RFC 9111 section 4.3.4: a 304 with another strong tag is about something else, and is asked again once`()
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
    func `section 4.2.4: what was stale as it came says so, and is asked about before it is served again`(
        _ headers: [String: [String]]
    ) async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: headers) }
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
        world.fetcher.answer = { _ in SampleImage.downloaded("two") }
        #expect(await cache.outcome(Self.query) == "two from origin")
    }

    @Test func `RFC 5861: what was stale as it came is served when the origin fails, and at once where it says so`()
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

    @Test func `section 5.2.2.5: what may not be kept is stale at once`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]) }
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
    }

    @Test func `F14: a wall clock that jumps a year either way changes nothing while the daemon runs`() async throws {
        await download("one", ["cache-control": ["max-age=60"]])
        for year in [31_536_000, -31_536_000] as [Int64] {
            world.time.wallClock += year
            #expect(cache.hit(Self.imageKey) != nil)
        }
        world.time.wallClock += 31_536_000
        world.time.advance(seconds: 60)
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test func `F14: found after a start with the clock set back, an image is served stale and asked for behind`()
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

    @Test func `a 404 is remembered for as long as it says itself, else for negative-ttl`() async throws {
        for (headers, seconds) in [(["cache-control": ["max-age=30"]], 30), ([:], 300)] as [([String: [String]], Int64)]
        {
            let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("nobody \(seconds)")))
            world.fetcher.answer = { _ in .missing(ResponseHeaders(headers)) }
            #expect(await cache.outcome(query) == "null")
            let asked = world.fetcher.downloads.count
            world.time.now += seconds - 1
            #expect(await cache.outcome(query) == "null")
            #expect(world.fetcher.downloads.count == asked)
            world.time.now += 1
            #expect(await cache.outcome(query) == "null")
            #expect(world.fetcher.downloads.count == asked + 1)
        }
    }

    @Test func `I7: a PUT clears a remembered 404, and so does a purge`() async throws {
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await cache.outcome(Self.query) == "null")
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        #expect(await cache.outcome(Self.query) == "mine from memory")
        _ = try cache.purge([OpaqueID("bob")])
        #expect(await cache.outcome(Self.query) == "null")
        _ = try cache.purge([OpaqueID("bob")])
        await download("one", [:])
    }

    @Test func `RFC 9111 section 4.2.3: an answer has aged while it waited for a thread to judge it`() throws {
        let pool = GatedPool()
        let world = FakeWorld(disk: pool)
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        let cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: nil),
            services: world.services)
        let answers = Answers()
        cache.get(Self.query, resolve: answers.take)
        pool.runAll()
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["cache-control": ["max-age=60"]]))
        world.time.now += 40
        pool.runAll()
        #expect(answers.told == ["one from origin"])
        #expect(cache.hit(Self.imageKey)?.image.record.freshness.timeToLive(at: world.time.now) == 20)
    }

    @Test func `what came from a named URL is asked about there, also while it is on its way to the disk`() throws {
        let pool = GatedPool()
        let world = FakeWorld(disk: pool, memory: 0)
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        let cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: nil),
            services: world.services)
        let answers = Answers()
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        cache.get(ImageQuery(imageKey: Self.imageKey, named: named), resolve: answers.take)
        pool.runAll()
        world.fetcher.downloads[0].end(
            SampleImage.downloaded(
                "x", headers: ["cache-control": ["max-age=0, stale-while-revalidate=9"], "etag": ["\"1\""]]))
        // Its write waits.
        #expect(pool.count == 1)
        cache.get(Self.query, resolve: answers.take)
        #expect(answers.told == ["x from origin, stale", "x from memory, stale"])
        #expect(world.fetcher.downloads.last?.url == "https://other.test/x")
        #expect(world.fetcher.downloads.last?.request.condition?.etag == "\"1\"")
        pool.runAll()
    }
}
