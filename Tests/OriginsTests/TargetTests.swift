import CacheCore
import NIOCore
import Testing

@testable import Origins

@Suite struct TargetTests {
    private func target(
        _ origin: Origin, _ profile: String = "bob", size: UInt16 = 0, user: String = "alice", url: String? = nil
    ) throws -> DownloadTarget {
        try OriginRules(origin).target(
            origin: origin, user: OpaqueID(user), imageKey: ImageKey(profile: OpaqueID(profile), size: size), url: url)
    }

    @Test(arguments: [
        ("https://a.example/{profile}?s={size}", "bob", 0, "https://a.example/bob?s=128"),
        ("https://a.example/{profile}?s={size}", "bob", 64, "https://a.example/bob?s=64"),
        ("https://A.example:443/{user}/{profile}.png", "bob", 0, "https://a.example/alice/bob.png"),
        (
            "https://a.example/{profile}", "a/b?c#d&e=f+g h%41", 0,
            "https://a.example/a%2Fb%3Fc%23d%26e%3Df%2Bg%20h%2541"
        ),
        ("https://a.example/{profile}", "\u{e4}\n\u{0}@:", 0, "https://a.example/%C3%A4%0A%00%40%3A"),
        ("https://a.example/{profile}.png", "..", 0, "https://a.example/...png"),
        ("https://a.example/?p={profile}", "..", 0, "https://a.example/?p=.."),
        ("https://a.example/{profile}", "{user}", 0, "https://a.example/%7Buser%7D"),
        ("https://a.example/{profile}", "%2e%2e", 0, "https://a.example/%252e%252e"),
        (
            "https://a.example/avatar/{profile_md5}", " MyEmailAddress@example.com \n", 0,
            "https://a.example/avatar/0bc83cb571cd1c50ba6f3e8a78ef1346"
        ),
        (
            "https://a.example/avatar/{profile_sha256}", "MyEmailAddress@example.com", 0,
            "https://a.example/avatar/84059b07d4be67b806386c0aad8070a23f18836bbaae342275dc0a83414c32ee"
        ),
    ])
    func `F23: a template is filled in with arbitrary ids`(
        template: String, profile: String, size: UInt16, expected: String
    ) throws {
        let target = try target(.test(url: template), profile, size: size)
        #expect(target == DownloadTarget(url: expected, isNamedByClient: false))
    }

    @Test
    func `F23, F57: a template's URLs are normalized and parsed like any URL`()
        throws
    {
        let templates = [
            "https://a.example/{profile}", "http://[::1]:8080/a/{profile}/{user}.png",
            "https://a.example:8443/?p={profile}&s={size}",
            "https://a.example/{profile_md5}?d=404&s={size}", "https://A.example:443/%7e/{profile}",
            "http://127.0.0.1/{user}/{profile}?",
        ]
        // Every byte alone, doubled and between others, and ids that begin or end with dots.
        let ids = (0...255 as ClosedRange<UInt8>).flatMap { byte -> [[UInt8]] in
            [[byte], [byte, byte], [0x61, byte, 0x2E], [0x2E, 0x2E, byte, 0x25, 0x62]]
        }
        var accepted = 0
        for template in templates {
            let rules = try OriginRules(.test(url: template))
            for id in ids {
                let imageKey = ImageKey(profile: OpaqueID(ByteBuffer(bytes: id)))
                let target: DownloadTarget
                do {
                    target = try rules.target(
                        origin: .test(url: template), user: OpaqueID("alice"), imageKey: imageKey, url: nil)
                } catch {
                    // Segments that consist of dots.
                    #expect(id.allSatisfy { $0 == 0x2E })
                    continue
                }
                let whole = try WebURL(target.url)
                #expect(target.url == whole.string)
                #expect(rules.parse(target.url) == whole)
                accepted += 1
            }
        }
        #expect(accepted > 6_000)
    }

    @Test(arguments: [
        "https://a.example.org/x", "https://a.example:80/x", "https://a.example", "https://a.exampl/",
        "http://a.example/x", "https://A.example/",
    ])
    func `F32: a URL with another host is not parsed as one of the template`(url: String) throws {
        let rules = try OriginRules(.test(url: "https://a.example/{profile}"))
        #expect(rules.parse(url) == nil)
    }

    @Test(arguments: [
        ("https://a.example/{profile}", "."), ("https://a.example/{profile}", ".."),
        ("https://a.example/x/{profile}/y", ".."),
        ("https://a.example/.{profile}", "."), ("https://a.example/{profile}{profile}", "."),
        ("https://a.example/{profile}{profile}{profile}{profile}", String(repeating: "a", count: 512)),
    ])
    func `F23: ids that would change the path or make the URL too long are rejected`(template: String, profile: String)
    {
        #expect {
            try target(.test(url: template), profile)
        } throws: { error in
            guard case .invalid(let reason)? = error as? CacheFailure else { return false }
            return !reason.contains("aaaa")
        }
    }

    @Test(arguments: [
        "", "a.example/{profile}", "ftp://a.example/{profile}", "file:///{profile}", "https://{profile}/",
        "https://a.{user}/", "https://a.example:{size}/", "{profile}://a.example/", "https://a.example{profile}",
        "https:///{profile}", "https://?{profile}", "https://u:p@a.example/{profile}", "https://a.example/{nobody}",
        "https://a.example/{profile", "https://a.example/profile}", "https://a.example/{}",
        "https://a.example/{Profile}",
        "https://a.example/../{profile}", "https://a.example/%2e%2e/{profile}", "https://a.example/a#{profile}",
        "http://127.1/{profile}", "https://a.example/ {profile}", "https://a.example/%{profile}",
        "https://a.example\\{profile}",
    ])
    func `F50: an invalid template is rejected when it is loaded`(template: String) {
        #expect {
            try OriginRules.validate(.test(url: template))
        } throws: { error in
            guard let error = error as? OriginError else { return false }
            return error.key == "url" && !error.reason.isEmpty
        }
    }

    struct Fault: Sendable {
        let key: String
        let apply: @Sendable (inout Origin) -> Void
    }

    @Test(arguments: [
        Fault(key: "allow") { $0.allow = ["cdn.example.org"] },
        Fault(key: "allow") { $0.allow = ["ftp://cdn.example.org/"] },
        Fault(key: "allow") { $0.allow = ["https://ok.example", "https://a@b.example"] },
        Fault(key: "allow") { $0.allow = ["https://a.example/?x"] },
        Fault(key: "allow") { $0.allow = ["https://a.example/#x"] },
        Fault(key: "allow") { $0.allow = [""] },
    ])
    func `F50: other errors of an origin name the key`(fault: Fault) {
        var origin = Origin.test()
        #expect(throws: Never.self) { try OriginRules.validate(origin) }
        fault.apply(&origin)
        #expect {
            try OriginRules.validate(origin)
        } throws: { error in
            (error as? OriginError)?.key == fault.key
        }
    }

    @Test(arguments: [
        (["https://cdn.example.org"], "https://cdn.example.org/x"),
        (["https://cdn.example.org/"], "https://cdn.example.org"),
        (["https://CDN.example.org:443/a/"], "HTTPS://cdn.EXAMPLE.org/a/b?c=d"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/b"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/b/../a/c"),
        (["https://cdn.example.org/%61"], "https://cdn.example.org/a/..b/c..d"),
        (["https://cdn.example.org."], "https://cdn.example.org/x"),
        (["https://cdn.example.org"], "https://cdn.example.org./x"),
        (["https://one.example", "http://two.example:8080/b"], "http://two.example:8080/b/c"),
        (["https://cdn.example.org"], "https://cdn.example.org/a@b:c"),
    ])
    func `F57: a URL under an allow entry may be named`(allow: [String], url: String) throws {
        let target = try target(.test(allow: allow), url: url)
        #expect(target.isNamedByClient)
        #expect(try WebURL(url).string == target.url)
    }

    @Test(arguments: [
        ([], "https://cdn.example.org/"),
        (["https://cdn.example.org"], "https://cdn.example.org.evil/"),
        (["https://cdn.example.org"], "https://cdn.example.org@evil/"),
        (["https://cdn.example.org"], "https://cdn.example.org:443@evil/"),
        (["https://cdn.example.org"], "https://evil/https://cdn.example.org/"),
        (["https://cdn.example.org"], "https://evil.cdn.example.org/"),
        (["https://cdn.example.org"], "https://evil#@cdn.example.org/"),
        (["https://cdn.example.org"], "https://evil?@cdn.example.org/"),
        (["https://cdn.example.org"], "https://evil\\@cdn.example.org/"),
        (["https://cdn.example.org"], "https://cdn.example.org\\.evil/"),
        (["https://cdn.example.org"], "http://cdn.example.org/"),
        (["https://cdn.example.org"], "https://cdn.example.org:444/"),
        (["http://cdn.example.org"], "http://cdn.example.org:443/"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/ab"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/A"),
        (["https://cdn.example.org/a"], "https://cdn.example.org//a"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/../b"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/%2e%2e/b"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/.%2E/b"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/..%2fb"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/..%5cb"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/%2e%2e%2fb"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/..;/b"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/..%3bx/b"),
        (["https://cdn.example.org/a"], "https://cdn.example.org/a/\\..\\b"),
        (["https://cdn.example.org/a/b"], "https://cdn.example.org/a%2Fb"),
        (["https://cdn.example.org"], "file://cdn.example.org/etc/passwd"),
    ])
    func `F57: a URL that only resembles an allow entry is denied`(allow: [String], url: String) {
        #expect {
            try target(.test(allow: allow), url: url)
        } throws: { error in
            if case .denied(let reason)? = error as? CacheFailure { !reason.isEmpty } else { false }
        }
    }

    // MARK: Chains

    private func chain(_ urls: String...) -> Origin {
        var origin = Origin.test(url: urls[0])
        origin.then = urls.dropFirst().map { Upstream(url: $0) }
        return origin
    }

    @Test func `F23: each upstream is filled in, without duplicate URLs`() throws {
        let links = chain(
            "https://a.example/{profile}", "https://b.example/{profile}?s={size}", "https://A.example/{profile}",
            "https://c.example/{profile_md5}")
        let target = try target(links, "bob")
        #expect(target.url == "https://a.example/bob")
        let others = ["https://b.example/bob?s=128", "https://c.example/9f9d51bc70ef21ca5c14f307980a29d8"]
        #expect(target.others.map(\.url) == others)
        #expect(target.showsToken && target.others.allSatisfy { !$0.showsToken && $0.others.isEmpty })
    }

    @Test func `F23: an upstream without a valid URL is skipped; if all are, it is an error`() throws {
        let links = chain("https://a.example/{profile}", "https://b.example/{profile_md5}")
        let other = try target(links, "..")
        #expect(other.url.hasPrefix("https://b.example/") && other.others.isEmpty)
        #expect(throws: CacheFailure.self) {
            try target(chain("https://a.example/{profile}", "https://b.example/{user}/{profile}"), "..")
        }
    }

    @Test func `F39, F57: the permissions of an upstream do not apply to another`() throws {
        var origin = chain("https://a.example/{profile}", "https://b.example/{profile}", "https://c.example/{profile}")
        origin.then[0].allowPrivateAddresses = true
        origin.then[1].showsToken = true
        origin.showsToken = false
        origin.allow = ["https://d.example/x"]
        func outcome(_ origin: Origin) throws -> String {
            let rules = try OriginRules(origin)
            return try ["a.example/y", "b.example/y", "b.example:81/y", "c.example/y", "d.example/x", "e.example/y"].map
            {
                let url = try WebURL("https://\($0)")
                return (rules.mayBePrivate(url, from: url) ? "p" : "-") + (rules.showsToken(to: url) ? "t" : "-")
            }.joined(separator: " ")
        }
        #expect(try outcome(origin) == "-- p- -- -t -- --")
        (origin.allowPrivateAddresses, origin.showsToken) = (true, true)
        #expect(try outcome(origin) == "pt p- -- -t p- --")
        // A redirect from one upstream's host to another's.
        let rules = try OriginRules(origin)
        let first = try WebURL("https://a.example/x")
        #expect(try !rules.mayBePrivate(WebURL("https://b.example/y"), from: first))
        #expect(try rules.mayBePrivate(WebURL("https://d.example/x"), from: first))
    }

    @Test func `I8: an origin has at most eight upstreams, and an error names the invalid one`() throws {
        let many = Array(repeating: Upstream(url: "https://b.example/{profile}"), count: 8)
        var origin = Origin.test()
        origin.then = Array(many.dropLast())
        #expect(throws: Never.self) { try OriginRules(origin) }
        origin.then = many
        #expect { try OriginRules(origin) } throws: { ($0 as? OriginError)?.key == "then" }
        origin.then = [Upstream(url: "https://b.example/{nonsense}")]
        #expect { try OriginRules(origin) } throws: { ($0 as? OriginError)?.key == "then[0].url" }
    }

    @Test(arguments: ["cdn.example.org/a", "https://", "https://cdn.example.org/ a", "https://cdn.example.org/%", ""])
    func `an invalid URL is reported`(url: String) {
        #expect {
            try target(.test(allow: ["https://cdn.example.org"]), url: url)
        } throws: { error in
            if case .invalid? = error as? CacheFailure { true } else { false }
        }
    }
}

extension Origin {
    static func test(url: String = "https://a.example/{profile}", allow: [String] = []) -> Origin {
        var origin = Origin(name: "test", url: url)
        origin.allow = allow
        return origin
    }
}
