import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher
@testable import Origins

/// A table of hostile URLs, each used in every way in which the fetcher gets URLs. Each must be rejected by its address
/// or syntax, not by a network failure, and a listener on all addresses of this machine must get no connection.
@Suite struct HostileURLTests {
    private func withListener(
        _ configure: (inout FetcherSetup) -> Void = { _ in },
        _ body: (TestOrigin, [String], CurlImageFetcher) async throws -> Void
    ) async throws {
        // The wildcard address accepts connections to 127.0.0.0/8, ::1 and all other addresses of the machine.
        let listener = try TestOrigin(address: "::")
        defer { listener.stop() }
        let urls = HostileURLs.all(listener.port)
        #expect(Set(urls).count >= 60 && Set(urls).count == urls.count)
        try await withFetcher {
            configure(&$0)
            $0.resolverOverrides = { HostileURLs.names(listener.port) }
        } _: { fetcher in
            try await body(listener, urls, fetcher)
            #expect(listener.connections == 0)
            // Proves that the listener accepts connections.
            for host in ["127.0.0.1", "127.255.255.254", "[::1]", "localhost"] {
                let outcome = try await fetcher.fetch(listener.url("/", host: host), of: .test("control"))
                #expect(outcome.kind == "image", "\(host): \(outcome)")
            }
            #expect(listener.connections > 0)
        }
    }

    /// Whether the failure is the rejection of an address or a URL, and not one of the network or the origin.
    private func isRefusal(_ outcome: DownloadOutcome) -> Bool {
        let isAddress = outcome.kind == "denied" && outcome.reason.contains(" is at ")
        return isAddress || outcome.reason.contains("the URL cannot be requested")
            || outcome.reason.hasPrefix("a redirect from ")
    }

    @Test func `F30, F31, F32: an origin's own hostile URL is refused without a packet`() async throws {
        try await withListener { _, urls, fetcher in
            for url in urls {
                let outcome = try await fetcher.fetch(url, of: .test(private: false))
                #expect(isRefusal(outcome), "\(url): \(outcome)")
            }
        }
    }

    @Test(arguments: [false, true])
    func `F30, F31, F32: a redirect to a hostile URL is refused without a packet`(mayBePrivate: Bool) async throws {
        let location: TestOrigin.Script = { request, peer in
            let number = Int(request.target.split(separator: "=").last ?? "") ?? 0
            let port = UInt16(request.path.split(separator: "/").last ?? "") ?? 0
            peer.redirect(to: HostileURLs.all(port)[number])
        }
        try await withListener {
            $0.addressGuard.exceptions = [.v4(0x7F00_0003)]
        } _: { listener, urls, fetcher in
            let origin = try TestOrigin(address: "127.0.0.3", ["/\(listener.port)": location])
            defer { origin.stop() }
            for (number, url) in urls.enumerated() {
                // The origin itself is permitted: by its configuration, or because its address counts as public here.
                let outcome = try await fetcher.fetch(
                    origin.url("/\(listener.port)?n=\(number)"), of: .test(private: mayBePrivate))
                #expect(isRefusal(outcome), "\(url): \(outcome)")
            }
            #expect(origin.requests.count == urls.count)
        }
    }

    @Test func `F57: a client cannot name a hostile URL`() async throws {
        try await withListener { listener, urls, fetcher in
            var origin = Origin.test(
                url: "http://images.example/{profile}",
                allow: [
                    "http://cdn.example.org", "http://cdn.example.org:\(listener.port)", "http://public.example:0080/a",
                ])
            origin.allowPrivateAddresses = false
            let imageKey = ImageKey(profile: OpaqueID("bob"), size: 0)
            for url in urls {
                #expect(throws: CacheFailure.self, "\(url)") {
                    try OriginRules(origin).target(
                        origin: origin, user: OpaqueID("alice"), imageKey: imageKey, url: url)
                }
            }
        }
    }
}
