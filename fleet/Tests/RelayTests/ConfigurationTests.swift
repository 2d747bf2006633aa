import Fleet
import Foundation
import Logging
import ProgramSupport
import Testing

@testable import thumbcached_relay

@Suite struct ConfigurationTests {
    private func read(_ text: String, _ environment: [String: String] = [:]) throws -> RelayConfiguration {
        try RelayConfiguration.decode(text, file: "relay.toml", environment: environment, hostName: "one")
    }

    @Test func `an empty file is a complete configuration`() throws {
        let configuration = try read("", ["STATE_DIRECTORY": "/var/lib/thumbcached-relay:/var/lib/other"])
        #expect(configuration.host == "one")
        #expect(configuration.state == "/var/lib/thumbcached-relay")
        #expect(configuration.redis.address == .tcp(host: "127.0.0.1", port: 6_379))
        #expect(configuration.onGap == .logoutAll && configuration.onOutage == .ignore)
        #expect(configuration.grace == 3_600_000)
    }

    @Test func `the example contains every key with its default`() throws {
        let example = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "config/relay.toml")
        let text = try String(contentsOf: example, encoding: .utf8)
        var expected = RelayConfiguration()
        expected.host = "one"
        #expect(try read(text) == expected)
        let document = try TOMLNode.parse(text)
        guard case .table(let redis)? = document["redis"] else {
            Issue.record("there is no [redis]")
            return
        }
        #expect(
            Set(document.keys) == [
                "socket", "stream", "on-gap", "on-outage", "grace", "heartbeat", "keep", "redis", "log",
            ])
        #expect(Set(redis.keys) == ["address", "sentinels", "master", "timeout", "tls"])
        for key in [
            "host", "state", "user", "password-file", "sentinel-user", "sentinel-password-file", "authorities",
            "certificate", "key",
        ] {
            #expect(text.contains("\n# \(key) = "), "\(key)")
        }
    }

    @Test func `every key is read`() throws {
        let configuration = try read(
            """
            host = "web-1"
            state = "/s"
            socket = "/run/t.sock"
            stream = "{fleet}:x"
            on-gap = "purge-all"
            on-outage = "logout-all"
            grace = "2h"
            heartbeat = "1s"
            keep = "1d"
            [redis]
            address = "[2001:db8::1]:7000"
            sentinels = ["a.example.org", "b.example.org:5"]
            master = "m"
            user = ""
            timeout = "1s"
            tls = true
            authorities = "/ca.pem"
            certificate = "/c.pem"
            key = "/k.pem"
            sentinel-user = ""
            [log]
            level = "debug"
            """)
        var expected = RelayConfiguration()
        (expected.host, expected.state, expected.socket, expected.stream) = ("web-1", "/s", "/run/t.sock", "{fleet}:x")
        (expected.onGap, expected.onOutage, expected.grace) = (.purgeAll, .logoutAll, 7_200_000)
        (expected.heartbeat, expected.keep, expected.logLevel) = (1_000, 86_400_000, .debug)
        expected.redis.address = .tcp(host: "2001:db8::1", port: 7_000)
        expected.redis.sentinels = [
            .tcp(host: "a.example.org", port: 26_379), .tcp(host: "b.example.org", port: 5),
        ]
        (expected.redis.master, expected.redis.timeout) = ("m", 1_000)
        expected.redis.tls = .init(isOn: true, authorities: "/ca.pem", certificate: "/c.pem", key: "/k.pem")
        #expect(configuration == expected)
    }

    @Test(arguments: [
        (
            "on-gap = \"logout\"",
            "relay.toml: on-gap: \"logout\" is not one of \"logout-all\", \"purge-all\", \"ignore\"; "
                + "did you mean \"logout-all\"?"
        ),
        ("on_gap = \"ignore\"", "relay.toml: on_gap: unknown key; did you mean on-gap?"),
        ("nonsense = 1", "relay.toml: nonsense: unknown key; fleet/docs/fleet.md lists all keys"),
        (
            "host = \"a b\"",
            "relay.toml: host: \"a b\" is not a valid name of a host: 1 to 255 visible ASCII characters without spaces"
        ),
        (
            "[redis]\naddress = \"a:b\"",
            "relay.toml: redis.address: \"a:b\" is not an address: "
                + "write \"redis.example.org:6379\" or \"/run/redis/redis.sock\""
        ),
        ("[redis]\nuser = \"u\"", "relay.toml: redis.user: has no password: set redis.password-file"),
        (
            "[redis]\nauthorities = \"/ca\"",
            "relay.toml: redis.tls: is off, and certificates are set: write redis.tls = true"
        ),
        (
            "[redis]\ntls = true\nkey = \"/k\"",
            "relay.toml: redis.certificate: a certificate and its key belong together: set both or neither"
        ),
    ])
    func `an error names the key and valid values`(_ text: String, _ sentence: String) throws {
        let error = #expect(throws: ConfigurationError.self) { try read(text) }
        #expect(error?.description == sentence)
    }

    @Test func `a machine without a host name needs the key host`() throws {
        let error = #expect(throws: ConfigurationError.self) {
            try RelayConfiguration.decode("", file: "relay.toml", environment: [:], hostName: "")
        }
        #expect(error?.description == "relay.toml: host: the machine has no host name; set host")
    }

    @Test(arguments: [
        ("/run/redis.sock", "/run/redis.sock"), ("redis.example.org", "redis.example.org:6379"),
        ("redis:1", "redis:1"), ("[::1]", "[::1]:6379"), ("[::1]:9", "[::1]:9"), ("10.0.0.1:65535", "10.0.0.1:65535"),
    ])
    func `an address is a path or a host with an optional port`(_ text: String, _ shown: String) {
        #expect(RedisAddress(text, defaultPort: 6_379)?.description == shown)
    }

    @Test(arguments: [
        "", ":1", "a:", "a:0", "a:65536", "a:01", "a:+1", "a:1:2", "::1", "[::1", "[]:1", "[::1]9", "a b:1", "a/b:1",
        "/" + String(repeating: "x", count: 107),
    ])
    func `other addresses are invalid`(_ text: String) {
        #expect(RedisAddress(text, defaultPort: 6_379) == nil)
    }
}
