import Fleet
import Foundation
import Logging
import ProgramSupport
import Testing

@testable import thumbcached_oidc

@Suite struct ConfigurationTests {
    private static let provider = """
        [oidc]
        issuer = "https://id.example.org"
        client-id = "thumbnails"
        jwks = "https://id.example.org/keys"
        user = "{sub}"

        """

    private func read(_ text: String) throws -> OIDCConfiguration {
        try OIDCConfiguration.decode(text, file: "oidc.toml")
    }

    @Test func `a provider is configured by four keys`() throws {
        #expect(try read("") == OIDCConfiguration())
        #expect(try !read("").hasProvider)
        let configuration = try read(Self.provider)
        #expect(configuration.hasProvider)
        #expect(configuration.rules.issuer == "https://id.example.org" && configuration.rules.clientID == "thumbnails")
        #expect(configuration.user == IDTemplate("{sub}") && configuration.session == nil)
        #expect(configuration.listen.description == "127.0.0.1:9421")
    }

    @Test func `the example contains every key, with its default if it has one`() throws {
        let example = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "config/oidc.toml")
        let lines = try String(contentsOf: example, encoding: .utf8).components(separatedBy: "\n")
        let keys = lines.compactMap { $0.firstMatch(of: #/^(?:# )?([a-z-]+) = /#).map { String($0.output.1) } }
        #expect(keys.count == OIDCConfiguration.settings.count)
        // The four keys of a provider are required together.
        let withProvider = lines.map { line in
            ["issuer", "client-id", "jwks", "user"].contains { line.hasPrefix("# \($0) = ") }
                && !line.contains("oidc\"")
                ? String(line.dropFirst(2)) : line
        }
        var expected = OIDCConfiguration()
        (expected.rules.issuer, expected.rules.clientID) = ("https://id.example.org/realms/staff", "thumbnails")
        expected.jwks = "https://id.example.org/realms/staff/protocol/openid-connect/certs"
        expected.user = IDTemplate("{sub}")
        #expect(try read(withProvider.joined(separator: "\n")) == expected)
    }

    @Test func `every key is read`() throws {
        let configuration = try read(
            """
            stream = "{fleet}:x"
            keep = "1d"
            replicas = 2
            wait = "1s"
            \(Self.provider)
            session = "{sid}"
            other-audiences = ["mail"]
            algorithms = ["ES512"]
            types = ["JWT"]
            max-age = "2m"
            require-exp = false
            clock-skew = "0s"
            remembered = 5
            authorities = "/ca.pem"
            keys-pause = "1m"
            keys-lifetime = "2h"
            keys-timeout = "1s"
            [http]
            listen = "[::1]:1"
            certificate = "/c.pem"
            key = "/k.pem"
            connections = 1
            body = "1KiB"
            request-time = "1s"
            refusals = 0
            [redis]
            address = "/run/redis.sock"
            [log]
            level = "debug"
            """)
        var expected = OIDCConfiguration()
        expected.stream = StreamSettings(stream: "{fleet}:x", keep: 86_400_000, replicas: 2, wait: 1_000)
        expected.rules = TokenRules(
            issuer: "https://id.example.org", clientID: "thumbnails", otherAudiences: ["mail"], algorithms: [.es512],
            types: ["JWT"], longestAge: 120, requiresExpiry: false, skew: 0)
        expected.jwks = "https://id.example.org/keys"
        (expected.user, expected.session) = (IDTemplate("{sub}"), IDTemplate("{sid}"))
        (expected.remembered, expected.authorities) = (5, "/ca.pem")
        expected.keyTimes = KeyTimes(pause: 60_000, lifetime: 7_200_000)
        expected.keyTimeout = 1_000
        expected.listen = .tcp(host: "::1", port: 1)
        (expected.certificate, expected.key) = ("/c.pem", "/k.pem")
        expected.limits.connections = 1
        expected.limits.body = 1_024
        expected.limits.requestTime = 1_000
        expected.limits.refusals = 0
        expected.redis.address = .unix("/run/redis.sock")
        expected.logLevel = .debug
        #expect(configuration == expected)
    }

    @Test(arguments: [
        (
            "[oidc]\nissuer = \"https://a\"",
            ["oidc.client-id: is missing: a provider is oidc.issuer, oidc.client-id, oidc.jwks, oidc.user"]
        ),
        (Self.provider + "user-name = \"x\"", ["oidc.user-name: unknown key"]),
        (
            "[oidc]\nuser = \"alice\"",
            ["oidc.user: \"alice\" is not a template: it must contain {sub} or {sid}, as in \"{sub}@example.org\""]
        ),
        (
            "[oidc]\nalgorithms = [\"RS256\", \"HS256\"]",
            ["oidc.algorithms[1]: \"HS256\" is not a supported algorithm: write one of \"RS256\", "]
        ),
        ("[oidc]\nalgorithms = [\"none\"]", ["oidc.algorithms[0]: \"none\" is not a supported algorithm"]),
        ("[oidc]\nalgorithms = []", ["oidc.algorithms: is empty; every token would be rejected"]),
        (
            "[oidc]\njwks = \"http://id.example.org/keys\"",
            ["oidc.jwks: begins with http://; use https:// except for an address of this machine"]
        ),
        ("[oidc]\njwks = \"http://127.0.0.1.evil.example/\"", ["oidc.jwks: begins with http://"]),
        ("[oidc]\njwks = \"http://127.0.0.1@evil.example/\"", ["oidc.jwks: begins with http://"]),
        ("[oidc]\njwks = 'http://127.0.0.1\\@evil.example/'", ["oidc.jwks: begins with http://"]),
        ("[oidc]\nmax-age = \"1500ms\"", ["oidc.max-age: \"1500ms\" is not a whole number of seconds"]),
        (
            "[http]\nlisten = \"localhost:1\"",
            ["http.listen: \"localhost:1\" is not an address with a port or a socket path: write \""]
        ),
        (
            "[http]\nkey = \"/k\"",
            ["http.certificate: a certificate and its key belong together: set both or neither"]
        ),
        ("[redis]\nuser = \"u\"", ["redis.user: has no password: set redis.password-file"]),
        ("replicas = -1", ["replicas: -1 is negative: valid values are 0 to 100"]),
    ])
    func `an error names the key, the value and valid values`(_ text: String, _ parts: [String]) {
        let error = #expect(throws: ConfigurationError.self) { try read(text) }
        for part in parts { #expect(error?.description.contains(part) == true, "\(error?.description ?? "")") }
    }

    @Test func `plain HTTP is allowed for keys from this machine`() throws {
        for host in ["localhost", "127.0.0.1", "127.0.0.1:80"] {
            let text = Self.provider.replacingOccurrences(
                of: "https://id.example.org/keys", with: "http://\(host)/keys")
            #expect(try read(text).jwks == "http://\(host)/keys")
        }
    }
}
