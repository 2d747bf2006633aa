import Fleet
import HTTPTypes
import HummingbirdCore
import Logging
import NIOCore
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_oidc

@Suite struct LogoutEndpointTests {
    private let publisher = FakePublisher()
    private let clock = TestClock()
    private let lines = LogLines()
    private var log: Logger { lines.logger }

    private func endpoint(
        _ limits: HTTPLimits = HTTPLimits(), isConfigured: Bool = true, remembered: Int = 10
    ) throws -> LogoutEndpoint {
        let tokens = try ForeignTokens.made.get()
        let keys = KeyStore(
            FakeKeySource(.success(tokens.jwks)), algorithms: TokenRules.ofTests.algorithms, times: KeyTimes(),
            log: silent, now: { 0 })
        let service = LogoutService(
            TokenVerifier(rules: .ofTests, keys: keys), user: try #require(IDTemplate("{sub}")), session: nil,
            memory: ReplayMemory(limit: remembered), publisher: publisher, log: silent, now: { ForeignTokens.now })
        return LogoutEndpoint(
            isConfigured ? service : nil, limits: limits, log: log, now: { [clock] in clock.now })
    }

    private func form(_ name: String = "RS256") throws -> String {
        "logout_token=" + (try #require(try ForeignTokens.made.get().good[name]))
    }

    private func send(
        _ endpoint: LogoutEndpoint, _ body: String, _ method: HTTPRequest.Method = .post,
        path: String = "/backchannel-logout", type: String? = "application/x-www-form-urlencoded",
        from peer: String = "192.0.2.1", forwardedFor: String? = nil
    ) async throws -> Reply {
        var head = HTTPRequest(method: method, scheme: "http", authority: "localhost", path: path)
        head.headerFields[.contentType] = type
        head.headerFields[HTTPField.Name("X-Forwarded-For")!] = forwardedFor
        let reply = try await endpoint.respond(
            to: Request(head: head, body: RequestBody(buffer: ByteBuffer(string: body))),
            from: peer.isEmpty
                ? try SocketAddress(unixDomainSocketPath: "") : try SocketAddress(ipAddress: peer, port: 9))
        #expect(reply.head.headerFields[.cacheControl] == "no-store")
        #expect(reply.head.headerFields[.connection] == "close")
        return reply
    }

    @Test func `a valid token is published and answered with 200 and an empty body`() async throws {
        let reply = try await send(try endpoint(), try form() + "&state=x", path: "/backchannel-logout?a=b")
        #expect(reply.status == .ok && reply.body.readableBytes == 0)
        #expect(await publisher.commands == [.logOut("alice", session: nil)])
    }

    @Test func `invalid requests are answered with a JSON error`() async throws {
        let (endpoint, good) = (try endpoint(), try form())
        let most = HTTPLimits().body
        let wrong: [(Reply, Int, String)] = [
            (try await send(endpoint, good, .get), 405, "use POST"),
            (try await send(endpoint, good, .put), 405, "use POST"),
            (try await send(endpoint, good, path: "/"), 404, "/backchannel-logout"),
            (try await send(endpoint, good, path: "/backchannel-logout/x"), 404, "/backchannel-logout"),
            (try await send(endpoint, good, type: nil), 400, "must be application/x-www-form-urlencoded"),
            (try await send(endpoint, good, type: "application/json"), 400, "must be"),
            (try await send(endpoint, good, type: "application/x-www-form-urlencoded-not"), 400, "must be"),
            (try await send(endpoint, ""), 400, "no logout_token"),
            (try await send(endpoint, "logout_token="), 400, "no logout_token"),
            (try await send(endpoint, "Logout_token=x"), 400, "no logout_token"),
            (try await send(endpoint, good + "&logout_token=x"), 400, "more than one logout_token"),
            (try await send(endpoint, "logout%5ftoken=x&" + good), 400, "more than one logout_token"),
            (try await send(endpoint, "logout_token=%zz"), 400, "two hexadecimal digits"),
            (try await send(endpoint, "logout_token=x"), 400, "not a signed JWT"),
            (try await send(endpoint, good + "&x=" + String(repeating: "x", count: most)), 413, "exceeds 65536 bytes"),
        ]
        for (reply, status, text) in wrong {
            #expect(reply.status.code == status, "\(text)")
            let body = String(buffer: reply.body)
            #expect(body.hasPrefix("{\"error\":\"invalid_request\",\"error_description\":\""), "\(body)")
            #expect(body.contains(text), "\(body)")
            #expect(reply.head.headerFields[.contentType] == "application/json")
        }
        #expect(await publisher.commands.isEmpty)
        #expect(wrong[0].0.head.headerFields[.allow] == "POST")
        // A body at the limit, and a content type with a parameter.
        let padding = String(repeating: "x", count: most - good.utf8.count - 3)
        let last = try await send(
            endpoint, "\(good)&x=\(padding)", type: "Application/X-WWW-form-urlencoded; charset=utf-8")
        #expect(last.status == .ok)
    }

    @Test func `a failed publication is answered with 400, a missing provider with 501`() async throws {
        let endpoint = try endpoint()
        await publisher.fail("away")
        let reply = try await send(endpoint, try form())
        #expect(reply.status == .badRequest)
        #expect(String(buffer: reply.body).contains("\"error\":\"temporarily_unavailable\""))
        #expect(!String(buffer: reply.body).contains("away"))
        await publisher.fail(nil)
        #expect(try await send(endpoint, try form()).status == .ok)
        #expect(try await send(try self.endpoint(isConfigured: false), try form()).status == .notImplemented)
    }

    @Test func `F84: invalid requests are limited for each peer`() async throws {
        var limits = HTTPLimits()
        limits.refusals = 3
        let endpoint = try endpoint(limits)
        for _ in 0..<3 { #expect(try await send(endpoint, "x").status == .badRequest) }
        let late = try await send(endpoint, "x")
        #expect(late.status == .tooManyRequests && late.head.headerFields[.retryAfter] == "20")
        #expect(try await send(endpoint, "x", from: "192.0.2.2").status == .badRequest)
        #expect(lines.all.count == 4)
        clock.set(19_999)
        #expect(try await send(endpoint, "x").status == .tooManyRequests)
        clock.set(20_000)
        #expect(try await send(endpoint, "x").status == .badRequest)
        #expect(lines.all.count == 5)
    }

    @Test func `F84: tokens with an unknown kid are limited, also while no key may be downloaded`() async throws {
        var limits = HTTPLimits()
        limits.refusals = 3
        let endpoint = try endpoint(limits)
        let form = "logout_token=" + (try #require(try ForeignTokens.made.get().other["later"]))
        for error in ["invalid_request", "temporarily_unavailable", "temporarily_unavailable"] {
            let reply = try await send(endpoint, form)
            #expect(reply.status == .badRequest && reply.error == error, "\(reply.description)")
        }
        #expect(try await send(endpoint, form).status == .tooManyRequests)
        #expect(lines.all.count == 3)
    }

    @Test(arguments: ["", "127.0.0.1", "192.0.2.1"])
    func `F84: a signed token is accepted after any number of invalid requests`(_ peer: String) async throws {
        var limits = HTTPLimits()
        limits.refusals = 3
        let (endpoint, provider) = (try endpoint(limits), "203.0.113.1")
        for _ in 0..<70 { _ = try await send(endpoint, "x", from: peer, forwardedFor: provider) }
        #expect(try await send(endpoint, "x", from: peer, forwardedFor: provider).status == .tooManyRequests)
        #expect(try await send(endpoint, try form(), from: peer, forwardedFor: provider).status == .ok)
        // The response to a signed token always contains the reason.
        let again = try await send(endpoint, try form(), from: peer, forwardedFor: provider)
        #expect(again.status == .badRequest && again.description.contains("jti was already used"))
        await publisher.fail("away")
        let failed = try await send(endpoint, try form("ES256"), from: peer, forwardedFor: provider)
        #expect(failed.status == .badRequest && String(buffer: failed.body).contains("temporarily_unavailable"))
        #expect(lines.all.count == 3)
    }

    @Test(arguments: ["", "127.0.0.1", "192.0.2.1"])
    func `F84: invalid requests of one peer with changing addresses are limited`(_ peer: String) async throws {
        let endpoint = try endpoint()
        var limited = 0
        for index in 0..<500 {
            let client = "198.51.\(index / 250).\(index % 250)"
            if try await send(endpoint, "x", from: peer, forwardedFor: client).status == .tooManyRequests {
                limited += 1
            }
        }
        #expect(limited == 440 && lines.all.count == 60)
    }

    @Test func `F84: all loopback addresses are one peer`() async throws {
        var limits = HTTPLimits()
        limits.refusals = 3
        let endpoint = try endpoint(limits)
        for index in 1...3 { #expect(try await send(endpoint, "x", from: "127.0.0.\(index)").status == .badRequest) }
        #expect(try await send(endpoint, "x", from: "127.1.2.3").status == .tooManyRequests)
    }

    @Test func `the log has the client from X-Forwarded-For only for the Unix socket`() async throws {
        let endpoint = try endpoint()
        _ = try await send(endpoint, "x", from: "", forwardedFor: "203.0.113.1, 198.51.100.7")
        _ = try await send(endpoint, "x", from: "127.0.0.1", forwardedFor: "203.0.113.1")
        #expect(lines.all.map { $0["client"] } == ["198.51.100.7", "127.0.0.0/8"])
    }
}
