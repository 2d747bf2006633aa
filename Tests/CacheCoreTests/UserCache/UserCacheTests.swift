import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// One user's cache over fakes whose work runs at once.
@Suite struct UserCacheTests {
    private static let imageKey = ImageKey(profile: OpaqueID("bob"))
    private static let query = ImageQuery(imageKey: imageKey)

    private let world = FakeWorld()

    private func cache(_ world: FakeWorld, token: Secret? = nil) throws -> UserCache {
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        return UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, account: .init(origin: nil, token: token),
            services: world.services)
    }

    @Test func `a missing image is downloaded from where the template says, served, kept and found again`() throws {
        let cache = try cache(world)
        let answers = Answers()
        cache.get(Self.query, resolve: answers.take)
        #expect(world.fetcher.downloads.map(\.url) == ["https://origin.test/alice/bob/128"])
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        #expect(answers.told == ["one from origin"])
        #expect(world.store.held(by: .alice) == ["one"])
        #expect(cache.hit(Self.imageKey).map { $0.source } == .memory)
    }

    @Test func `an image that memory let go of is found on disk and comes back to memory`() async throws {
        let world = FakeWorld(memory: 16 << 10)
        let cache = try cache(world)
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        for number in 0..<40 {
            try cache.put(ImageKey(profile: OpaqueID("\(number)")), SampleImage.png("x", size: 1_000), timeToLive: nil)
        }
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(await cache.outcome(Self.query) == "mine from disk")
        #expect(cache.hit(Self.imageKey) != nil)
    }

    @Test func `an image too large for memory is served from disk each time`() async throws {
        let world = FakeWorld(memory: 0)
        let cache = try cache(world)
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        for _ in 0..<2 {
            #expect(cache.hit(Self.imageKey) == nil)
            #expect(await cache.outcome(Self.query) == "mine from disk")
        }
    }

    @Test func `a hit is fresh and from the URL that was asked for`() throws {
        let cache = try cache(world)
        cache.get(Self.query) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one", headers: ["cache-control": ["max-age=60"]]))
        #expect(cache.hit(Self.imageKey, url: "https://origin.test/alice/bob/128") != nil)
        #expect(cache.hit(Self.imageKey, url: "https://other.test/x") == nil)
        world.time.now += 60
        #expect(cache.hit(Self.imageKey) == nil)
    }

    @Test func `a download that ends before the fetcher returns is an answer all the same`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("quick") }
        let cache = try cache(world)
        #expect(await cache.outcome(Self.query) == "quick from origin")
        #expect(cache.hit(Self.imageKey) != nil)
    }

    @Test func `a fetcher that takes no more is BUSY, or the stale image that is held`() async throws {
        let cache = try cache(world)
        world.fetcher.refusal = .busy("64 downloads wait")
        #expect(await cache.outcome(Self.query) == "busy(\"64 downloads wait\")")
        world.fetcher.refusal = nil
        cache.get(Self.query) { _ in }
        world.fetcher.downloads[0].end(SampleImage.downloaded("one"))
        world.time.now += 3_600 + 600
        world.fetcher.refusal = .busy("64 downloads wait")
        #expect(await cache.outcome(Self.query) == "one from memory, stale")
    }

    @Test func `an origin taken out of the configuration is an error only where it would be asked`() async throws {
        let cache = try cache(world)
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        world.settings.origins = [:]
        #expect(await cache.outcome(Self.query) == "mine from memory")
        #expect(await cache.outcome(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) == "null")
        #expect(throws: CacheFailure.self) { try cache.target(of: Self.imageKey, url: "https://other.test/x") }
    }

    @Test func `I11: the token goes with the download, the newest there is`() throws {
        let cache = try cache(world, token: Secret([1]))
        cache.get(Self.query) { _ in }
        cache.update(.init(origin: nil, token: Secret([2])))
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve")))) { _ in }
        #expect(world.fetcher.downloads.map(\.request.token) == [Secret([1]), Secret([2])])
    }

    @Test func `an answer with no-store is served and not kept`() async throws {
        world.fetcher.answer = { _ in SampleImage.downloaded("one", headers: ["cache-control": ["no-store"]]) }
        let cache = try cache(world)
        #expect(await cache.outcome(Self.query) == "one from origin, stale")
        #expect(cache.hit(Self.imageKey) == nil)
        #expect(world.store.held(by: .alice) == [])
    }

    @Test func `a 404 removes what was held from memory and disk`() async throws {
        let cache = try cache(world)
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        _ = await cache.outcome(Self.query)
        world.time.now += 3_600 + 3_600
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await cache.outcome(Self.query) == "null")
        #expect(world.store.held(by: .alice) == [])
        #expect(await cache.outcome(ImageQuery(imageKey: Self.imageKey, download: .never)) == "null")
    }

    @Test func `I7: a 404 from a URL that a client named does not remove what was put`() async throws {
        let cache = try cache(world)
        try cache.put(Self.imageKey, SampleImage.png("mine"), timeToLive: nil)
        world.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        #expect(await cache.outcome(ImageQuery(imageKey: Self.imageKey, named: named)) == "null")
        #expect(world.store.held(by: .alice) == ["mine"])
        #expect(cache.hit(Self.imageKey) != nil)
    }

    @Test func `I9: a full disk keeps no download from being served, nor from memory`() async throws {
        let cache = try cache(world)
        world.store.fail(.seal, times: .max, with: .noSpace("disk full"))
        world.fetcher.answer = { _ in SampleImage.downloaded("one") }
        #expect(await cache.outcome(Self.query) == "one from origin")
        #expect(cache.hit(Self.imageKey) != nil)
        #expect(world.store.held(by: .alice) == [])
    }

    @Test func `a stale image is revalidated where it came from, not where the template leads`() async throws {
        let cache = try cache(world)
        world.fetcher.answer = { _ in SampleImage.downloaded("x") }
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        _ = await cache.outcome(ImageQuery(imageKey: Self.imageKey, named: named))
        world.time.now += 3_600
        world.fetcher.answer = nil
        #expect(await cache.outcome(Self.query) == "x from memory, stale")
        #expect(world.fetcher.downloads.last?.url == "https://other.test/x")
        #expect(world.fetcher.downloads.last?.request.target.isNamedByClient == true)
    }

    @Test func `F57: what is no longer allowed is revalidated where the template leads`() async throws {
        let cache = try cache(world)
        world.fetcher.answer = { _ in SampleImage.downloaded("x") }
        let named = try cache.target(of: Self.imageKey, url: "https://other.test/x")
        _ = await cache.outcome(ImageQuery(imageKey: Self.imageKey, named: named))
        world.settings.origins["default"]?.allow = []
        world.time.now += 3_600
        _ = await cache.outcome(Self.query)
        #expect(world.fetcher.downloads.last?.url == "https://origin.test/alice/bob/128")
    }

    @Test func `F54: who gives up after 5 s and comes back finds the same download; nobody for 5 s ends it`() throws {
        let cache = try cache(world)
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

    @Test func `F36: a waiter's time is up: TIMEOUT, and its answer never comes again`() throws {
        let cache = try cache(world)
        let answers = Answers()
        let waiter = cache.get(Self.query, resolve: answers.take)
        cache.expire(waiter)
        world.fetcher.downloads[0].end(SampleImage.downloaded("late"))
        #expect(answers.told == ["timeout"])
    }
}

/// Answers in the order they came.
final class Answers: Sendable {
    private let outcomes = NIOLockedValueBox<[String]>([])

    var told: [String] { outcomes.withLockedValue { $0 } }

    func take(_ outcome: GetOutcome) {
        outcomes.withLockedValue { $0.append(CoordinatorBench.tell(outcome)) }
    }
}
