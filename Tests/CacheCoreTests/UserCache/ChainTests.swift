import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// An origin of three links, in one user's cache, over fakes whose work runs at once.
@Suite struct ChainTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    private let world: FakeWorld
    private let cache: UserCache
    /// What each link says: a label for a picture, `none`, `same`, or the status that it fails with.
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
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: Secret("t")),
            services: world.services)
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

    private func say(_ a: String?, _ b: String?, _ c: String?) {
        answers.withLockedValue { $0 = ["a": a, "b": b, "c": c].compactMapValues { $0 } }
    }

    /// What a GET is answered with, and whom it asked.
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
        // It is about who asks: the next would be asked for nothing.
        (["busy", "two", "three"], "busy(\"busy\") by a"),
    ])
    func `the first that has a picture wins, and where nobody has one a failure is no lasting "none"`(
        says: [String], outcome: String
    ) async {
        say(says[0], says[1], says[2])
        #expect(await get() == outcome)
    }

    @Test func `each link's "none" is remembered by itself`() async {
        say("none", "500", "none")
        #expect(await get() == "origin 500 by abc")
        #expect(await get() == "origin 500 by b")
        say("one", "none", "three")
        #expect(await get() == "null by b")
        #expect(await get() == "null by ")
        world.time.now += 301
        #expect(await get() == "one from origin by a")
    }

    @Test func `each link's response without a usable image is remembered by itself, and counts as its failure`() async
    {
        say("html", "none", "500")
        #expect(await get() == "origin 500 by abc")
        say("one", "two", "three")
        #expect(await get() == "three from origin by c")
        #expect(record?.isStandIn == true)
        // Until the first is believed no longer.
        world.time.now += 301
        #expect(await get() == "one from origin by a")
    }

    @Test func `of the times that links are believed the shortest is that of the whole`() async {
        world.fetcher.answer = { download in
            let age = Self.name(download) == "b" ? "60" : "600"
            return .missing(ResponseHeaders(["cache-control": ["max-age=\(age)"]]))
        }
        #expect(await get() == "null by abc")
        world.time.now += 61
        #expect(await get() == "null by b")
    }

    @Test func `who gave a picture is asked about it first, and the others from the beginning when it has none`() async
    {
        headers.withLockedValue { $0 = ["etag": ["\"1\""], "cache-control": ["max-age=60"]] }
        say("none", "two", nil)
        #expect(await get() == "two from origin by ab")
        world.time.now += 61
        say("one", "same", nil)
        #expect(await get() == "two from revalidated by b")
        #expect(world.fetcher.downloads.last?.request.condition?.etag == "\"1\"")
        world.time.now += 3_601
        say("one", "none", nil)
        #expect(await get() == "one from origin by ba")
        // The validator is another link's.
        #expect(world.fetcher.downloads.last?.request.condition == nil)
        world.time.now += 61
        say("none", "none", "none")
        #expect(await get() == "null by abc")
        #expect(record == nil && world.store.held(by: .alice) == [])
    }

    @Test func `I9: while who gave a picture fails it is served, stale, rather than another's`() async {
        headers.withLockedValue { $0 = ["cache-control": ["max-age=60"]] }
        say("none", "two", nil)
        #expect(await get() == "two from origin by ab")
        world.time.now += 61
        say("none", "500", "three")
        #expect(await get() == "two from memory, stale by b")
        // Not where it says that this user may not have it, whatever the others say.
        say("none", "403", "500")
        #expect(await get() == "forbidden(\"403\") by bac")
        say("none", "403", "three")
        #expect(await get() == "three from origin by bc")
    }

    @Test func `what its giver has no more is dropped, also where another link fails`() async {
        headers.withLockedValue { $0 = ["cache-control": ["max-age=60"]] }
        say("none", "two", nil)
        #expect(await get() == "two from origin by ab")
        world.time.now += 61
        say("500", "none", "none")
        #expect(await get() == "origin 500 by bac")
        #expect(record == nil && world.store.held(by: .alice) == [])
    }

    @Test func `behind a link that failed a picture stands in for a while, and then all are asked anew`() async {
        headers.withLockedValue { $0 = ["etag": ["\"1\""], "cache-control": ["max-age=86400"]] }
        say("500", "two", nil)
        #expect(await get() == "two from origin by ab")
        #expect(record?.isStandIn == true && record?.freshness.timeToLive(at: world.time.now) == 300)
        world.time.now += 301
        say("500", "same", nil)
        #expect(await get() == "two from revalidated by ab")
        #expect(record?.isStandIn == true && record?.freshness.timeToLive(at: world.time.now) == 300)
        world.time.now += 301
        say("none", "same", nil)
        #expect(await get() == "two from revalidated by ab")
        #expect(record?.isStandIn == false && record?.freshness.timeToLive(at: world.time.now) == 86_400)
    }

    @Test func `F39: the token goes to the links that it is for`() async {
        say("none", "none", "three")
        #expect(await get() == "three from origin by abc")
        #expect(world.fetcher.downloads.map { $0.request.token?.text } == [nil, nil, "t"])
    }

    @Test func `I8: all links share one time limit, and each may take an even part of what is left`() async {
        say(nil, nil, nil)
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

    @Test func `I6: a chain is one flight, and a GET with one link's URL is another`() async {
        say(nil, nil, nil)
        let told = NIOLockedValueBox<[String]>([])
        func ask(_ name: String, _ query: ImageQuery = ChainTests.query) {
            cache.get(query) { outcome in
                told.withLockedValue { $0.append("\(name): \(CoordinatorBench.tell(outcome))") }
            }
        }
        for number in 1...3 { ask("\(number)") }
        let named = DownloadTarget(url: "https://a.test/bob", isNamedByClient: true)
        ask("named", ImageQuery(imageKey: Self.imageKey, named: named))
        #expect(world.fetcher.downloads.map(\.url) == ["https://a.test/bob", "https://a.test/bob"])
        world.fetcher.downloads[0].end(.missing(ResponseHeaders()))
        ask("4")
        world.fetcher.downloads[2].end(SampleImage.downloaded("two"))
        #expect(told.withLockedValue { $0 } == (1...4).map { "\($0): two from origin" })
        world.fetcher.downloads[1].end(.missing(ResponseHeaders()))
        #expect(told.withLockedValue { $0.last } == "named: null")
        #expect(cache.hit(Self.imageKey)?.image.label == "two")
    }

    @Test func `I3: a purge ends a chain between two of its links`() async throws {
        say(nil, nil, nil)
        let waiting = Task { await cache.outcome(Self.query) }
        await world.fetcher.started(1)
        #expect(try cache.purge([OpaqueID("bob")]).cancelled == 1)
        #expect(await waiting.value == "cancelled")
        world.fetcher.downloads[0].end(.missing(ResponseHeaders()))
        #expect(world.fetcher.downloads.count == 1 && world.fetcher.downloads[0].isCancelled)
    }

    @Test func `what was said to other tokens counts for nothing: all links are asked anew`() async {
        say(nil, nil, "three")
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
