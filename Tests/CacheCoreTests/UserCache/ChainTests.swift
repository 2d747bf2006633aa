import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// An origin with three upstreams, in one user's cache, over fakes that run work inline.
@Suite struct ChainTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    private let world: FakeWorld
    private let cache: UserCache
    /// The response of each upstream: an image label, `none`, `same`, or a failure.
    private let answers = NIOLockedValueBox<[String: String]>([:])
    private let headers = NIOLockedValueBox<[String: [String]]>([:])

    init() throws {
        let world = FakeWorld()
        var origin = Origin(name: "default", url: "https://a.test/{profile}")
        origin.then = [Upstream(url: "https://b.test/{profile}"), Upstream(url: "https://c.test/{profile}")]
        origin.then[1].showsToken = true
        (origin.showsToken, origin.negativeTTL) = (false, 300)
        (origin.defaultTTL, origin.staleWhileRevalidate, origin.staleIfError) = (3_600, 0, 3_600)
        world.settings = CacheSettings(origins: ["default": origin])
        self.world = world
        cache = try world.cache(token: Secret("t"))
        let (answers, headers) = (answers, headers)
        world.fetcher.answer = { download in
            switch answers.withLockedValue({ $0[Self.name(download)] }) {
            case nil: nil
            case "none": .missing(ResponseHeaders())
            case "same": .notModified(ResponseHeaders())
            case "403": .failed(.forbidden("403"))
            case "html": .unusable(.badImage("html"), ResponseHeaders())
            case "busy": .failed(.busy("busy"))
            case let status? where status.allSatisfy(\.isNumber): .failed(.origin(status))
            case let label?: SampleImage.downloaded(label, headers: headers.withLockedValue { $0 })
            }
        }
    }

    private static func name(_ download: Download) -> String {
        String(download.target.url.dropFirst("https://".count).prefix(1))
    }

    private func respond(_ a: String?, _ b: String?, _ c: String?) {
        answers.withLockedValue { $0 = ["a": a, "b": b, "c": c].compactMapValues { $0 } }
    }

    /// The result of a GET and the upstreams that were requested.
    private func get(_ query: ImageQuery = query) async -> String {
        let before = world.fetcher.downloads.count
        let outcome = await cache.outcome(query)
        return "\(outcome) by \(world.fetcher.downloads.dropFirst(before).map { Self.name($0.request) }.joined())"
    }

    private var record: ImageRecord? { cache.state.withLockedValue { $0.memory[Self.imageKey]?.served.image.record } }

    @Test(arguments: [
        (["one", "two", "three"], "one from origin by a"),
        (["none", "two", "three"], "two from origin by ab"),
        (["500", "none", "three"], "three from origin by abc"),
        (["403", "two", "three"], "two from origin by ab"),
        (["none", "none", "none"], "null by abc"),
        (["none", "none", "500"], "origin 500 by abc"),
        (["500", "none", "none"], "origin 500 by abc"),
        (["500", "502", "none"], "origin 502 by abc"),
        // A local limit fails the GET; the next upstream would be limited as well.
        (["busy", "two", "three"], "busy(\"busy\") by a"),
    ])
    func `the first upstream with an image wins; without an image, a failure takes precedence over a 404`(
        responses: [String], outcome: String
    ) async {
        respond(responses[0], responses[1], responses[2])
        #expect(await get() == outcome)
    }

    @Test func `each upstream's 404 is remembered separately`() async {
        respond("none", "500", "none")
        #expect(await get() == "origin 500 by abc")
        #expect(await get() == "origin 500 by b")
        respond("one", "none", "three")
        #expect(await get() == "null by b")
        #expect(await get() == "null by ")
        world.time.now += 301
        #expect(await get() == "one from origin by a")
    }

    @Test func `each upstream's response without a usable image is remembered separately and counts as a failure`()
        async
    {
        respond("html", "none", "500")
        #expect(await get() == "origin 500 by abc")
        respond("one", "two", "three")
        #expect(await get() == "three from origin by c")
        #expect(record?.isStandIn == true)
        // Until the first remembered failure expires.
        world.time.now += 301
        #expect(await get() == "one from origin by a")
    }

    @Test func `the combined 404 lasts as long as the shortest of the upstreams' 404s`() async {
        world.fetcher.answer = { download in
            let age = Self.name(download) == "b" ? "60" : "600"
            return .missing(ResponseHeaders(["cache-control": ["max-age=\(age)"]]))
        }
        #expect(await get() == "null by abc")
        world.time.now += 61
        #expect(await get() == "null by b")
    }

    @Test func `the upstream of a stored image is requested first; if it has none, the chain starts over`() async {
        headers.withLockedValue { $0 = ["etag": ["\"1\""], "cache-control": ["max-age=60"]] }
        respond("none", "two", nil)
        #expect(await get() == "two from origin by ab")
        world.time.now += 61
        respond("one", "same", nil)
        #expect(await get() == "two from revalidated by b")
        #expect(world.fetcher.downloads.last?.request.condition?.etag == "\"1\"")
        world.time.now += 3_601
        respond("one", "none", nil)
        #expect(await get() == "one from origin by ba")
        // The validator belongs to another upstream.
        #expect(world.fetcher.downloads.last?.request.condition == nil)
        world.time.now += 61
        respond("none", "none", "none")
        #expect(await get() == "null by abc")
        #expect(record == nil && world.store.held(by: .alice) == [])
    }

    @Test func `I9: if the upstream of a stored image fails, the image is served stale instead of another upstream's`()
        async
    {
        headers.withLockedValue { $0 = ["cache-control": ["max-age=60"]] }
        respond("none", "two", nil)
        #expect(await get() == "two from origin by ab")
        world.time.now += 61
        respond("none", "500", "three")
        #expect(await get() == "two from memory, stale by b")
        // A 403 from the image's upstream forbids the stale image, whatever the others respond.
        respond("none", "403", "500")
        #expect(await get() == "forbidden(\"403\") by bac")
        respond("none", "403", "three")
        #expect(await get() == "three from origin by bc")
    }

    @Test func `an image that its upstream no longer has is removed, even if another upstream fails`() async {
        headers.withLockedValue { $0 = ["cache-control": ["max-age=60"]] }
        respond("none", "two", nil)
        #expect(await get() == "two from origin by ab")
        world.time.now += 61
        respond("500", "none", "none")
        #expect(await get() == "origin 500 by bac")
        #expect(record == nil && world.store.held(by: .alice) == [])
    }

    @Test
    func `an image from after a failed upstream gets a short lifetime, and then all upstreams are requested again`()
        async
    {
        headers.withLockedValue { $0 = ["etag": ["\"1\""], "cache-control": ["max-age=86400"]] }
        respond("500", "two", nil)
        #expect(await get() == "two from origin by ab")
        #expect(record?.isStandIn == true && record?.freshness.timeToLive(at: world.time.now) == 300)
        world.time.now += 301
        respond("500", "same", nil)
        #expect(await get() == "two from revalidated by ab")
        #expect(record?.isStandIn == true && record?.freshness.timeToLive(at: world.time.now) == 300)
        world.time.now += 301
        respond("none", "same", nil)
        #expect(await get() == "two from revalidated by ab")
        #expect(record?.isStandIn == false && record?.freshness.timeToLive(at: world.time.now) == 86_400)
    }

    @Test func `F39: the token is sent only to the upstreams that are configured for it`() async {
        respond("none", "none", "three")
        #expect(await get() == "three from origin by abc")
        #expect(world.fetcher.downloads.map { $0.request.token?.text } == [nil, nil, "t"])
    }

    @Test func `I8: the upstreams share one timeout, and each gets an equal part of what remains`() async {
        respond(nil, nil, nil)
        let first = Task { await get() }
        await world.fetcher.started(1)
        #expect(world.fetcher.downloads[0].request.timeout == 1_250)
        world.time.advance(milliseconds: 1_250)
        world.fetcher.downloads[0].end(.failed(.timedOut("a")))
        #expect(world.fetcher.downloads[1].request.timeout == 1_500)
        world.time.advance(milliseconds: 10)
        world.fetcher.downloads[1].end(.missing(ResponseHeaders()))
        #expect(world.fetcher.downloads[2].request.timeout == 2_500)
        world.time.advance(milliseconds: 2_600)
        world.fetcher.downloads[2].end(.failed(.timedOut("c")))
        #expect(await first.value == "timeout by abc")
    }

    @Test func `I6: a chain is one flight, and a GET with the URL of one upstream is another`() async {
        respond(nil, nil, nil)
        let received = NIOLockedValueBox<[String]>([])
        func request(_ name: String, _ query: ImageQuery = ChainTests.query) {
            cache.get(query) { outcome in
                received.withLockedValue { $0.append("\(name): \(CoordinatorBench.describe(outcome))") }
            }
        }
        for number in 1...3 { request("\(number)") }
        let named = DownloadTarget(url: "https://a.test/bob", isNamedByClient: true)
        request("named", ImageQuery(imageKey: Self.imageKey, named: named))
        #expect(world.fetcher.downloads.map(\.url) == ["https://a.test/bob", "https://a.test/bob"])
        world.fetcher.downloads[0].end(.missing(ResponseHeaders()))
        request("4")
        world.fetcher.downloads[2].end(SampleImage.downloaded("two"))
        #expect(received.withLockedValue { $0 } == (1...4).map { "\($0): two from origin" })
        world.fetcher.downloads[1].end(.missing(ResponseHeaders()))
        #expect(received.withLockedValue { $0.last } == "named: null")
        #expect(cache.hit(Self.imageKey)?.image.label == "two")
    }

    @Test func `I3: a purge ends a chain between two upstreams`() async throws {
        respond(nil, nil, nil)
        let waiting = Task { await cache.outcome(Self.query) }
        await world.fetcher.started(1)
        #expect(try cache.purge([OpaqueID("bob")]).cancelled == 1)
        #expect(await waiting.value == "cancelled")
        world.fetcher.downloads[0].end(.missing(ResponseHeaders()))
        #expect(world.fetcher.downloads.count == 1 && world.fetcher.downloads[0].isCancelled)
    }

    @Test func `after a login with other tokens, all upstreams are requested again`() async {
        respond(nil, nil, "three")
        let waiting = Task { await get() }
        await world.fetcher.started(1)
        world.fetcher.downloads[0].end(.missing(ResponseHeaders()))
        cache.update(.init(origin: nil, tokens: LoginTokens(access: Secret("u"), family: 7)))
        world.fetcher.downloads[1].end(.failed(.origin("500")))
        world.fetcher.downloads[2].end(.missing(ResponseHeaders()))
        cache.update(.init(origin: nil, tokens: LoginTokens(access: Secret("v"), family: 8)))
        world.fetcher.downloads[3].end(.missing(ResponseHeaders()))
        world.fetcher.downloads[4].end(.missing(ResponseHeaders()))
        world.fetcher.downloads[5].end(.missing(ResponseHeaders()))
        #expect(await waiting.value == "three from origin by abababc")
        #expect(world.fetcher.downloads.last?.request.token?.text == "v")
    }
}
