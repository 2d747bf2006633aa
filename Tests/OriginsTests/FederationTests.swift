import CacheCore
import Testing

@testable import Origins

/// The domain of a mail address, and the upstreams that support federation.
@Suite struct FederationTests {
    static let long = (0..<4).map { _ in String(repeating: "a", count: 57) }.joined(separator: ".")

    @Test(arguments: [
        ("bob@example.org", "example.org"), (" Bob@Example.ORG \n", "example.org"), ("a@b@example.org", "example.org"),
        ("\"a b\"@example.org", "example.org"), ("\u{e4}@example.org", "example.org"),
        ("bob@xn--bcher-kva.example", "xn--bcher-kva.example"), ("bob@a-b.c1.example", "a-b.c1.example"),
        ("bob@1.2.example", "1.2.example"), ("bob@\(long).eee", "\(long).eee"),
        // Not an address, or without a valid domain.
        ("bob", nil), ("", nil), ("@", nil), ("@example.org", nil), ("bob@", nil), ("bob@example", nil),
        ("bob@.example.org", nil), ("bob@example..org", nil), ("bob@example.org.", nil), ("bob@-a.example", nil),
        ("bob@a-.example", nil), ("bob@a_b.example", nil), ("bob@exa mple.org", nil), ("bob@example.org\u{0}", nil),
        ("bob@a*.example", nil), ("bob@\u{fc}.example", nil), ("bob@127.0.0.1", nil), ("bob@[127.0.0.1]", nil),
        ("bob@[IPv6:::1]", nil), ("bob@1.2.3.0x7f", nil), ("bob@example.org/x", nil), ("bob@example.org:25", nil),
        ("bob@printer.local", nil), ("bob@a.localhost", nil), ("bob@x.onion", nil), ("bob@x.invalid", nil),
        ("bob@\(long).eeee", nil), ("bob@\(String(repeating: "a", count: 64)).example", nil),
    ])
    func `F86: the domain of an address is parsed strictly`(address: String, domain: String?) {
        #expect(Federation.libravatar.domain(of: OpaqueID(address)) == domain)
        #expect(Federation.none.domain(of: OpaqueID(address)) == nil)
    }

    private static let url = "https://central.example/avatar/{profile_sha256}?s={size}&d=404"

    private func origin(_ url: String = url) -> Origin {
        var origin = Origin(name: "default", url: url)
        origin.federation = .libravatar
        origin.showsToken = false
        return origin
    }

    @Test func `only targets of upstreams with federation have a domain`() throws {
        var origin = origin()
        origin.then = [Upstream(url: "https://b.example/{profile_md5}")]
        let rules = try OriginRules(origin)
        func target(_ profile: String, url: String? = nil) throws -> DownloadTarget {
            try rules.target(
                origin: origin, user: OpaqueID("alice"), imageKey: ImageKey(profile: OpaqueID(profile), size: 0),
                url: url)
        }
        let bob = try target("bob@friends.example")
        #expect(bob.federatedDomain == "friends.example" && bob.others.map(\.federatedDomain) == [nil])
        #expect(bob.url.hasPrefix("https://central.example/avatar/") && bob.url.hasSuffix("?s=128&d=404"))
        #expect(try target("bob").federatedDomain == nil)

        origin.allow = ["https://central.example/"]
        let named = try OriginRules(origin).target(
            origin: origin, user: OpaqueID("alice"),
            imageKey: ImageKey(profile: OpaqueID("bob@friends.example"), size: 0),
            url: "https://central.example/avatar/00")
        #expect(named.isNamedByClient && named.federatedDomain == nil)
    }

    @Test(arguments: [
        "https://central.example/avatar/{profile_md5}", "https://central.example:8443/avatar/{profile_sha256}?d=404",
        "HTTPS://Central.example/avatar/{profile_md5}?s={size}",
    ])
    func `federation is valid for URLs of the Libravatar API`(url: String) throws {
        _ = try OriginRules(origin(url))
    }

    @Test(arguments: [
        "http://central.example/avatar/{profile_sha256}", "https://central.example/{profile_sha256}",
        "https://central.example/x/avatar/{profile_sha256}", "https://central.example/avatar/{profile_sha256}/x",
        "https://central.example/avatar/{profile}", "https://central.example/avatar/{profile_sha256}?u={user}",
        "https://central.example/avatar/{profile_sha256}?p={profile}",
        "https://central.example?p=/avatar/{profile_sha256}", "https://central.example/?p=/avatar/{profile_sha256}",
    ])
    func `F86: federation is rejected if the URL would reveal more than a digest`(url: String) {
        #expect(performing: { _ = try OriginRules(origin(url)) }, throws: { ($0 as? OriginError)?.key == "federation" })
    }

    @Test(arguments: [false, true], [url, "https://Central.example:443/avatar/{profile_sha256}?s={size}&d=404"])
    func `F86: a duplicate of an upstream with federation is rejected`(
        isFirst: Bool, other: String
    ) throws {
        var origin = isFirst ? origin() : Origin(name: "default", url: Self.url)
        origin.then = [Upstream(url: "https://b.example/{profile}"), Upstream(url: other)]
        if !isFirst { origin.then[1].federation = .libravatar }
        #expect {
            _ = try OriginRules(origin)
        } throws: { error in
            let error = error as? OriginError
            return error?.key == "then[1].url" && error?.reason.contains("remove one of them") == true
        }
        // Different digests make different URLs; duplicates without federation are merged.
        origin.then[1].url = "https://central.example/avatar/{profile_md5}?s={size}&d=404"
        _ = try OriginRules(origin)
        (origin.federation, origin.then[1]) = (.none, Upstream(url: Self.url))
        _ = try OriginRules(origin)
    }

    @Test func `F39, F86: federation is rejected with a token or a proxy`() {
        var withToken = origin()
        withToken.showsToken = true
        var withProxy = origin()
        withProxy.proxy = "socks5h://proxy.example"
        var further = Origin(name: "default", url: "https://a.example/{profile}")
        further.then = [Upstream(url: Self.url)]
        further.then[0].federation = .libravatar
        further.then[0].showsToken = true
        for (origin, key) in [
            (withToken, "federation"), (withProxy, "federation"), (further, "then[0].federation"),
        ] {
            #expect(performing: { _ = try OriginRules(origin) }, throws: { ($0 as? OriginError)?.key == key })
        }
    }
}
