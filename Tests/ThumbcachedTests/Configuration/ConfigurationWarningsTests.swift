import DaemonServer
import Foundation
import Glibc
import ProgramSupport
import Testing

@testable import thumbcached

/// Warnings about valid settings that are probably mistakes.
@Suite struct ConfigurationWarningsTests {
    private static let same = "has no placeholder for the profile, such as {profile}; every profile gets the same image"
    private static func never(_ host: String, _ kind: String, _ place: String = "next to it") -> String {
        "\(host) is \(kind); downloads fail without allow-private-addresses = true \(place)"
    }

    private static let cases: [(text: String, warnings: [String])] = [
        ("url = \"https://a.example/{profile}\"", []),
        ("url = \"https://a.example/{user}\"", ["url: \(same)"]),
        ("url = \"https://a.example/{profile_md5}\"\nallow = [\"https://cdn.example\"]", []),
        // Every profile would get the same image.
        ("url = \"https://a.example/me.png\"", ["url: \(same)"]),
        ("url = \"https://a.example/?s={size}\"", ["url: \(same)"]),
        (
            "url = \"https://a.example/{profile}\"\nthen = [{ url = \"https://b.example/{profile}\" }, "
                + "{ url = \"https://c.example\" }]",
            ["then[1].url: \(same); use fallback for an image without a profile"]
        ),
        // Every download would fail.
        ("url = \"http://127.0.0.1:8080/{profile}\"", ["url: \(never("127.0.0.1", "a loopback address"))"]),
        ("url = \"http://localhost/{profile}\"", ["url: \(never("localhost", "a loopback address"))"]),
        ("url = \"http://a.LOCALHOST./{profile}\"", ["url: \(never("a.localhost", "a loopback address"))"]),
        ("url = \"https://[fd00::1]/{profile}\"", ["url: \(never("[fd00::1]", "a unique local address"))"]),
        ("url = \"https://10.1.2.3/\"", ["url: \(same)", "url: \(never("10.1.2.3", "a private address"))"]),
        ("url = \"http://localhost/{profile}\"\nallow-private-addresses = true", []),
        // A proxy resolves names; a literal address is checked.
        ("url = \"http://localhost/{profile}\"\nproxy = \"http://p:1\"", []),
        (
            "url = \"http://10.0.0.1/{profile}\"\nproxy = \"http://p:1\"",
            ["url: \(never("10.0.0.1", "a private address"))"]
        ),
        // An upstream's permission is limited to its host.
        (
            "url = \"http://10.0.0.1/{profile}\"\nallow-private-addresses = true\nallow = [\"http://10.0.0.3\"]\n"
                + "then = [{ url = \"http://10.0.0.2/{profile}\" }, { url = \"http://10.0.0.1/b/{profile}\" }]",
            ["then[0].url: \(never("10.0.0.2", "a private address"))"]
        ),
        (
            "url = \"https://a.example/{profile}\"\nallow = [\"https://b.example\", \"http://10.0.0.3\"]\n"
                + "token = { endpoint = \"https://[::1]/token\", client-id = \"c\" }",
            [
                "allow[1]: \(never("10.0.0.3", "a private address", "in the origin"))",
                "token.endpoint: \(never("[::1]", "a loopback address", "in the origin"))",
            ]
        ),
    ]

    @Test(arguments: cases)
    func `F50: probable mistakes in an origin cause warnings, not errors`(
        text: String, warnings: [String]
    ) throws {
        let found = try Fixture.decode("[origins.o]\n\(text)").warnings
        #expect(found.map { "\($0.key ?? ""): \($0.sentence)" } == warnings.map { "origins.o.\($0)" })
    }

    @Test(arguments: [(0o600, 0), (0o640, 0), (0o604, 1), (0o644, 1)] as [(mode_t, Int)])
    func `a secret that every account can read causes a warning`(_ row: (mode: mode_t, warnings: Int)) throws {
        try Fixture.withDirectory { directory in
            let file = "\(directory)/secret"
            try #require(FileManager.default.createFile(atPath: file, contents: Data("secret".utf8)))
            try #require(chmod(file, row.mode) == 0)
            let warnings = try Fixture.decode(
                """
                [origins.o]
                url = "https://a.example/{profile}"
                [origins.o.token]
                endpoint = "https://a.example/token"
                client-id = "c"
                client-secret-file = "\(file)"
                """
            ).warnings
            #expect(warnings.count == row.warnings)
            #expect(
                warnings.allSatisfy { $0.key == "origins.o.token.client-secret-file" && $0.sentence.contains(file) })
        }
    }

    @Test func `a socket in a directory of another account causes a warning`() throws {
        func keys(ofSocketIn directory: String, state: String) throws -> [String?] {
            try Fixture.decode("[socket]\npath = \"\(directory)/socket\"\n[storage]\nstate = \"\(state)\"")
                .warnings.map(\.key)
        }
        try Fixture.withDirectory { directory in
            #expect(try keys(ofSocketIn: directory, state: directory) == [])
            #expect(try keys(ofSocketIn: "/usr", state: directory) == [])
            #expect(try keys(ofSocketIn: directory + "/missing", state: directory) == [])
            // Only root can change the owner.
            guard geteuid() == 0 else { return }
            try #require(chown(directory, 12_345, 12_345) == 0)
            #expect(try keys(ofSocketIn: directory, state: "/usr") == ["socket.path"])
            // The owner of the state directory is the daemon's account.
            #expect(try keys(ofSocketIn: directory, state: directory) == [])
        }
    }

    @Test func `F50: unknown observers cause warnings; those of origins follow, sorted by name`()
        throws
    {
        let found = try Fixture.decode(
            """
            [access]
            observers = ["mallory"]
            [origins.b]
            url = "https://b.example"
            [origins.a]
            url = "https://a.example"
            """
        ).warnings
        #expect(found.map(\.key) == ["access.observers", "origins.a.url", "origins.b.url"])
        #expect(found.first?.sentence == "unknown user \"mallory\", which is ignored")
    }

    @Test func `thumbcached-http is an observer by default, and a machine without it causes no warning`() throws {
        #expect(try Fixture.decode("").access.observers.rule == AccessRule(uids: [990]))
        let accounts = AccountDirectory(uid: { _ in nil }, gid: { _ in nil })
        let without = try Fixture.loader(accounts: accounts).decode("", file: "f.toml")
        #expect(without.access.observers == .init() && without.warnings.isEmpty)
        // A name in the file causes one.
        let named = try Fixture.loader(accounts: accounts)
            .decode("access.observers = [\"thumbcached-http\"]", file: "f.toml")
        #expect(named.warnings.map(\.key) == ["access.observers"])
        #expect(try Fixture.decode("access.observers = []").access.observers == .init())
    }
}
