import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Tokens as log-ins, downloads and log-outs go with them, over fakes.
@Suite(.timeLimit(.minutes(5))) struct AccessTokenServiceTests {
    private let daemon = AccessTokenServiceTests.daemon()

    private static func daemon(disk: any BlockingPool = ImmediatePool(), lifecycle: any BlockingPool = ImmediatePool())
        -> Daemon
    {
        var origin = FakeWorld.origin
        origin.tokenEndpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
        return Daemon(
            FakeWorld(disk: disk, lifecycle: lifecycle, settings: CacheSettings(origins: ["default": origin])))
    }

    private var requests: [FakeTokenRequest] { daemon.world.tokens.requests }
    private var shown: [Secret?] { daemon.fetcher.downloads.map(\.request.token) }

    /// Asks for a profile; the answer comes later.
    private func get(_ profile: String, _ answers: Answers, of daemon: Daemon? = nil) async throws {
        let cache = try await (daemon ?? self.daemon).sessions.cache(.alice)
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID(profile))), resolve: answers.take)
    }

    /// Answers every download: with an image for a bearer of `token`, else with 401.
    private func serve(only token: String, on daemon: Daemon) {
        daemon.fetcher.answer = { download in
            download.token == Secret(token.utf8)
                ? SampleImage.downloaded(download.target.url) : .failed(.unauthorized("HTTP status 401"))
        }
    }

    @Test func `F80: a token request takes the share of the account, and one that is not sent is no failure`()
        async throws
    {
        let daemon = Daemon(
            FakeWorld(budget: MemoryBudget(accountOf: { _ in 7 }), settings: self.daemon.world.settings))
        try await daemon.logIn(.alice, refresh: .init("r1"))
        daemon.world.tokens.answer = { _ in .failure(.notAsked("open")) }
        for _ in 0..<2 { #expect(await daemon.get(.alice, "bob") == "origin open") }
        #expect(daemon.world.tokens.requests.map(\.request.uid) == [7, 7])
        #expect(daemon.world.services.counters[.tokenRefreshFailures] == 0)
    }

    @Test func `with REFRESH alone the first download waits for a token, which is durable before it is sent`()
        async throws
    {
        let daemon = Self.daemon(lifecycle: ThreadPool())
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers, of: daemon)
        #expect(daemon.fetcher.downloads.isEmpty)
        let request = try #require(daemon.world.tokens.requests.first)
        #expect(request.request.refreshToken == .init("r1"))
        #expect(request.request.endpoint.url == "https://id.test/token")
        let gate = daemon.store.hold(.commitSessions)
        defer { gate.open() }
        request.end(.success(.init("t1", lifetime: 60, refresh: "r2")))
        await gate.reached()
        #expect(daemon.fetcher.downloads.isEmpty)
        gate.open()
        await daemon.fetcher.started(1)
        #expect(daemon.fetcher.downloads.map(\.request.token) == [.init("t1")])
        let kept = try #require(daemon.store.login(of: .alice)?.tokens)
        #expect(kept.access == .init("t1") && kept.refresh == .init("r2"))
        #expect(kept.life == TokenLife(issuedAt: daemon.world.time.now, seconds: 60))
    }

    @Test func `I6: 200 downloads that are all refused make one token request, and each gets its image`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        let answers = Answers()
        for number in 0..<200 { try await get("\(number)", answers) }
        #expect(shown == Array(repeating: Secret("t1"), count: 200))
        serve(only: "t2", on: daemon)
        for download in daemon.fetcher.downloads { download.end(.failed(.unauthorized("HTTP status 401"))) }
        #expect(requests.count == 1)
        #expect(answers.told.isEmpty)
        requests[0].end(.success(.init("t2")))
        await daemon.fetcher.started(400)
        try await answers.count(200)
        #expect(answers.told.allSatisfy { $0.hasSuffix("from origin") })
        // In the order they came.
        #expect(
            daemon.fetcher.downloads.suffix(200).map(\.url) == daemon.fetcher.downloads.prefix(200).map(\.url))
        #expect(requests.count == 1)
        #expect(daemon.world.services.counters[.tokenRefreshes] == 1)
        #expect(daemon.world.services.counters[.downloads] == 200)
    }

    @Test func `a refused refresh is UNAUTHORIZED and is remembered, until a log-in with tokens`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t3", on: daemon)
        daemon.world.tokens.answer = { _ in .failure(.refused("invalid_grant")) }
        for profile in ["bob", "eve", "dan"] {
            #expect(await daemon.get(.alice, profile) == "unauthorized(\"invalid_grant\")")
        }
        #expect(requests.count == 1)
        // Nor is the token sent again that was refused.
        #expect(shown == [.init("t1")])
        #expect(daemon.world.services.counters[.tokenRefreshFailures] == 1)
        try await daemon.logIn(.alice, token: .init("t3"))
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
    }

    @Test func `an endpoint that is down is ORIGIN or TIMEOUT, what is stale is served, and no token is lost`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t1", on: daemon)
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        serve(only: "t2", on: daemon)
        // Past its life and past what is served while it is revalidated, not past what is served on errors.
        daemon.world.time.advance(seconds: 3_600 + 601)
        daemon.world.tokens.answer = { _ in .failure(.timedOut("slow")) }
        #expect(await daemon.get(.alice, "bob").contains("stale"))
        #expect(await daemon.get(.alice, "eve") == "timeout")
        #expect(requests.count == 1)
        #expect(daemon.store.login(of: .alice)?.tokens == .of("t1", "r1"))
        daemon.world.time.advance(seconds: 1)
        daemon.world.tokens.answer = { _ in .success(.init("t2")) }
        #expect(await daemon.get(.alice, "eve").hasSuffix("from origin"))
    }

    @Test func `TOKEN alone: what the origin refuses is UNAUTHORIZED, and nobody is asked for another`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"))
        serve(only: "t2", on: daemon)
        #expect(await daemon.get(.alice, "bob") == "unauthorized(\"HTTP status 401\")")
        #expect(requests.isEmpty && shown == [.init("t1")])
    }

    @Test func `TOKEN alone: a download that was refused is sent once more where a log-in has brought another`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"))
        let answers = Answers()
        try await get("bob", answers)
        try await daemon.logIn(.alice, token: .init("t2"))
        daemon.fetcher.downloads[0].end(.failed(.unauthorized("HTTP status 401")))
        #expect(answers.told == [] && shown == [.init("t1"), .init("t2")])
        daemon.fetcher.downloads[1].end(.failed(.unauthorized("HTTP status 401")))
        #expect(answers.told == ["unauthorized(\"HTTP status 401\")"] && requests.isEmpty)
    }

    @Test func `REFRESH that comes with a later log-in renews from then on`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"))
        serve(only: "t2", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t2")) }
        try await daemon.logIn(.alice, refresh: .init("r1"))
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        #expect(shown.first == .init("t1") && shown.last == .init("t2"))
        #expect(requests.map(\.request.refreshToken) == [.init("r1")])
        #expect(daemon.store.login(of: .alice)?.tokens.access == .init("t2"))
    }

    @Test func `an origin that refuses the new token as well gets two requests and no more`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "none", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t2")) }
        #expect(await daemon.get(.alice, "bob") == "unauthorized(\"HTTP status 401\")")
        #expect(shown == [.init("t1"), .init("t2")])
        #expect(await daemon.get(.alice, "eve").hasPrefix("unauthorized"))
        #expect(requests.count == 1)
    }

    @Test func `I3, F40: a log-out ends a refresh under way, and its answer reaches nobody, then or later`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t2", on: daemon)
        let answers = Answers()
        try await get("bob", answers)
        #expect(try await daemon.logOut(.alice).cancelled == 1)
        #expect(answers.told == ["cancelled"])
        #expect(requests.map(\.isCancelled) == [true])
        try await daemon.logIn(.alice, token: .init("t9"))
        requests[0].end(.success(.init("t2", refresh: "r2")))
        await daemon.sessions.refreshesEnded(.alice)
        #expect(daemon.store.login(of: .alice)?.tokens == .of("t9"))
        #expect(daemon.sessions.token(of: .alice) == .init("t9"))
        #expect(answers.told == ["cancelled"])
    }

    @Test func `I3: tokens that a log-out overtook on their way to the disk are not written`() async throws {
        let daemon = Self.daemon(lifecycle: ThreadPool())
        try await daemon.logIn(.alice, refresh: .init("r1"))
        try await get("bob", Answers(), of: daemon)
        let gate = daemon.store.hold(.commitLogout)
        defer { gate.open() }
        async let ended = daemon.logOut(.alice)
        await gate.reached()
        daemon.world.tokens.requests[0].end(.success(.init("t1", refresh: "r2")))
        gate.open()
        #expect(try await ended.users == 1)
        try await daemon.logIn(.alice)
        await daemon.sessions.refreshesEnded(.alice)
        #expect(daemon.store.login(of: .alice)?.tokens == LoginTokens())
        #expect(daemon.store.calls(.commitSessions) == 0)
    }

    @Test func `a purge keeps the tokens, and a refresh under way goes on for those who ask after it`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t2", on: daemon)
        let before = Answers()
        try await get("bob", before)
        #expect(try await daemon.purge(.alice).cancelled == 1)
        #expect(before.told == ["cancelled"])
        let after = Answers()
        try await get("bob", after)
        #expect(requests.map(\.isCancelled) == [false])
        requests[0].end(.success(.init("t2", refresh: "r2")))
        try await after.count(1)
        #expect(before.told == ["cancelled"] && after.told.first?.hasSuffix("from origin") == true)
        #expect(requests.count == 1)
        #expect(daemon.store.login(of: .alice)?.tokens.refresh == .init("r2"))
    }

    @Test func `who stops waiting for a token waits for nothing, and sends nothing later`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        let cache = try await daemon.sessions.cache(.alice)
        let waiter = cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"))), resolve: answers.take)
        cache.leave(waiter)
        daemon.world.time.advance(seconds: 5)
        requests[0].end(.success(.init("t1")))
        await daemon.sessions.refreshesEnded(.alice)
        #expect(daemon.fetcher.downloads.isEmpty && answers.told.isEmpty)
        #expect(daemon.sessions.token(of: .alice) == .init("t1"))
    }

    @Test func `a log-in with other tokens supersedes a refresh under way`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        serve(only: "t2", on: daemon)
        let answers = Answers()
        try await get("bob", answers)
        try await daemon.logIn(.alice, session: "second", refresh: .init("r2"))
        #expect(requests.map(\.isCancelled) == [true, false])
        requests[0].end(.success(.init("stray", refresh: "stray")))
        requests[1].end(.success(.init("t2")))
        try await answers.count(1)
        #expect(answers.told.first?.hasSuffix("from origin") == true)
        #expect(daemon.store.login(of: .alice)?.tokens.refresh == .init("r2"))
    }

    @Test func `tokens, their life and the rotated refresh token outlive a restart`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        serve(only: "t1", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t1", lifetime: 600, refresh: "r2")) }
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        let next = Daemon(
            FakeWorld(store: daemon.store.restarted(), time: daemon.world.time, settings: daemon.world.settings))
        serve(only: "t1", on: next)
        #expect(await next.get(.alice, "eve").hasSuffix("from origin"))
        #expect(next.world.tokens.requests.isEmpty)
        daemon.world.time.advance(seconds: 540)
        try await get("dan", Answers(), of: next)
        #expect(next.world.tokens.requests.map(\.request.refreshToken) == [.init("r2")])
    }

    @Test func `tokens that cannot be made durable are used, and kept as soon as the disk lets that be`()
        async throws
    {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        serve(only: "t1", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t1", refresh: "r2")) }
        daemon.store.fail(.commitSessions, times: 2, with: .noSpace("disk full"))
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        #expect(daemon.store.login(of: .alice)?.tokens == .of(nil, "r1"))
        for seconds in [1, 2] as [Int64] {
            while daemon.world.time.timers == 0 { try await turn() }
            daemon.world.time.advance(seconds: seconds)
        }
        while daemon.store.login(of: .alice)?.tokens.refresh != .init("r2") { try await turn() }
        #expect(daemon.world.time.timers == 0)
    }

    @Test func `I11: a request that has ended is let go of, and with it the refresh token that was used`() async throws
    {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers)
        weak let request = requests.first
        daemon.world.tokens.forgetRequests()
        // The service keeps it while it is under way: a log-out would cancel it.
        #expect(request != nil)
        request?.end(.success(.init("t1", refresh: "r2")))
        await daemon.fetcher.started(1)
        await daemon.sessions.refreshesEnded(.alice)
        while request != nil { try await turn() }
    }

    @Test func `I4: a refresh token that came with an unusable access token is durable, and who waits is told ORIGIN`()
        async throws
    {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers)
        requests[0].end(.failure(.unusable("no bearer", refreshToken: .init("r2"))))
        try await answers.count(1)
        #expect(answers.told == ["origin no bearer"])
        #expect(daemon.store.login(of: .alice)?.tokens == .of(nil, "r2"))
        daemon.world.time.advance(seconds: 1)
        try await get("eve", answers)
        #expect(requests.last?.request.refreshToken == .init("r2"))
    }

    @Test func `a stop waits for a refresh under way, so that a rotated refresh token is not lost`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        try await get("bob", Answers())
        async let stopped: Void = daemon.logout.shutDown()
        requests[0].end(.success(.init("t1", refresh: "r2")))
        await stopped
        #expect(daemon.store.login(of: .alice)?.tokens.refresh == .init("r2"))
    }

    @Test func `a stop does not wait longer than 5 s for an endpoint that does not answer`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers)
        async let stopped: Void = daemon.logout.shutDown()
        while daemon.world.time.timers == 0 { try await turn() }
        daemon.world.time.advance(seconds: 5)
        await stopped
        #expect(answers.told == ["shuttingDown"])
        #expect(daemon.store.login(of: .alice)?.tokens == .of(nil, "r1"))
        #expect(requests.count == 1)
    }

    @Test func `REFRESH needs an origin with a token endpoint, and the error says what is missing`() async throws {
        daemon.world.settings.origins["plain"] = FakeWorld.origin
        let missing =
            "REFRESH: origin plain has no token endpoint; origins.plain.token in the configuration would name it"
        await #expect(throws: CacheFailure.invalid(missing)) {
            try await daemon.logIn(.alice, origin: "plain", refresh: .init("r1"))
        }
        #expect(try await daemon.users() == [])
        try await daemon.logIn(.alice, origin: "plain", token: .init("t1"))
        await #expect(throws: CacheFailure.invalid(missing)) {
            try await daemon.logIn(.alice, refresh: .init("r1"))
        }
        daemon.world.settings.origins = [:]
        await #expect(throws: CacheFailure.self) { try await daemon.logIn(.carol, refresh: .init("r1")) }
    }
}
