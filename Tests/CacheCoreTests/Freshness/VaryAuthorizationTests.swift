import CacheFakes
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore

/// RFC 9111 section 4.1: a response with `Vary: Authorization` is served for the token it was requested with, and for
/// tokens that a refresh derived from that token, but for no other.
@Suite(.timeLimit(.minutes(5))) struct VaryAuthorizationTests {
    private static let varies = ["vary": ["Accept, authorization"], "etag": ["\"1\""]]

    private static func daemon(memory: Int = 1 << 20) -> Daemon {
        var origin = FakeWorld.origin
        origin.tokenEndpoint = TokenEndpoint(url: "https://id.test/token", clientID: "c")
        let daemon = Daemon(FakeWorld(memory: memory, settings: CacheSettings(origins: ["default": origin])))
        show(varies, on: daemon)
        return daemon
    }

    /// The origin answers every request with an image that is labeled with the request's token.
    private static func show(_ headers: [String: [String]], on daemon: Daemon) {
        daemon.fetcher.answer = { download in
            SampleImage.downloaded(download.token?.text ?? "no token", headers: headers)
        }
    }

    /// With the memory tier, the image of the other token is in memory; without it, on disk.
    @Test(arguments: [1 << 20, 0])
    func `after a login with another token, the image of the first token is not served`(memory: Int) async throws {
        let daemon = Self.daemon(memory: memory)
        daemon.store.isInPageCache = true
        let held = memory == 0 ? "disk" : "memory"
        try await daemon.logIn(.alice)
        #expect(await daemon.get(.alice, "bob") == "no token from origin")
        #expect(await daemon.get(.alice, "bob") == "no token from \(held)")
        for token in ["a", "b", "a"] {
            try await daemon.logIn(.alice, token: .init(token))
            #expect(await daemon.get(.alice, "bob", cached: true) == "null")
            #expect(await daemon.get(.alice, "bob") == "\(token) from origin")
            // The image of another token is not revalidated.
            #expect(daemon.fetcher.downloads.last?.request.condition == nil)
            #expect(await daemon.get(.alice, "bob") == "\(token) from \(held)")
            // Neither the same token again nor a login without a token changes anything.
            try await daemon.logIn(.alice, token: .init(token))
            try await daemon.logIn(.alice, session: "second")
            #expect(await daemon.get(.alice, "bob") == "\(token) from \(held)")
        }
    }

    @Test func `the image of another token is not served after a purge of another profile, a restart, or both`()
        async throws
    {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        let second = daemon.restarted()
        Self.show(Self.varies, on: second)
        #expect(await second.get(.alice, "bob") == "a from disk")
        try await second.logIn(.alice, token: .init("b"))
        _ = try await second.purge(.alice, "eve")
        let third = second.restarted()
        Self.show(Self.varies, on: third)
        #expect(await third.get(.alice, "bob", cached: true) == "null")
        #expect(await third.get(.alice, "bob") == "b from origin")
        _ = try await third.purge(.alice)
        #expect(await third.get(.alice, "bob") == "b from origin")
        #expect(await third.get(.alice, "bob") == "b from memory")
    }

    @Test func `the image of another token is not served stale if the origin fails, and is removed by a 404`()
        async throws
    {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        daemon.world.time.advance(seconds: 3_601)
        try await daemon.logIn(.alice, token: .init("b"))
        daemon.fetcher.answer = { _ in .failed(.origin("HTTP status 503")) }
        #expect(await daemon.get(.alice, "bob") == "origin HTTP status 503")
        daemon.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await daemon.get(.alice, "bob") == "null")
        #expect(daemon.store.held(by: .alice) == [])
    }

    @Test func `a refreshed token gets the images of the token before it`() async throws {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, refresh: .init("r1"))
        daemon.world.tokens.answer = { _ in .success(.init("a1", lifetime: 100, refresh: "r2")) }
        #expect(await daemon.get(.alice, "bob") == "a1 from origin")
        daemon.world.time.advance(seconds: 100)
        daemon.world.tokens.answer = { _ in .success(.init("a2", lifetime: 100)) }
        #expect(await daemon.get(.alice, "eve") == "a2 from origin")
        #expect(await daemon.get(.alice, "bob") == "a1 from memory")
        let next = daemon.restarted()
        next.world.time.now = daemon.world.time.now
        #expect(await next.get(.alice, "bob") == "a1 from disk")
        #expect(await next.get(.alice, "eve") == "a2 from disk")
    }

    @Test func `a token from another refresh token does not get the images of the old one`()
        async throws
    {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, refresh: .init("r1"))
        daemon.world.tokens.answer = { request in .success(.init("by \(request.refreshToken.text)")) }
        #expect(await daemon.get(.alice, "bob") == "by r1 from origin")
        try await daemon.logIn(.alice, refresh: .init("r9"))
        #expect(await daemon.get(.alice, "bob") == "by r9 from origin")
        #expect(await daemon.get(.alice, "bob") == "by r9 from memory")
    }

    @Test func `a refresh token that is added to an access token changes nothing`() async throws {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        try await daemon.logIn(.alice, refresh: .init("r1"))
        #expect(await daemon.get(.alice, "bob") == "a from memory")
    }

    /// Makes the origin reject one token, and the token endpoint issue `by REFRESH-TOKEN`.
    private func refuse(_ refused: String, on daemon: Daemon) {
        daemon.fetcher.answer = { download in
            let token = download.token?.text ?? "no token"
            if token == refused { return .failed(.unauthorized("HTTP status 401")) }
            return SampleImage.downloaded(token, headers: Self.varies)
        }
        daemon.world.tokens.answer = { request in .success(.init("by \(request.refreshToken.text)")) }
    }

    @Test func `a refresh token that was added later does not give access to images of the access token`() async throws
    {
        for isRestarted in [false, true] {
            var daemon = Self.daemon()
            try await daemon.logIn(.alice, token: .init("a"))
            #expect(await daemon.get(.alice, "bob") == "a from origin")
            try await daemon.logIn(.alice, refresh: .init("r of b"))
            if isRestarted {
                let settings = daemon.world.settings
                daemon = daemon.restarted()
                daemon.world.settings = settings
            }
            #expect(await daemon.get(.alice, "bob") == "a from \(isRestarted ? "disk" : "memory")")
            refuse("a", on: daemon)
            #expect(await daemon.get(.alice, "eve") == "by r of b from origin")
            #expect(await daemon.get(.alice, "bob", cached: true) == "null")
            #expect(await daemon.get(.alice, "bob") == "by r of b from origin")
            #expect(await daemon.get(.alice, "bob") == "by r of b from memory")
            #expect(await daemon.restarted().get(.alice, "bob") == "by r of b from disk")
        }
    }

    @Test func `a refresh token from an earlier login does not give access to images of a later access token`()
        async throws
    {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"), refresh: .init("r of a"))
        #expect(await daemon.get(.alice, "carol") == "a from origin")
        try await daemon.logIn(.alice, token: .init("b"))
        #expect(await daemon.get(.alice, "bob") == "b from origin")
        refuse("b", on: daemon)
        #expect(await daemon.get(.alice, "eve") == "by r of a from origin")
        for profile in ["bob", "carol"] { #expect(await daemon.get(.alice, profile) == "by r of a from origin") }
    }

    @Test func `a refresh token that came with the access token gives access to its images`() async throws {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"), refresh: .init("r"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        refuse("a", on: daemon)
        #expect(await daemon.get(.alice, "eve") == "by r from origin")
        #expect(await daemon.get(.alice, "bob") == "a from memory")
    }

    @Test func `I6: a 404 for the old token is not applied if a LOGIN brings another token meanwhile`() async throws {
        let world = FakeWorld()
        let onNextRead = NIOLockedValueBox<(@Sendable () -> Void)?>(nil)
        let services = world.services.with {
            onNextRead.withLockedValue { action in
                defer { action = nil }
                return action
            }?()
            return world.settings
        }
        let credentials = UserCache.Credentials(token: .init("a"))
        let generationStore = try world.store.commitLogin(.alice, LoginRecord(loggedInAt: 0))
        let cache = UserCache(
            owner: .alice, epoch: 1, generationStore: generationStore, credentials: credentials, services: services)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob"))), resolve: answers.record)
        onNextRead.withLockedValue {
            $0 = {
                var credentials = credentials
                credentials.tokens.logIn(access: .init("b"), refresh: nil)
                cache.update(credentials)
            }
        }
        world.fetcher.downloads[0].end(.missing(ResponseHeaders()))
        #expect(cache.credentials.token == .init("b") && answers.outcomes == [])
        try #require(world.fetcher.downloads.count == 2)
        world.fetcher.downloads[1].end(SampleImage.downloaded("b"))
        #expect(answers.outcomes == ["b from origin"])
    }

    @Test func `I6: a download with the old token is repeated with the new one for all waiters`()
        async throws
    {
        let daemon = Self.daemon()
        daemon.fetcher.answer = nil
        try await daemon.logIn(.alice, token: .init("a"))
        let cache = try await daemon.sessions.cache(.alice)
        let answers = Answers()
        let query = ImageQuery(imageKey: ImageKey(profile: OpaqueID("bob")))
        cache.get(query, resolve: answers.record)
        try await daemon.logIn(.alice, token: .init("b"))
        cache.get(query, resolve: answers.record)
        Self.show(Self.varies, on: daemon)
        daemon.fetcher.downloads[0].end(SampleImage.downloaded("a", headers: Self.varies))
        #expect(answers.outcomes == ["b from origin", "b from origin"])
        #expect(daemon.fetcher.downloads.map(\.request.token) == [.init("a"), .init("b")])
        #expect(await daemon.get(.alice, "bob") == "b from memory")
    }

    @Test func `a 304 or 404 for the old token is not applied to the new one`() async throws {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        daemon.fetcher.answer = nil
        daemon.world.time.advance(seconds: 3_600)
        #expect(await daemon.get(.alice, "bob") == "a from memory, stale")
        let cache = try await daemon.sessions.cache(.alice)
        let answers = Answers()
        cache.get(ImageQuery(imageKey: ImageKey(profile: OpaqueID("eve"))), resolve: answers.record)
        try await daemon.logIn(.alice, token: .init("b"))
        Self.show(Self.varies, on: daemon)
        daemon.fetcher.downloads[1].end(.notModified(ResponseHeaders(Self.varies)))
        daemon.fetcher.downloads[2].end(.missing(ResponseHeaders(Self.varies)))
        #expect(answers.outcomes == ["b from origin"])
        #expect(await daemon.get(.alice, "bob") == "b from memory")
    }

    @Test func `a remembered 404 for the old token is not applied to the new one`() async throws {
        let daemon = Self.daemon()
        try await daemon.logIn(.alice, token: .init("a"))
        daemon.fetcher.answer = { _ in .missing(ResponseHeaders()) }
        #expect(await daemon.get(.alice, "bob") == "null")
        Self.show(Self.varies, on: daemon)
        #expect(await daemon.get(.alice, "bob") == "null")
        try await daemon.logIn(.alice, token: .init("b"))
        #expect(await daemon.get(.alice, "bob") == "b from origin")
    }

    @Test func `Vary: Authorization on a redirect applies to its target`() async throws {
        let daemon = Self.daemon()
        daemon.fetcher.answer = { download in
            guard case .image(let image) = SampleImage.downloaded(download.token?.text ?? "no token") else {
                return nil
            }
            let headers = ResponseHeaders(redirects: [ResponseHeaders(["vary": ["Authorization"]])])
            return .image(
                DownloadedImage(
                    bytes: image.bytes, shape: image.shape, headers: headers, redirectedTo: "https://cdn.test/1"))
        }
        try await daemon.logIn(.alice, token: .init("a"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        try await daemon.logIn(.alice, token: .init("b"))
        #expect(await daemon.get(.alice, "bob") == "b from origin")
    }

    @Test func `images that vary by other fields and PUT images are served for every token`() async throws {
        let daemon = Self.daemon()
        Self.show(["vary": ["Accept, Authorization-Info, x-authorization"]], on: daemon)
        try await daemon.logIn(.alice, token: .init("a"))
        #expect(await daemon.get(.alice, "bob") == "a from origin")
        try await daemon.put(.alice, "eve", "mine")
        try await daemon.logIn(.alice, token: .init("b"))
        #expect(await daemon.get(.alice, "bob") == "a from memory")
        #expect(await daemon.get(.alice, "eve") == "mine from memory")
    }
}

extension CacheServices {
    /// A copy with other settings.
    fileprivate func with(settings: @escaping @Sendable () -> CacheSettings) -> CacheServices {
        CacheServices(
            store: store, fetcher: fetcher, tokens: tokens, memory: memory, budget: budget, imagePool: imagePool,
            writes: writes, loginPool: loginPool, invalidationPool: invalidationPool, tasks: tasks, time: time,
            framing: framing,
            counters: counters, events: events, yield: yield, settings: settings)
    }
}
