import Fleet
import HTTPTypes
import HummingbirdCore
import NIOCore
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_oidc

@Suite struct LogoutEndpointTests {
    private let publisher = TestPublisher()
    private let clock = TestClock()

    private func endpoint(
        _ limits: HTTPLimits = HTTPLimits(), proxies: [String] = ["127.0.0.1"], isConfigured: Bool = true
    ) throws -> LogoutEndpoint {
        let tokens = try ForeignTokens.made.get()
        let keys = KeyStore(
            TestSource(.success(tokens.jwks)), algorithms: TokenRules.ofTests.algorithms, times: KeyTimes(),
            log: silent, now: { 0 })
        let service = LogoutService(
            TokenVerifier(rules: .ofTests, keys: keys), user: try #require(IDTemplate("{sub}")), session: nil,
            memory: ReplayMemory(limit: 10), publisher: publisher, log: silent, now: { ForeignTokens.now })
        return LogoutEndpoint(
            isConfigured ? service : nil, limits: limits, proxies: proxies, log: silent, now: { [clock] in clock.now })
    }

    private func form(_ name: String = "RS256") throws -> String {
        "logout_token=" + (try #require(try ForeignTokens.made.get().good[name]))
    }

    private func ask(
        _ endpoint: LogoutEndpoint, _ body: String, _ method: HTTPRequest.Method = .post,
        path: String = "/backchannel-logout", type: String? = "application/x-www-form-urlencoded",
        from peer: String = "192.0.2.1", forwardedFor: String? = nil
    ) async throws -> Reply {
        var head = HTTPRequest(method: method, scheme: "http", authority: "localhost", path: path)
        head.headerFields[.contentType] = type
        head.headerFields[HTTPField.Name("X-Forwarded-For")!] = forwardedFor
        let reply = try await endpoint.respond(
            to: Request(head: head, body: RequestBody(buffer: ByteBuffer(string: body))),
            from: try SocketAddress(ipAddress: peer, port: 9))
        #expect(reply.head.headerFields[.cacheControl] == "no-store")
        #expect(reply.head.headerFields[.connection] == "close")
        return reply
    }

    @Test func `a good token is answered by 200 and nothing, once it is published`() async throws {
        let reply = try await ask(try endpoint(), try form() + "&state=x", path: "/backchannel-logout?a=b")
        #expect(reply.status == .ok && reply.body.readableBytes == 0)
        #expect(await publisher.orders == [.logOut("alice", session: nil)])
    }

    @Test func `whatever else is answered by what is wrong, as JSON`() async throws {
        let (endpoint, good) = (try endpoint(), try form())
        let most = HTTPLimits().body
        let wrong: [(Reply, Int, String)] = [
            (try await ask(endpoint, good, .get), 405, "sent by POST"),
            (try await ask(endpoint, good, .put), 405, "sent by POST"),
            (try await ask(endpoint, good, path: "/"), 404, "/backchannel-logout"),
            (try await ask(endpoint, good, path: "/backchannel-logout/x"), 404, "/backchannel-logout"),
            (try await ask(endpoint, good, type: nil), 400, "has to be application/x-www-form-urlencoded"),
            (try await ask(endpoint, good, type: "application/json"), 400, "has to be"),
            (try await ask(endpoint, good, type: "application/x-www-form-urlencoded-not"), 400, "has to be"),
            (try await ask(endpoint, ""), 400, "no logout_token"),
            (try await ask(endpoint, "logout_token="), 400, "no logout_token"),
            (try await ask(endpoint, "Logout_token=x"), 400, "no logout_token"),
            (try await ask(endpoint, good + "&logout_token=x"), 400, "more than one logout_token"),
            (try await ask(endpoint, "logout%5ftoken=x&" + good), 400, "more than one logout_token"),
            (try await ask(endpoint, "logout_token=%zz"), 400, "two hexadecimal digits"),
            (try await ask(endpoint, "logout_token=x"), 400, "no signed JWT"),
            (try await ask(endpoint, good + "&x=" + String(repeating: "x", count: most)), 413, "more than 65536 bytes"),
        ]
        for (reply, status, text) in wrong {
            #expect(reply.status.code == status, "\(text)")
            let body = String(buffer: reply.body)
            #expect(body.hasPrefix("{\"error\":\"invalid_request\",\"error_description\":\""), "\(body)")
            #expect(body.contains(text), "\(body)")
            #expect(reply.head.headerFields[.contentType] == "application/json")
        }
        #expect(await publisher.orders.isEmpty)
        #expect(wrong[0].0.head.headerFields[.allow] == "POST")
        // Up to the limit, and with a parameter of the type.
        let padding = String(repeating: "x", count: most - good.utf8.count - 3)
        let last = try await ask(
            endpoint, "\(good)&x=\(padding)", type: "Application/X-WWW-form-urlencoded; charset=utf-8")
        #expect(last.status == .ok)
    }

    @Test func `what fails for a while is 400, too, and says so; without a provider it is 501`() async throws {
        let endpoint = try endpoint()
        await publisher.fail("away")
        let reply = try await ask(endpoint, try form())
        #expect(reply.status == .badRequest)
        #expect(String(buffer: reply.body).contains("\"error\":\"temporarily_unavailable\""))
        #expect(!String(buffer: reply.body).contains("away"))
        await publisher.fail(nil)
        #expect(try await ask(endpoint, try form()).status == .ok)
        #expect(try await ask(try self.endpoint(isConfigured: false), try form()).status == .notImplemented)
    }

    @Test func `F84: an address with too many refused requests waits, and no other does`() async throws {
        var limits = HTTPLimits()
        limits.refusals = 3
        let (endpoint, good) = (try endpoint(limits), try form())
        for _ in 0..<3 { #expect(try await ask(endpoint, "x").status == .badRequest) }
        let late = try await ask(endpoint, good)
        #expect(late.status == .tooManyRequests && late.head.headerFields[.retryAfter] == "20")
        #expect(try await ask(endpoint, good, from: "192.0.2.2").status == .ok)
        clock.set(19_999)
        #expect(try await ask(endpoint, good).status == .tooManyRequests)
        clock.set(20_000)
        #expect(try await ask(endpoint, try form("ES256")).status == .ok)
        // That something is away is nobody's fault.
        await publisher.fail("away")
        let other = try form("PS256")
        for _ in 0..<10 { #expect(try await ask(endpoint, other, from: "192.0.2.3").status == .badRequest) }
    }

    @Test func `F84: behind a proxy it is the address that the proxy has added`() async throws {
        var limits = HTTPLimits()
        limits.refusals = 1
        let (endpoint, good) = (try endpoint(limits), try form())
        let attacker = "198.51.100.7"
        _ = try await ask(endpoint, "x", from: "127.0.0.1", forwardedFor: "203.0.113.1, \(attacker)")
        #expect(
            try await ask(endpoint, good, from: "127.0.0.1", forwardedFor: attacker).status == .tooManyRequests)
        // Of somebody who is no proxy the field is not believed.
        #expect(try await ask(endpoint, good, from: attacker, forwardedFor: "192.0.2.9").status == .tooManyRequests)
        #expect(try await ask(endpoint, good, from: "127.0.0.1", forwardedFor: "203.0.113.1").status == .ok)
    }
}
