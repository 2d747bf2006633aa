import CacheFakes
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

/// Tokens in logins, downloads and logouts, over fakes.
@Suite(.timeLimit(.minutes(5))) struct AccessTokenServiceTests {
    private let daemon = AccessTokenServiceTests.daemon()

    private static func daemon(
        imagePool: any BlockingPool = ImmediatePool(), loginPool: any BlockingPool = ImmediatePool()
    )
        -> Daemon
    {
        var origin = FakeWorld.origin
        origin.tokenEndpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
        return Daemon(
            FakeWorld(imagePool: imagePool, loginPool: loginPool, settings: CacheSettings(origins: ["default": origin]))
        )
    }

    private var requests: [FakeTokenRequest] { daemon.world.tokens.requests }
    private var sentTokens: [Secret?] { daemon.fetcher.downloads.map(\.request.token) }

    /// Requests a profile without waiting for the result.
    private func get(_ profile: String, _ answers: Answers, of daemon: Daemon? = nil) async throws {
        let cache = try await (daemon ?? self.daemon).sessions.cache(.alice)
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID(profile))), resolve: answers.record)
    }

    /// Answers downloads with an image if they carry `token`, else with 401.
    private func serve(only token: String, on daemon: Daemon) {
        daemon.fetcher.answer = { download in
            download.token == Secret(token.utf8)
                ? SampleImage.downloaded(download.target.url) : .failed(.unauthorized("HTTP status 401"))
        }
    }

    @Test func `F80: a token request is charged to the account, and one that is not sent is not a failure`()
        async throws
    {
        let daemon = Daemon(
            FakeWorld(budget: MemoryBudget(accountOf: { _ in 7 }), settings: self.daemon.world.settings))
        try await daemon.logIn(.alice, refresh: .init("r1"))
        daemon.world.tokens.answer = { _ in .failure(.circuitOpen("open")) }
        for _ in 0..<2 { #expect(await daemon.get(.alice, "bob") == "origin open") }
        #expect(daemon.world.tokens.requests.map(\.request.account) == [7, 7])
        #expect(daemon.world.services.counters[.tokenRefreshFailures] == 0)
    }

    @Test func `with REFRESH alone the first download waits for a token, which is stored before it is sent`()
        async throws
    {
        let daemon = Self.daemon(loginPool: ThreadPool())
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
        let stored = try #require(daemon.store.login(of: .alice)?.tokens)
        #expect(stored.access == .init("t1") && stored.refresh == .init("r2"))
        #expect(stored.life == TokenLife(issuedAt: daemon.world.time.now, seconds: 60))
    }

    @Test func `I6: 200 downloads that get 401 cause one token request, and each gets its image`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        let answers = Answers()
        for number in 0..<200 { try await get("\(number)", answers) }
        #expect(sentTokens == Array(repeating: Secret("t1"), count: 200))
        serve(only: "t2", on: daemon)
        for download in daemon.fetcher.downloads { download.end(.failed(.unauthorized("HTTP status 401"))) }
        #expect(requests.count == 1)
        #expect(answers.outcomes.isEmpty)
        requests[0].end(.success(.init("t2")))
        await daemon.fetcher.started(400)
        try await answers.count(200)
        #expect(answers.outcomes.allSatisfy { $0.hasSuffix("from origin") })
        #expect(
            daemon.fetcher.downloads.suffix(200).map(\.url) == daemon.fetcher.downloads.prefix(200).map(\.url))
        #expect(requests.count == 1)
        #expect(daemon.world.services.counters[.tokenRefreshes] == 1)
        #expect(daemon.world.services.counters[.downloads] == 200)
    }

    @Test func `a rejected refresh is UNAUTHORIZED and is remembered until a login with tokens`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t3", on: daemon)
        daemon.world.tokens.answer = { _ in .failure(.unauthorized("invalid_grant")) }
        for profile in ["bob", "eve", "dan"] {
            #expect(await daemon.get(.alice, profile) == "unauthorized(\"invalid_grant\")")
        }
        #expect(requests.count == 1)
        // The rejected token is not sent again.
        #expect(sentTokens == [.init("t1")])
        #expect(daemon.world.services.counters[.tokenRefreshFailures] == 1)
        try await daemon.logIn(.alice, token: .init("t3"))
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
    }

    @Test func `an endpoint that is down is ORIGIN or TIMEOUT, stale images are served, and no token is lost`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t1", on: daemon)
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        serve(only: "t2", on: daemon)
        // Past stale-while-revalidate, within stale-if-error.
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

    @Test func `with TOKEN alone a 401 is UNAUTHORIZED, without a token request`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"))
        serve(only: "t2", on: daemon)
        #expect(await daemon.get(.alice, "bob") == "unauthorized(\"HTTP status 401\")")
        #expect(requests.isEmpty && sentTokens == [.init("t1")])
    }

    @Test func `with TOKEN alone a download that got 401 is repeated once if a login has brought another token`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"))
        let answers = Answers()
        try await get("bob", answers)
        try await daemon.logIn(.alice, token: .init("t2"))
        daemon.fetcher.downloads[0].end(.failed(.unauthorized("HTTP status 401")))
        #expect(answers.outcomes == [] && sentTokens == [.init("t1"), .init("t2")])
        daemon.fetcher.downloads[1].end(.failed(.unauthorized("HTTP status 401")))
        #expect(answers.outcomes == ["unauthorized(\"HTTP status 401\")"] && requests.isEmpty)
    }

    @Test func `a REFRESH that comes with a later login is used from then on`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"))
        serve(only: "t2", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t2")) }
        try await daemon.logIn(.alice, refresh: .init("r1"))
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        #expect(sentTokens.first == .init("t1") && sentTokens.last == .init("t2"))
        #expect(requests.map(\.request.refreshToken) == [.init("r1")])
        #expect(daemon.store.login(of: .alice)?.tokens.access == .init("t2"))
    }

    @Test func `an origin that also rejects the new token gets two requests in all`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "none", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t2")) }
        #expect(await daemon.get(.alice, "bob") == "unauthorized(\"HTTP status 401\")")
        #expect(sentTokens == [.init("t1"), .init("t2")])
        #expect(await daemon.get(.alice, "eve").hasPrefix("unauthorized"))
        #expect(requests.count == 1)
    }

    @Test func `I3, F40: a logout cancels a refresh in flight, and its late response is discarded`()
        async throws
    {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t2", on: daemon)
        let answers = Answers()
        try await get("bob", answers)
        #expect(try await daemon.logOut(.alice).cancelled == 1)
        #expect(answers.outcomes == ["cancelled"])
        #expect(requests.map(\.isCancelled) == [true])
        try await daemon.logIn(.alice, token: .init("t9"))
        requests[0].end(.success(.init("t2", refresh: "r2")))
        await daemon.sessions.refreshesEnded(.alice)
        #expect(daemon.store.login(of: .alice)?.tokens == .of("t9"))
        #expect(daemon.sessions.token(of: .alice) == .init("t9"))
        #expect(answers.outcomes == ["cancelled"])
    }

    @Test func `I3: tokens that wait to be stored are not written after a logout`() async throws {
        let daemon = Self.daemon(loginPool: ThreadPool())
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

    @Test func `a purge keeps the tokens, and a refresh in flight continues for later requests`() async throws {
        try await daemon.logIn(.alice, token: .init("t1"), refresh: .init("r1"))
        serve(only: "t2", on: daemon)
        let before = Answers()
        try await get("bob", before)
        #expect(try await daemon.purge(.alice).cancelled == 1)
        #expect(before.outcomes == ["cancelled"])
        let after = Answers()
        try await get("bob", after)
        #expect(requests.map(\.isCancelled) == [false])
        requests[0].end(.success(.init("t2", refresh: "r2")))
        try await after.count(1)
        #expect(before.outcomes == ["cancelled"] && after.outcomes.first?.hasSuffix("from origin") == true)
        #expect(requests.count == 1)
        #expect(daemon.store.login(of: .alice)?.tokens.refresh == .init("r2"))
    }

    @Test func `a waiter that leaves during a refresh causes no download later`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        let cache = try await daemon.sessions.cache(.alice)
        let waiter = cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"))), resolve: answers.record)
        cache.leave(waiter)
        daemon.world.time.advance(seconds: 5)
        requests[0].end(.success(.init("t1")))
        await daemon.sessions.refreshesEnded(.alice)
        #expect(daemon.fetcher.downloads.isEmpty && answers.outcomes.isEmpty)
        #expect(daemon.sessions.token(of: .alice) == .init("t1"))
    }

    @Test func `a login with other tokens supersedes a refresh in flight`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        serve(only: "t2", on: daemon)
        let answers = Answers()
        try await get("bob", answers)
        try await daemon.logIn(.alice, session: "second", refresh: .init("r2"))
        #expect(requests.map(\.isCancelled) == [true, false])
        requests[0].end(.success(.init("stray", refresh: "stray")))
        requests[1].end(.success(.init("t2")))
        try await answers.count(1)
        #expect(answers.outcomes.first?.hasSuffix("from origin") == true)
        #expect(daemon.store.login(of: .alice)?.tokens.refresh == .init("r2"))
    }

    @Test func `tokens, their lifetime and the rotated refresh token survive a restart`() async throws {
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

    @Test func `tokens that cannot be stored are used, and stored once the imagePool allows it`()
        async throws
    {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        serve(only: "t1", on: daemon)
        daemon.world.tokens.answer = { _ in .success(.init("t1", refresh: "r2")) }
        daemon.store.fail(.commitSessions, times: 2, with: .noSpace("disk full"))
        #expect(await daemon.get(.alice, "bob").hasSuffix("from origin"))
        #expect(daemon.store.login(of: .alice)?.tokens == .of(nil, "r1"))
        for seconds in [1, 2] as [Int64] {
            while daemon.world.time.timers == 0 { try await yieldTask() }
            daemon.world.time.advance(seconds: seconds)
        }
        while daemon.store.login(of: .alice)?.tokens.refresh != .init("r2") { try await yieldTask() }
        #expect(daemon.world.time.timers == 0)
    }

    @Test func `I11: a completed request is released together with its refresh token`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers)
        weak let request = requests.first
        daemon.world.tokens.forgetRequests()
        // The service keeps it while it is in flight, because a logout must be able to cancel it.
        #expect(request != nil)
        request?.end(.success(.init("t1", refresh: "r2")))
        await daemon.fetcher.started(1)
        await daemon.sessions.refreshesEnded(.alice)
        while request != nil { try await yieldTask() }
    }

    @Test func `I4: the refresh token of an unusable response is stored, and the waiters get ORIGIN`()
        async throws
    {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers)
        requests[0].end(.failure(.origin("no bearer", refreshToken: .init("r2"))))
        try await answers.count(1)
        #expect(answers.outcomes == ["origin no bearer"])
        #expect(daemon.store.login(of: .alice)?.tokens == .of(nil, "r2"))
        daemon.world.time.advance(seconds: 1)
        try await get("eve", answers)
        #expect(requests.last?.request.refreshToken == .init("r2"))
    }

    @Test func `a stop waits for a refresh in flight, so that a rotated refresh token is not lost`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        try await get("bob", Answers())
        async let stopped: Void = daemon.invalidationService.shutDown()
        requests[0].end(.success(.init("t1", refresh: "r2")))
        await stopped
        #expect(daemon.store.login(of: .alice)?.tokens.refresh == .init("r2"))
    }

    @Test func `a stop waits at most 5 s for an endpoint that does not respond`() async throws {
        try await daemon.logIn(.alice, refresh: .init("r1"))
        let answers = Answers()
        try await get("bob", answers)
        async let stopped: Void = daemon.invalidationService.shutDown()
        while daemon.world.time.timers == 0 { try await yieldTask() }
        daemon.world.time.advance(seconds: 5)
        await stopped
        #expect(answers.outcomes == ["shuttingDown"])
        #expect(daemon.store.login(of: .alice)?.tokens == .of(nil, "r1"))
        #expect(requests.count == 1)
    }

    @Test func `REFRESH requires an origin with a token endpoint, and the error names what is missing`() async throws {
        daemon.world.settings.origins["plain"] = FakeWorld.origin
        let missing = "REFRESH: origin plain has no token endpoint; set origins.plain.token"
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
