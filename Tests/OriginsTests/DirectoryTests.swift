import CacheCore
import LinuxSupport
import NIOCore
import Testing

@testable import Origins

/// Origins with LDAP.
@Suite struct DirectoryTests {
    private static let base = "ldaps://d.example/dc=example,dc=org?jpegPhoto?sub?"

    private func url(_ template: String, _ profile: [UInt8], user: String = "alice") throws -> String {
        let rules = try OriginRules(.test(url: template))
        let target = try rules.target(
            origin: .test(url: template), user: OpaqueID(user),
            imageKey: ImageKey(profile: OpaqueID(ByteBuffer(bytes: profile))),
            url: nil)
        #expect(rules.parse(target.url)?.string == target.url)
        #expect(!target.showsToken && !target.isNamedByClient)
        return target.url
    }

    @Test(arguments: [
        ("bob@example.org", "bob%40example.org"),
        ("*)(mail=*", "%5C2a%5C29%5C28mail%3D%5C2a"),
        ("\\2a", "%5C5c2a"),
        ("\u{0}\n\u{7F}", "%5C00%5C0a%5C7f"),
        ("?x#%29&|", "%3Fx%23%2529%26%7C"),
        ("\u{e4}", "%5Cc3%5Ca4"),
        ("..", ".."),
    ])
    func `F23: a profile is escaped for the filter, and then for the URL`(profile: String, expected: String) throws {
        #expect(try url(Self.base + "(mail={profile})", Array(profile.utf8)) == Self.base + "(mail=\(expected))")
    }

    @Test func `F23: no byte of a profile or user ends its value`() throws {
        for byte in 0...255 as ClosedRange<UInt8> {
            let text = try url("LDAPS://D.example:636/?jpegPhoto?one?(|(uid={profile})(cn={profile}))", [byte])
            let filter = try #require(text.split(separator: "?").last)
            #expect(text.hasPrefix("ldaps://d.example/?jpegPhoto?one?"))
            #expect(filter.count { $0 == "(" } == 3 && filter.count { $0 == ")" } == 3)
            #expect(!filter.contains("*") && !filter.contains("\\"))
        }
        #expect(try url(Self.base + "(uid={user})", [0x61], user: "*").hasSuffix("(uid=%5C2a)"))
    }

    @Test(arguments: [
        ("ldap://h/dc=a", "must have a base, an attribute, a scope and a filter"),
        ("ldap://h/dc=a?jpegPhoto?sub", "must have"),
        ("ldap://h/dc=a?jpegPhoto?sub?(uid={profile})?x", "must have"),
        ("ldap://h/uid={profile}?jpegPhoto?sub?(uid=x)", "only the filter"),
        ("ldap://h/dc=a?userPassword?sub?(uid={profile})", "\"userPassword\"; it must be jpegPhoto or thumbnailPhoto"),
        ("ldap://h/dc=a?jpegPhoto,mail?sub?(uid={profile})", "it must be jpegPhoto or thumbnailPhoto"),
        ("ldap://h/dc=a?{profile}?sub?(uid={profile})", "it must be jpegPhoto"),
        ("ldap://h/dc=a?jpegPhoto??(uid={profile})", "it must be base, one or sub"),
        ("ldap://h/dc=a?jpegPhoto?sub?uid={profile}", "must be in parentheses"),
        ("ldap:///dc=a?jpegPhoto?sub?(uid={profile})", "no host"),
        ("ldap://{profile}/?jpegPhoto?sub?(uid=x)", "must not contain a placeholder"),
        ("ldap://u:p@h/dc=a?jpegPhoto?sub?(uid={profile})", "user name or a password"),
    ])
    func `F50: an invalid LDAP URL is rejected when it is loaded`(template: String, reason: String) {
        #expect {
            try OriginRules.validate(.test(url: template))
        } throws: { error in
            guard let error = error as? OriginError else { return false }
            return error.key == "url" && error.reason.contains(reason)
        }
    }

    private struct Fault: Sendable {
        let key: String
        let apply: @Sendable (inout Origin) -> Void
    }

    @Test func `F50: LDAP and other settings that contradict each other name the key`() throws {
        var valid = Origin.test(url: Self.base + "(uid={profile})")
        (valid.bindName, valid.bindPassword) = ("cn=a", Secret("p".utf8))
        try OriginRules.validate(valid)
        let faults = [
            Fault(key: "bind.name") { $0.bindName = "" },
            Fault(key: "bind.password-file") { $0.bindPassword = nil },
            Fault(key: "bind.name") { $0.bindName = "cn=\u{0}" },
            Fault(key: "bind.password-file") { $0.bindPassword = Secret([0x61, 0]) },
            Fault(key: "proxy") { $0.proxy = "http://p.example" },
            Fault(key: "bind") { $0.url = "ldap://d.example/?jpegPhoto?sub?(uid={profile})" },
            Fault(key: "federation") { $0.federation = .libravatar },
            Fault(key: "allow") { $0.allow = ["ldaps://d.example/"] },
            Fault(key: "then[0].url") { $0.then = [Upstream(url: "ldap://h/{profile}")] },
        ]
        for fault in faults {
            var origin = valid
            fault.apply(&origin)
            #expect {
                try OriginRules.validate(origin)
            } throws: { ($0 as? OriginError)?.key == fault.key }
        }
        var insecure = valid
        insecure.url = "ldap://d.example/?jpegPhoto?sub?(uid={profile})"
        insecure.allowPrivateAddresses = true
        try OriginRules.validate(insecure)
        #expect(try OriginRules.warnings(of: valid).isEmpty)
        var unused = valid
        unused.url = "https://a.example/{profile}"
        #expect(try OriginRules.warnings(of: unused).map(\.key) == ["bind"])
    }

    @Test func `F57: a client cannot name an LDAP URL`() throws {
        let origin = Origin.test(url: Self.base + "(uid={profile})")
        #expect {
            try OriginRules(origin).target(
                origin: origin, user: OpaqueID("alice"), imageKey: ImageKey(profile: OpaqueID("bob")),
                url: Self.base + "(uid=bob)")
        } throws: { error in
            if case .denied? = error as? CacheFailure { true } else { false }
        }
    }
}
