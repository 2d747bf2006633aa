import CacheCore
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import HelperProtocol
@testable import ImageFetcher
@testable import Origins

/// The addresses that the fetcher connects to, as seen by servers that listen there.
@Suite struct AddressTests {
    private static let permitted = IPAddress.v4(0x7F00_0002)

    /// Only redirects can have other spellings of IPv4 addresses (see HostileURLTests), because an origin's URL rejects
    /// them.
    @Test(arguments: [
        "127.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "localhost", "0.0.0.0", "[::]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]",
    ])
    func `F32: a private address is refused in every spelling, without a packet sent`(host: String) async throws {
        try await withOrigin { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a", host: host), of: .test(private: false))
            #expect(outcome.kind == "denied", "\(outcome)")
            #expect(outcome.reason.contains("allow-private-addresses"))
            #expect(server.connections == 0)
            #expect(fetcher.statistics[.denied] == 1 && fetcher.statistics[.refusedAddresses] > 0)
        }
    }

    @Test func `F31: a name that resolves to a private address is refused`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        let port = server.port
        try await withFetcher {
            $0.resolverOverrides = { ["public.example:\(port):127.0.0.1"] }
        } _: { fetcher in
            let outcome = try await fetcher.fetch(server.url("/a", host: "public.example"), of: .test(private: false))
            #expect(outcome.kind == "denied")
            #expect(outcome.reason.contains("public.example") && outcome.reason.contains("127.0.0.1"))
            #expect(server.connections == 0)
        }
    }

    @Test func `F31: a name that resolves to a private address the second time is refused then`() async throws {
        let inner = try TestOrigin(address: "127.0.0.1")
        // The same port at an address that counts as public. It closes its connections, so that the next request
        // connects.
        let outer = try TestOrigin(
            address: "127.0.0.2", port: inner.port,
            [
                "/a": { _, peer in
                    peer.answer(TestImage.png, headers: ["Connection: close"])
                    peer.hangUp()
                }
            ])
        defer {
            inner.stop()
            outer.stop()
        }
        let answer = NIOLockedValueBox("127.0.0.2")
        try await withFetcher {
            $0.addressGuard.exceptions = [Self.permitted]
            $0.resolverOverrides = { ["rebind.example:\(inner.port):\(answer.withLockedValue { $0 })"] }
        } _: { fetcher in
            let url = outer.url("/a", host: "rebind.example")
            let first = try await fetcher.fetch(url, of: .test(private: false))
            #expect(first.kind == "image")
            answer.withLockedValue { $0 = "127.0.0.1" }
            let second = try await fetcher.fetch(url, of: .test(private: false))
            #expect(second.kind == "denied")
            #expect(outer.connections == 1 && inner.connections == 0)
        }
    }

    @Test func `F32: all bits of an IPv6 address are checked, before and after connecting`() async throws {
        let server = try TestOrigin(address: "::1")
        defer { server.stop() }
        let url = server.url("/a", host: "[::1]")
        try await withFetcher {
            $0.addressGuard.exceptions = [.v6(0, 1)]
            $0.addressGuard.ownExceptions = [.v6(0, 1)]
        } _: { fetcher in
            for _ in 0..<2 {
                let permitted = try await fetcher.fetch(url, of: .test(private: false))
                #expect(permitted.kind == "image", "\(permitted)")
            }
            #expect(server.connections == 1)
        }
        try await withFetcher { fetcher in
            let refused = try await fetcher.fetch(url, of: .test(private: false))
            #expect(refused.kind == "denied" && refused.reason.contains("::1, a loopback address"))
            #expect(server.connections == 1)
        }
    }

    @Test(arguments: [("127.0.0.1", IPAddress.v4(0x7F00_0001)), ("::1", IPAddress.v6(0, 1))])
    func `F30: nothing is sent to a public address of this machine, directly or by a redirect`(
        host: String, address: IPAddress
    ) async throws {
        let inner = try TestOrigin(address: host)
        let url = inner.url("/secret", host: host.contains(":") ? "[\(host)]" : host)
        // Connections to it come from 127.0.0.1, as with an address of another machine.
        let outer = try TestOrigin(address: "127.0.0.2", ["/a": { _, peer in peer.redirect(to: url) }])
        let endpoint = try TokenServer { _ in TokenServer.response(TokenTests.good) }
        defer {
            inner.stop()
            outer.stop()
            endpoint.stop()
        }
        try await withFetcher {
            $0.addressGuard.exceptions = [Self.permitted, .v4(0x7F00_0001), address]
        } _: { fetcher in
            let redirected = try await fetcher.fetch(outer.url("/a"), of: .test(private: false))
            let named = try await fetcher.fetch(url, of: .test(private: false))
            for outcome in [redirected, named] {
                #expect(outcome.kind == "denied", "\(outcome)")
                #expect(outcome.reason.contains("\(host), an address of this machine"), "\(outcome)")
            }
            let token = try await fetcher.token(endpoint.url, private: false)
            #expect(token.kind == "denied" && token.reason.contains("an address of this machine"), "\(token)")
            #expect(inner.requests.isEmpty && endpoint.requests.isEmpty && outer.requests.count == 1)
            #expect(fetcher.statistics[.refusedAddresses] == 2 && fetcher.statistics.hostsOpen == 0)
            // An origin with allow-private-addresses may connect to it.
            let permitted = try await fetcher.fetch(url, of: .test())
            #expect(permitted.kind == "image", "\(permitted)")
        }
    }

    @Test func `F31: only the permitted addresses of a name are tried`() async throws {
        let inner = try TestOrigin(address: "127.0.0.1")
        let outer = try TestOrigin(address: "127.0.0.2", port: inner.port)
        defer {
            inner.stop()
            outer.stop()
        }
        try await withFetcher {
            $0.addressGuard.exceptions = [Self.permitted]
            $0.resolverOverrides = { ["both.example:\(inner.port):127.0.0.1,127.0.0.2"] }
        } _: { fetcher in
            let outcome = try await fetcher.fetch(inner.url("/a", host: "both.example"), of: .test(private: false))
            #expect(outcome.kind == "image")
            #expect(inner.connections == 0 && outer.connections == 1)
        }
    }

    @Test func `F58: a connection to a private address is not reused after the permission was removed`() async throws {
        try await withOrigin { server, fetcher in
            let free = Origin.test("free")
            // As after a reload. An origin of another name would not share connections.
            let bound = Origin.test("free", private: false)
            let first = try await fetcher.fetch(server.url("/a"), of: free)
            #expect(first.kind == "image")
            let refused = try await fetcher.fetch(server.url("/b"), of: bound)
            #expect(refused.kind == "denied" && refused.reason.contains("127.0.0.1"))
            let again = try await fetcher.fetch(server.url("/c"), of: free)
            #expect(again.kind == "image")
            #expect(server.requests.map(\.path) == ["/a", "/c"])
        }
    }

    @Test func `F58: a connection is reused by its own origin only`() async throws {
        try await withOrigin { server, fetcher in
            for _ in 0..<5 {
                for name in ["one", "two", "three"] {
                    let outcome = try await fetcher.fetch(server.url("/\(name)"), of: .test(name))
                    #expect(outcome.kind == "image")
                }
            }
            #expect(server.requests.count == 15 && server.connections == 3)
        }
    }

    @Test func `F30, F58: the permission for private addresses does not apply to other targets of redirects`()
        async throws
    {
        let inner = try TestOrigin()
        let origin = try TestOrigin([
            "/away": { _, peer in peer.redirect(to: inner.url("/out")) },
            "/near": { _, peer in peer.redirect(to: inner.url("/in/a")) },
            "/deceit": { _, peer in peer.redirect(to: inner.url("/in/..%2fout")) },
            "/home": { _, peer in peer.redirect(to: "/here") },
        ])
        defer {
            inner.stop()
            origin.stop()
        }
        try await withFetcher { fetcher in
            let narrow = Origin.test("narrow", url: origin.url("/{profile}"))
            let wide = Origin.test("wide", url: origin.url("/{profile}"), allow: [inner.url("/in")])
            let refused = try await fetcher.fetch(origin.url("/away"), of: narrow)
            #expect(refused.kind == "denied" && refused.reason.contains("allow entries"), "\(refused)")
            let home = try await fetcher.fetch(origin.url("/home"), of: narrow)
            #expect(home.kind == "image" && inner.connections == 0)
            let near = try await fetcher.fetch(origin.url("/near"), of: wide)
            #expect(near.kind == "image")
            // Not even over the open connection.
            for path in ["/away", "/deceit"] {
                let away = try await fetcher.fetch(origin.url(path), of: wide)
                #expect(away.kind == "denied", "\(path): \(away)")
            }
            #expect(inner.requests.map(\.path) == ["/in/a"])
        }
    }

    @Test func `F33: proxies of the environment and .netrc are ignored`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        // All tests run with a proxy in the environment that does not listen: see HostileEnvironment.
        try await withFetcher { fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "image")
            #expect(server.requests.first?.headers["authorization"] == nil)
            #expect(server.requests.first?.headers["proxy-connection"] == nil)
            #expect(server.requests.first?.target == "/a")
        }
    }

    @Test func `F33: the configured proxy may be private, but is not used for a private address`()
        async throws
    {
        let proxy = try TestOrigin()
        defer { proxy.stop() }
        try await withFetcher { fetcher in
            var origin = Origin.test(private: false)
            origin.proxy = proxy.url("")
            let target = "http://images.example/a"
            let outcome = try await fetcher.fetch(target, of: origin)
            #expect(outcome.kind == "image")
            #expect(proxy.requests.map(\.target) == [target])
            let denied = try await fetcher.fetch("http://127.0.0.1:\(proxy.port)/a", of: origin)
            #expect(denied.kind == "denied" && proxy.requests.count == 1)
        }
    }

    @Test func `a request has only Accept, Accept-Encoding, Host and User-Agent`() async throws {
        try await withOrigin { server, fetcher in
            _ = try await fetcher.fetch(server.url("/a?b=%20c"))
            let request = try #require(server.requests.first)
            #expect(request.target == "/a?b=%20c")
            #expect(Set(request.headers.keys) == ["host", "user-agent", "accept", "accept-encoding"])
            #expect(request.headers["user-agent"] == "thumbcached/tests")
        }
    }
}
