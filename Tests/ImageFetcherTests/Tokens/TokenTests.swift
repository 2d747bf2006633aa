import CacheFakes
import Foundation
import HelperProtocol
import LinuxSupport
import Testing

@testable import CacheCore
@testable import ImageFetcher
@testable import Origins

/// Refreshes against a real token endpoint on loopback.
@Suite(.timeLimit(.minutes(5))) struct TokenTests {
    static let good = #"{"access_token":"t1","token_type":"Bearer","expires_in":3600,"refresh_token":"r2"}"#

    static func grant(_ access: String, _ lifetime: Int64? = nil, _ refresh: String? = nil) -> TokenGrant {
        TokenGrant(
            accessToken: Secret(access.utf8), lifetime: lifetime, refreshToken: refresh.map { Secret($0.utf8) })
    }

    @Test func `a client without a secret sends its id in the form and no credentials`() async throws {
        let server = try TokenServer { _ in TokenServer.response(Self.good) }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let outcome = try await fetcher.token(server.url, refresh: "r1+/=~")
            #expect(outcome == .success(Self.grant("t1", 3_600, "r2")))
            let request = try #require(server.requests.first)
            #expect(request.method == "POST" && request.target == "/token")
            #expect(request.headers["content-type"] == "application/x-www-form-urlencoded")
            #expect(request.headers["authorization"] == nil)
            #expect(
                request.form == ["grant_type": "refresh_token", "refresh_token": "r1+/=~", "client_id": "the client"])
            #expect(request.body.contains("refresh_token=r1%2B%2F%3D~"))
            #expect(request.headers["expect"] == nil)
        }
    }

    @Test func `a client with a secret authenticates by HTTP Basic, id and secret form-encoded first`() async throws {
        let server = try TokenServer { _ in TokenServer.response(Self.good) }
        defer { server.stop() }
        try await withFetcher { fetcher in
            _ = try await fetcher.token(server.url, secret: "s:%+/ e")
            let request = try #require(server.requests.first)
            #expect(request.form == ["grant_type": "refresh_token", "refresh_token": "r1"])
            let expected = Data("the%20client:s%3A%25%2B%2F%20e".utf8).base64EncodedString()
            #expect(request.headers["authorization"] == "Basic \(expected)")
        }
    }

    @Test(
        arguments: [
            (#"{"access_token":"t1","token_type":"bearer"}"#, Self.grant("t1")),
            (
                #"{"token_type":"BEARER","access_token":"t1","expires_in":0,"scope":"a b","x":[{"y":null}]}"#,
                grant("t1", 0)
            ),
            (#"{"access_token":"t1","token_type":"Bearer","expires_in":"60","refresh_token":null}"#, grant("t1", 60)),
            (#"{"access_token":"t1","token_type":"Bearer","expires_in":59.9}"#, grant("t1", 59)),
            (#"{"access_token":"t1","token_type":"Bearer","expires_in":1e300}"#, grant("t1", 315_360_000)),
            (
                #"{"access_token":"t1","token_type":"Bearer","expires_in":-1,"refresh_token":"r2"}"#,
                grant("t1", nil, "r2")
            ),
            (#"{"access_token":"t1","token_type":"Bearer","expires_in":"soon"}"#, grant("t1")),
            (#"{"access_token":"t1","token_type":"Bearer","expires_in":"nan"}"#, grant("t1")),
            (#"{"access_token":"t1","token_type":"Bearer","expires_in":[60]}"#, grant("t1")),
            (
                #"{"access_token":"t1","token_type":"Bearer","refresh_token":" \"r:2\"\\~"}"#,
                grant("t1", nil, " \"r:2\"\\~")
            ),
            (#"{"access_token":"mF_9.B5f-4.1JqM==","token_type":"Bearer"}"#, grant("mF_9.B5f-4.1JqM==")),
        ] as [(String, TokenGrant)])
    func `valid responses are accepted`(body: String, grant: TokenGrant) async throws {
        let server = try TokenServer { _ in TokenServer.response(body) }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let outcome = try await fetcher.token(server.url)
            #expect(outcome == .success(grant))
        }
    }

    @Test(arguments: [
        (400, #"{"error":"invalid_grant","error_description":"SECRET"}"#, "unauthorized: invalid_grant"),
        (401, #"{"error":"invalid_client"}"#, "unauthorized: invalid_client"),
        (400, #"{"error":"SECRET"}"#, "unauthorized: HTTP status 400"), (403, "no", "unauthorized: HTTP status 403"),
        (500, "SECRET", "origin: HTTP status 500"), (503, "", "origin: HTTP status 503"),
        (302, "", "origin: HTTP status 302"), (204, "", "origin: HTTP status 204"),
        (429, "{}", "origin: HTTP status 429"), (404, "", "origin: HTTP status 404"),
        (200, "", "origin: not a JSON"), (200, "SECRET", "origin: not a JSON"), (200, "[]", "origin: not a JSON"),
        (200, #"{"access_token":"SECRET"}"#, "origin: not a JSON"),
        (200, #"{"access_token":7,"token_type":"Bearer"}"#, "origin: not a JSON"),
        (200, #"{"access_token":"SECRET","token_type":"mac"}"#, "origin: token_type"),
        (200, #"{"access_token":"","token_type":"Bearer"}"#, "origin: access_token"),
        (200, #"{"access_token":"SECRET\r\nX: y","token_type":"Bearer"}"#, "origin: access_token"),
        (200, #"{"access_token":"a=SECRET","token_type":"Bearer"}"#, "origin: access_token"),
        (200, #"{"access_token":"t1","token_type":"Bearer","refresh_token":"SEC\u00e9"}"#, "origin: refresh_token"),
        (200, #"{"access_token":"t1","token_type":"Bearer","refresh_token":"SEC\nRET"}"#, "origin: refresh_token"),
        (200, #"{"access_token":"t1","token_type":"Bearer","refresh_token":7}"#, "origin: refresh_token"),
        (200, #"{"access_token":"SEC RET","token_type":"Bearer","refresh_token":"r2"}"#, "refresh only: access_token"),
        (200, #"{"token_type":"mac","access_token":"SECRET","refresh_token":"r2"}"#, "refresh only: token_type"),
        (200, #"{"access_token":7,"token_type":"Bearer","refresh_token":"r2"}"#, "refresh only: access_token"),
        (200, #"{"access_token":"t1","token_type":"Bearer","refresh_token":""}"#, "origin: refresh_token"),
        (
            200, #"{"access_token":"\#(String(repeating: "a", count: 100))","token_type":"Bearer"}"#,
            "origin: access_token"
        ),
        (200, #"{"access_token":"SECRET","access_token":"SECRET","token_type":"Bearer"}"#, "origin: twice"),
        (200, #"{"access_token":"t1","token_type":"Bearer","x":"SECRET"#, "origin: not a JSON"),
    ])
    func `I11: invalid responses have distinct errors, which do not repeat their content`(
        status: Int, body: String, result: String
    ) async throws {
        let server = try TokenServer { _ in
            TokenServer.response(body, status: "\(status) X", headers: status == 302 ? ["Location: /other"] : [])
        }
        defer { server.stop() }
        try await withFetcher {
            $0.maximumTokenBytes = 99
        } _: { fetcher in
            let outcome = try await fetcher.token(server.url)
            let words = result.split(separator: ": ", maxSplits: 1)
            #expect(outcome.kind == String(words[0]), "\(outcome)")
            #expect(outcome.reason.contains(words[1]), "\(outcome)")
            #expect(!outcome.reason.contains("SEC"), "\(outcome)")
            #expect(server.requests.count == 1)
        }
    }

    @Test(arguments: [512, 513, 514, 1_000, 60_000, 100_000])
    func `F65: a deeply nested response is ORIGIN, and the next response is read`(depth: Int)
        async throws
    {
        let nested = String(repeating: "[", count: depth)
        let server = try TokenServer { request in
            switch request.form["refresh_token"] {
            case "good": TokenServer.response(Self.good)
            case "refused": TokenServer.response(nested, status: "400 Bad")
            default: TokenServer.response("{\"x\":" + nested)
            }
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            check(try await fetcher.token(server.url, refresh: "nested"), "origin")
            let refused = try await fetcher.token(server.url, refresh: "refused")
            #expect(refused.kind == (depth < 65_000 ? "unauthorized" : "origin"))
            check(try await fetcher.token(server.url, refresh: "good"), "grant")
        }
    }

    @Test func `F39: a redirect is not followed, so that the refresh token goes nowhere else`() async throws {
        let other = try TokenServer { _ in TokenServer.response(Self.good) }
        let server = try TokenServer { _ in
            TokenServer.response("", status: "307 Temporary", headers: ["Location: \(other.url)"])
        }
        defer {
            server.stop()
            other.stop()
        }
        try await withFetcher { fetcher in
            check(try await fetcher.token(server.url), "origin")
            #expect(other.connections == 0)
        }
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\n\r\n" + String(repeating: "a", count: 66_000),
        "HTTP/1.1 200 OK\r\n" + String(repeating: "X-Y: " + String(repeating: "z", count: 1_000) + "\r\n", count: 80),
    ])
    func `F35: an endless response is aborted at 64 KiB`(answer: String) async throws {
        let server = try TokenServer { _ in Array(answer.utf8) }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let outcome = try await fetcher.token(server.url)
            #expect(outcome.kind == "origin" && outcome.reason.contains("65536 bytes"), "\(outcome)")
        }
    }

    @Test func `F36: an endpoint that never responds is TIMEOUT, one that closes or refuses the connection is ORIGIN`()
        async throws
    {
        let silent = try TokenServer { _ in [] }
        let port = try TestSocket.freePort()
        defer { silent.stop() }
        try await withFetcher {
            $0.minimumTokenTimeout = 1
        } _: { fetcher in
            check(try await fetcher.token(silent.url, timeout: 2_000), "timedOut")
            check(try await fetcher.token("http://127.0.0.1:\(port)/"), "origin")
        }
    }

    @Test func `F30: an endpoint at a private address is refused without a packet, unless the origin allows it`()
        async throws
    {
        let server = try TokenServer { _ in TokenServer.response(Self.good) }
        defer { server.stop() }
        try await withFetcher {
            $0.resolverOverrides = { ["id.example:\(server.port):127.0.0.1"] }
        } _: { fetcher in
            for url in [server.url, "http://id.example:\(server.port)/token", "http://2130706433:\(server.port)/"] {
                let outcome = try await fetcher.token(url, private: false)
                #expect(outcome.kind == "denied" && outcome.reason.contains("127.0.0.1"), "\(outcome)")
            }
            #expect(server.connections == 0)
            check(try await fetcher.token("http://id.example:\(server.port)/token"), "grant")
        }
    }

    @Test func `a cancelled token request reports no outcome`() async throws {
        let arrived = Gate()
        let server = try TokenServer { request in
            if request.form["refresh_token"] == "hanging" {
                arrived.open()
                return []
            }
            return TokenServer.response(Self.good)
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let handle = try fetcher.refresh(.to(server.url, refresh: "hanging")) { _ in
                Issue.record("a cancelled request reports an outcome")
            }
            await arrived.opened()
            handle.cancel()
            handle.cancel()
            check(try await fetcher.token(server.url), "grant")
            // Both connections have ended: the cancelled one, and the other because it is not reused.
            while server.ended < 2 { try await Task.sleep(for: .milliseconds(5)) }
            #expect(server.connections == 2)
        }
    }

    @Test func `a stopped fetcher rejects requests, and shutdown fails those in flight`() async throws {
        let arrived = Gate()
        let server = try TokenServer { _ in
            arrived.open()
            return []
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            async let outcome = fetcher.token(server.url)
            await arrived.opened()
            fetcher.shutdown()
            let result = try await outcome
            #expect(result == .failure(.shuttingDown))
            await #expect(throws: FetchFailure.shuttingDown) { try await fetcher.token(server.url) }
        }
    }

    @Test func `TLS is verified with the origin's ca-file`() async throws {
        let nginx = try Nginx(
            files: [:], locations: "location /token { default_type application/json; return 200 '\(Self.good)'; }")
        let port = nginx.securePort
        defer { nginx.stop() }
        try await withFetcher {
            $0.resolverOverrides = { ["images.example:\(port):127.0.0.1"] }
        } _: { fetcher in
            let url = "https://images.example:\(port)/token"
            check(try await fetcher.token(url, caFile: nginx.caFile), "grant")
            check(try await fetcher.token(url), "origin")
        }
    }

    @Test func `F39: 401 from a host that does not get the token causes no refresh`() async throws {
        let other = try TestOrigin(["/x": { _, peer in peer.answer([], status: "401 Unauthorized") }])
        let same = try TestOrigin([
            "/away": { _, peer in peer.redirect(to: other.url("/x")) },
            "/home": { _, peer in peer.answer([], status: "401 Unauthorized") },
        ])
        defer {
            other.stop()
            same.stop()
        }
        try await withFetcher { fetcher in
            let origin = Origin.test(url: same.url("/{profile}"), allow: [other.url("/")])
            let token = Secret("t".utf8)
            check(try await fetcher.fetch(same.url("/home"), of: origin, token: token), "unauthorized")
            check(try await fetcher.fetch(same.url("/away"), of: origin, token: token), "origin")
            let named = try await fetcher.fetch(other.url("/x"), of: origin, isNamedByClient: true, token: token)
            #expect(named.kind == "origin")
            check(try await fetcher.fetch(same.url("/home"), of: origin), "unauthorized")
            #expect(other.requests.allSatisfy { $0.headers["authorization"] == nil })
        }
    }

    @Test(
        arguments: [
            ("https://id.example/t", "c", "s", false, nil), ("http://127.0.0.1:8/t", "c", nil, true, nil),
            ("http://id.example/t", "c", nil, false, "token.endpoint"),
            ("https://u@id.example/", "c", nil, true, "token.endpoint"),
            ("https://id.example/#f", "c", nil, true, "token.endpoint"),
            ("ftp://id.example/", "c", nil, true, "token.endpoint"),
            ("https://id.example/", "\u{e9}", nil, true, "token.client-id"),
            ("https://id.example/", "c", "a\nb", true, "token.client-secret-file"),
        ] as [(String, String, String?, Bool, String?)])
    func `an endpoint must be https unless the origin may be private, and its client id must be printable`(
        url: String, client: String, secret: String?, isPrivate: Bool, key: String?
    ) {
        var origin = Origin(name: "o", url: "https://o.example/{profile}", allowPrivateAddresses: isPrivate)
        origin.tokenEndpoint = TokenEndpoint(url: url, clientID: client, clientSecret: secret.map { Secret($0.utf8) })
        do {
            try OriginRules.validate(origin)
            #expect(key == nil)
        } catch {
            #expect(error.key == key, "\(error)")
        }
    }
}

private func check(_ outcome: DownloadOutcome, _ kind: String, _ location: SourceLocation = #_sourceLocation) {
    #expect(outcome.kind == kind, "\(outcome)", sourceLocation: location)
}
