import CacheCore
import LinuxSupport
import NIOCore
import Testing

@testable import HelperProtocol
@testable import ImageFetcher
@testable import Origins

@Suite struct RedirectTests {
    @Test(arguments: ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
    func `a redirect is followed to the image`(status: String) async throws {
        try await withOrigin(["/a": { _, peer in peer.redirect(to: "b/../c", status: status) }]) { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.imageBytes == TestImage.png)
            #expect(server.requests.map(\.target) == ["/a", "/c"])
            #expect(server.requests.map(\.method) == ["GET", "GET"])
            #expect(fetcher.statistics[.requests] == 2)
        }
    }

    @Test func `at most three redirects are followed, including loops`() async throws {
        try await withOrigin([
            "/1": { _, peer in peer.redirect(to: "/2") }, "/2": { _, peer in peer.redirect(to: "/3") },
            "/3": { _, peer in peer.redirect(to: "/4") }, "/0": { _, peer in peer.redirect(to: "/1") },
            "/round": { _, peer in peer.redirect(to: "/round") },
        ]) { server, fetcher in
            let outcome1 = try await fetcher.fetch(server.url("/1"))
            #expect(outcome1.kind == "image")
            let outcome2 = try await fetcher.fetch(server.url("/0"))
            #expect(outcome2.reason.contains("3 redirects"))
            let outcome3 = try await fetcher.fetch(server.url("/round"))
            #expect(outcome3.kind == "origin")
            #expect(server.requests.count { $0.path == "/round" } == 4)
        }
    }

    @Test(arguments: [
        ("file:///etc/passwd", "denied"), ("ftp://127.0.0.1/", "denied"), ("gopher://127.0.0.1/", "denied"),
        ("dict://127.0.0.1:11211/stat", "denied"), ("http://user@127.0.0.1/", "denied"), ("\\\\127.0.0.1\\", "denied"),
        ("http://", "origin"), ("", "origin"), ("http://a b/", "origin"), ("javascript:alert(1)", "origin"),
    ])
    func `F30: a redirect to another scheme is rejected`(location: String, kind: String) async throws {
        try await withOrigin(["/a": { _, peer in peer.redirect(to: location) }]) { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == kind, "\(outcome)")
            #expect(server.connections == 1)
        }
    }

    @Test(arguments: [
        ("/b c", "/b%20c"), ("/b\u{fc}", "/b%FC"), ("/\u{e9}?q=\u{20}\u{ff}", "/%E9?q=%20%FF"), ("  /b%20c ", "/b%20c"),
    ])
    func `spaces and non-ASCII bytes of a Location are percent-encoded`(
        location: String, target: String
    ) async throws {
        let line = Array("Location: ".utf8) + location.unicodeScalars.map { UInt8(truncatingIfNeeded: $0.value) }
        try await withOrigin([
            "/a": { _, peer in
                peer.send(Array("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n".utf8) + line + Array("\r\n\r\n".utf8))
            }
        ]) { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "image", "\(outcome)")
            #expect(server.requests.map(\.target) == ["/a", target])
        }
    }

    @Test func `a redirect's URL has at most 8 KiB, and a refused redirect is a definite response`()
        async throws
    {
        try await withOrigin([
            "/long": { _, peer in peer.redirect(to: "/b?" + String(repeating: "s", count: 8_000)) },
            "/longer": { _, peer in peer.redirect(to: "/b?" + String(repeating: "s", count: 8_192)) },
            "/host": { _, peer in peer.redirect(to: "http://\(String(repeating: "h", count: 5_000))/") },
        ]) { server, fetcher in
            let long = try await fetcher.fetch(server.url("/long"))
            #expect(long.kind == "image" && long.image?.redirectedTo?.utf8.count ?? 0 > 8_000)
            for path in ["/longer", "/host"] {
                let refused = try await fetcher.fetch(server.url(path))
                #expect(
                    refused.kind == "origin" && refused.isDefinite && refused.reason.utf8.count < 500, "\(refused)")
            }
        }
    }

    @Test func `F30: a redirect to a private address is rejected at that hop, without a packet`() async throws {
        let inner = try TestOrigin(address: "127.0.0.3")
        let outer = try TestOrigin(address: "127.0.0.2", ["/a": { _, peer in peer.redirect(to: inner.url("/secret")) }])
        defer {
            inner.stop()
            outer.stop()
        }
        try await withFetcher {
            $0.addressGuard.exceptions = [.v4(0x7F00_0002)]
        } _: { fetcher in
            let outcome = try await fetcher.fetch(outer.url("/a"), of: .test(private: false))
            #expect(outcome.kind == "denied")
            #expect(outcome.reason.contains("127.0.0.3") && outcome.reason.contains("loopback"))
            #expect(outer.requests.count == 1 && inner.connections == 0)
            #expect(fetcher.statistics[.refusedAddresses] == 1)
        }
    }

    @Test(arguments: [("/in/b", "image"), ("/out", "denied"), ("/in/../out", "denied"), ("/in/..%2fout", "denied")])
    func `F57: redirects of a URL that a client named must match the allow entries`(
        location: String, kind: String
    ) async throws {
        try await withOrigin(["/in/a": { _, peer in peer.redirect(to: location) }]) { server, fetcher in
            let origin = Origin.test(allow: [server.url("/in")])
            let named = try await fetcher.fetch(server.url("/in/a"), of: origin, isNamedByClient: true)
            #expect(named.kind == kind)
            let own = try await fetcher.fetch(server.url("/in/a"), of: origin, isNamedByClient: false)
            #expect(own.kind == "image")
        }
    }

    @Test func `F39: the token is sent only to the origin's own scheme, host and port`() async throws {
        let other = try TestOrigin()
        let same = try TestOrigin([
            "/away": { _, peer in peer.redirect(to: other.url("/elsewhere")) },
            "/near": { _, peer in peer.redirect(to: "/home") },
        ])
        defer {
            other.stop()
            same.stop()
        }
        try await withFetcher { fetcher in
            let origin = Origin.test(
                url: same.url("/{profile}"), allow: [other.url("/"), same.url("/", host: "localhost")])
            let token = Secret("abc-._~+/=".utf8)
            _ = try await fetcher.fetch(same.url("/direct"), of: origin, token: token)
            _ = try await fetcher.fetch(same.url("/near"), of: origin, token: token)
            _ = try await fetcher.fetch(same.url("/away"), of: origin, token: token)
            // Another name of the same machine is another host.
            _ = try await fetcher.fetch(
                "http://localhost:\(same.port)/named", of: origin, isNamedByClient: true, token: token)
            _ = try await fetcher.fetch(other.url("/named"), of: origin, isNamedByClient: true, token: token)
            // A reused handle does not keep the token.
            _ = try await fetcher.fetch(same.url("/without"), of: origin)

            let seen = Dictionary(
                (same.requests + other.requests).map { ($0.path, $0.headers["authorization"]) },
                uniquingKeysWith: { $1 })
            let bearer: String? = "Bearer abc-._~+/="
            #expect(
                seen == [
                    "/direct": bearer, "/near": bearer, "/home": bearer, "/away": bearer, "/elsewhere": nil,
                    "/named": nil, "/without": nil,
                ])
            #expect(other.requests.count == 2)
        }
    }

    @Test(arguments: ["a\r\nX-Injected: 1", "tok en", "", "\u{e4}"])
    func `F39: an invalid bearer token is not sent`(token: String) async throws {
        try await withOrigin { server, fetcher in
            let outcome = try await fetcher.fetch(
                server.url("/a"), of: .test(url: server.url("/{profile}")), token: Secret(token.utf8))
            #expect(outcome.kind == "unauthorized")
            #expect(token.isEmpty || !outcome.reason.contains(token))
            #expect(server.requests.isEmpty)
        }
    }
}
