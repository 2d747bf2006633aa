import Fleet
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_oidc

@Suite struct LogoutServiceTests {
    private let publisher = FakePublisher()
    private let clock = TestClock(Int64(ForeignTokens.now))

    private func service(
        _ user: String = "{sub}@example.org", session: String? = nil, remembered: Int = 10
    ) throws -> LogoutService {
        let tokens = try ForeignTokens.made.get()
        let keys = KeyStore(
            FakeKeySource(.success(tokens.jwks)), algorithms: TokenRules.ofTests.algorithms, times: KeyTimes(),
            log: silent, now: { 0 })
        return LogoutService(
            TokenVerifier(rules: .ofTests, keys: keys), user: try #require(IDTemplate(user)),
            session: session.flatMap { IDTemplate($0) }, memory: ReplayMemory(limit: remembered),
            publisher: publisher, log: silent, now: { [clock] in Double(clock.now) })
    }

    private func good(_ name: String = "RS256") throws -> [UInt8] {
        let tokens = try ForeignTokens.made.get()
        return Array(try #require(tokens.good[name] ?? tokens.other[name]).utf8)
    }

    private func failure(_ service: LogoutService, _ token: [UInt8]) async -> LogoutFailure? {
        do {
            try await service.logOut(try await service.authenticate(token))
            return nil
        } catch {
            return error
        }
    }

    @Test func `the template's user is logged out, from all sessions or the token's`() async throws {
        #expect(await failure(try service(), try good()) == nil)
        #expect(await failure(try service("{sid}", session: "{sub}"), try good()) == nil)
        // A token without a sid ends all sessions.
        #expect(await failure(try service(session: "{sid}"), try good("without a sid")) == nil)
        #expect(await failure(try service("{sid}"), try good("without a sub")) == nil)
        #expect(
            await publisher.commands == [
                .logOut("alice@example.org", session: nil), .logOut("desk-1", session: "alice"),
                .logOut("alice@example.org", session: nil), .logOut("desk-1", session: nil),
            ])
    }

    @Test func `an invalid user is rejected, and the token's id is not kept`() async throws {
        let missing = LogoutFailure.invalid("the logout token has no sub, which oidc.user needs")
        #expect(await failure(try service(), try good("without a sub")) == missing)
        #expect(await failure(try service(), try good("an empty sub")) == missing)
        let made = "the logout that oidc.user makes of the logout token has"
        #expect(
            await failure(try service("{sub}"), try good("a strange user"))
                == .invalid("\(made) the invalid user '*'"))
        #expect(
            await failure(try service("{sub}"), try good("a long sub"))
                == .invalid("\(made) a user of 600 bytes: expected 1 to 512"))
        #expect(await publisher.commands.isEmpty)
    }

    @Test func `F83: a token is accepted once`() async throws {
        let (service, token) = (try service(), try good())
        #expect(await failure(service, token) == nil)
        #expect(await failure(service, token) == .invalid("a logout token with this jti was already used"))
        // Until the token expires.
        clock.set(Int64(ForeignTokens.now) + 179)
        #expect(await failure(service, token) == .invalid("a logout token with this jti was already used"))
        clock.set(Int64(ForeignTokens.now) + 180)
        #expect(await failure(service, token) == .invalid("the logout token has expired"))
        #expect(await publisher.commands.count == 1)
    }

    @Test func `F85: a token can be sent again after a failed publication`() async throws {
        let (service, token) = (try service(), try good())
        await publisher.fail("the server is away")
        #expect(await failure(service, token) == .unavailable("the logout was not published"))
        await publisher.fail(nil)
        #expect(await failure(service, token) == nil)
        #expect(await publisher.commands.count == 1)
    }

    @Test func `F83: a second request with a token in progress is rejected`() async throws {
        let (service, token) = (try service(), try good())
        await publisher.closeGate()
        let first = Task { await failure(service, token) }
        await publisher.waitForPublish()
        #expect(await failure(service, token) == .unavailable("a request with this logout token is in progress"))
        await publisher.openGate()
        #expect(await first.value == nil)
        #expect(await failure(service, token) == .invalid("a logout token with this jti was already used"))
    }

    @Test func `F83: when the replay memory is full, logouts fail and no id is dropped`() async throws {
        let service = try service(remembered: 1)
        #expect(await failure(service, try good()) == nil)
        #expect(await failure(service, try good("ES256")) == .unavailable("too many logouts"))
        #expect(await failure(service, try good()) == .invalid("a logout token with this jti was already used"))
        #expect(await publisher.commands.count == 1)
    }

    @Test(arguments: ["", "alice", "{sub", "sub}", "{}", "{iss}", "{sub}{", "}{sub}", "{ sub }", "{{sub}}"])
    func `invalid templates are rejected`(_ text: String) { #expect(IDTemplate(text) == nil) }

    @Test func `a template inserts claims unchanged`() throws {
        let token = LogoutToken(id: "1", subject: "{sid}", session: "s\u{0}x", end: 0)
        #expect(try #require(IDTemplate("a-{sub}/{sid}-{sub}")).id(token) == "a-{sid}/s\u{0}x-{sid}")
        let nobody = LogoutToken(id: "1", subject: "a", session: nil, end: 0)
        #expect(throws: MissingClaim(name: "sid")) { try #require(IDTemplate("{sub}{sid}")).id(nobody) }
    }
}
