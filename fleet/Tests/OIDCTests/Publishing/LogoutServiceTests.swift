import Fleet
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_oidc

@Suite struct LogoutServiceTests {
    private let publisher = TestPublisher()
    private let clock = TestClock(Int64(ForeignTokens.now))

    private func service(
        _ user: String = "{sub}@example.org", session: String? = nil, remembered: Int = 10
    ) throws -> LogoutService {
        let tokens = try ForeignTokens.made.get()
        let keys = KeyStore(
            TestSource(.success(tokens.jwks)), algorithms: TokenRules.ofTests.algorithms, times: KeyTimes(),
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

    @Test func `the user of the template is logged out, of every session or of the token's`() async throws {
        #expect(await failure(try service(), try good()) == nil)
        #expect(await failure(try service("{sid}", session: "{sub}"), try good()) == nil)
        // A token without a sid is about every session.
        #expect(await failure(try service(session: "{sid}"), try good("without a sid")) == nil)
        #expect(await failure(try service("{sid}"), try good("without a sub")) == nil)
        #expect(
            await publisher.orders == [
                .logOut("alice@example.org", session: nil), .logOut("desk-1", session: "alice"),
                .logOut("alice@example.org", session: nil), .logOut("desk-1", session: nil),
            ])
    }

    @Test func `a user that is none is refused, and the id of its token is not taken for that`() async throws {
        let missing = LogoutFailure.invalid("the logout token has no sub, which oidc.user needs")
        #expect(await failure(try service(), try good("without a sub")) == missing)
        #expect(await failure(try service(), try good("an empty sub")) == missing)
        let made = "the log-out that oidc.user makes of the logout token has"
        #expect(
            await failure(try service("{sub}"), try good("a strange user"))
                == .invalid("\(made) '*' as its user, which is nobody"))
        #expect(
            await failure(try service("{sub}"), try good("a long sub"))
                == .invalid("\(made) a user of 600 bytes: expected 1 to 512"))
        #expect(await publisher.orders.isEmpty)
    }

    @Test func `F83: a token is good for one log-out`() async throws {
        let (service, token) = (try service(), try good())
        #expect(await failure(service, token) == nil)
        #expect(await failure(service, token) == .invalid("a logout token with this jti was here before"))
        // To the last moment; then it is too old by itself.
        clock.set(Int64(ForeignTokens.now) + 179)
        #expect(await failure(service, token) == .invalid("a logout token with this jti was here before"))
        clock.set(Int64(ForeignTokens.now) + 180)
        #expect(await failure(service, token) == .invalid("the logout token has expired"))
        #expect(await publisher.orders.count == 1)
    }

    @Test func `F85: what could not be published may be sent again`() async throws {
        let (service, token) = (try service(), try good())
        await publisher.fail("the server is away")
        #expect(await failure(service, token) == .unavailable("the log-out could not be published"))
        await publisher.fail(nil)
        #expect(await failure(service, token) == nil)
        #expect(await publisher.orders.count == 1)
    }

    @Test func `F83: of two requests with one token at once, one is told that it is under way`() async throws {
        let (service, token) = (try service(), try good())
        await publisher.closeGate()
        let first = Task { await failure(service, token) }
        await publisher.waitForSomebody()
        #expect(await failure(service, token) == .unavailable("a request with this logout token is under way"))
        await publisher.openGate()
        #expect(await first.value == nil)
        #expect(await failure(service, token) == .invalid("a logout token with this jti was here before"))
    }

    @Test func `F83: when no more ids can be kept a log-out fails rather than one be forgotten`() async throws {
        let service = try service(remembered: 1)
        #expect(await failure(service, try good()) == nil)
        #expect(await failure(service, try good("ES256")) == .unavailable("too many log-outs at once"))
        #expect(await failure(service, try good()) == .invalid("a logout token with this jti was here before"))
        #expect(await publisher.orders.count == 1)
    }

    @Test(arguments: ["", "alice", "{sub", "sub}", "{}", "{iss}", "{sub}{", "}{sub}", "{ sub }", "{{sub}}"])
    func `what is no template`(_ text: String) { #expect(IDTemplate(text) == nil) }

    @Test func `a template takes claims as they are`() throws {
        let token = LogoutToken(id: "1", subject: "{sid}", session: "s\u{0}x", end: 0)
        #expect(try #require(IDTemplate("a-{sub}/{sid}-{sub}")).id(token) == "a-{sid}/s\u{0}x-{sid}")
        let nobody = LogoutToken(id: "1", subject: "a", session: nil, end: 0)
        #expect(throws: MissingClaim(name: "sid")) { try #require(IDTemplate("{sub}{sid}")).id(nobody) }
    }
}
