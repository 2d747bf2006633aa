import CacheFakes
import DaemonServer
import DiskStore
import Foundation
import LinuxSupport
import Logging
import NIOCore
import Origins
import ProgramSupport
import Testing
import ThumbcacheProtocol

@testable import CacheCore
@testable import thumbcached

@Suite struct ConfigurationTests {
    static let example: String? = try? String(
        contentsOf: repository.appending(path: "config/thumbcached.toml"), encoding: .utf8)

    @Test func `the example file holds exactly the defaults`() throws {
        // The defaults of root's daemon, with the directories that systemd passes.
        let environment = Fixture.environment.filter { $0.key != "RUNTIME_DIRECTORY" }
        let defaults = try Fixture.decode("", environment: environment)
        #expect(try Fixture.decode(#require(Self.example), environment: environment) == defaults)
        #expect(defaults.socket.path == "/run/thumbcached/thumbcached.sock")
    }

    @Test func `the example file names every key`() throws {
        let text = try #require(Self.example)
        let document = try TOMLNode.parse(text)
        for setting in Configuration.settings(accounts: .system) {
            let parts = setting.name.split(separator: ".").map(String.init)
            var table = document
            for part in parts.dropLast() {
                guard case .table(let inner)? = table[part] else { continue }
                table = inner
            }
            #expect(table[try #require(parts.last)] != nil, "\(setting.name)")
        }
    }

    @Test func `the example origin, uncommented, holds exactly the defaults of an origin`() throws {
        try Fixture.withDirectory { directory in
            let secret = "\(directory)/secret"
            try Data("s".utf8).write(to: URL(filePath: secret))
            let text = try #require(Self.example)
            let start = try #require(text.firstRange(of: "# [origins.default]"))
            let end = try #require(text.firstRange(of: "\n# What one client"))
            let section = text[start.lowerBound..<end.lowerBound].split(separator: "\n")
                .map { $0.hasPrefix("# ") ? $0.dropFirst(2) : $0 }.joined(separator: "\n")
                .replacing(/\/etc\/thumbcached\/(directory-password|secret)/, with: secret)
            let configuration = try Fixture.decode(section)
            let url = "https://avatars.example.org/{profile}?s={size}"
            var origin = Origin(name: "default", url: url)
            origin.tokenEndpoint = TokenEndpoint(
                url: "https://id.example.org/token", clientID: "thumbcached", clientSecret: Secret("s".utf8))
            (origin.bindName, origin.bindPassword) = ("cn=thumbcached,dc=example,dc=org", Secret("s".utf8))
            #expect(configuration.origins == ["default": origin])
            for setting in Origin.settings.map(\.setting) {
                let key = try #require(setting.name.split(separator: ".").last)
                #expect(section.contains("\(key) = "), "\(setting.name)")
            }
        }
    }

    @Test func `every example of an origin in the documentation is valid`() throws {
        let document = try String(contentsOf: repository.appending(path: "docs/origins.md"), encoding: .utf8)
        let examples = document.components(separatedBy: "```toml\n").dropFirst().map {
            $0.components(separatedBy: "```")[0]
        }
        #expect(examples.count >= 2)
        try Fixture.withDirectory { directory in
            for file in ["secret", "directory-password"] {
                try Data("s".utf8).write(to: URL(filePath: "\(directory)/\(file)"))
            }
            try Data(SampleImage.png("nobody").readableBytesView).write(to: URL(filePath: "\(directory)/nobody.png"))
            let loader = ConfigurationLoader(
                environment: Fixture.environment, uid: 0, accounts: Fixture.accounts)
            for example in examples {
                let text = example.replacing("/etc/thumbcached/", with: "\(directory)/")
                #expect(try loader.decode(text, file: "f.toml").origins["default"] != nil, "\(example)")
            }
        }
    }

    @Test func `every key sets its property`() throws {
        let configuration = try Fixture.decode(
            """
            threads = 2
            socket = { path = "/s", mode = "0600" }
            [storage]
            cache = "/c"
            state = "/t"
            runtime = "/r"
            keys = "runtime"
            quota = "2GiB"
            user-quota = "32MiB"
            [memory]
            tier = "0"
            [renderer]
            path = "/x/renderer"
            [sessions]
            purge-on-boot = true
            pending-logouts = "/p"
            [origins.work]
            url = "http://127.0.0.1:8080/{profile}/{size}.png"
            show-token = false
            default-size = 64
            renditions = "never"
            allow = ["https://cdn.example.org/a", 'http://127.0.0.1:8081']
            allow-private-addresses = true
            connect-timeout = "250ms"
            timeout = "1m"
            connections = 4
            lowest-speed = "2KiB"
            failures = 3
            backoff = "500ms"
            backoff-max = "2m"
            retry-after-max = "1h"
            default-ttl = "1h"
            negative-ttl = "0s"
            negative-ttl-max = "2h"
            user-agent = "thumbcached (a@example.org)"
            stale-while-revalidate = "2h"
            stale-if-error = "3d"
            ca-file = "/dev/null"
            proxy = "socks5h://127.0.0.1:9050"
            [origins.work.token]
            endpoint = "https://id.example.org/token"
            client-id = "c"
            [[origins.work.then]]
            url = "https://second.example.org/{profile}"
            [[origins.work.then]]
            url = "http://10.0.0.1/{profile}"
            allow-private-addresses = true
            show-token = true
            [origins.other]
            url = "https://other.example.org/{profile_md5}"
            [origins.long]
            url = "https://a.example/avatar/{profile_sha256}"
            show-token = false
            federation = "libravatar"
            then = [{ url = "https://b.example/avatar/{profile_md5}", federation = "libravatar" }]
            backoff = "2h"
            negative-ttl = "2d"
            [origins.short]
            url = "https://a.example"
            backoff-max = "500ms"
            [limits]
            image = "1MiB"
            dimension = 100
            pixels = 5000
            renditions-per-profile = 2
            id = 64
            arguments = 32
            input = "2MiB"
            output = "3MiB"
            memory-per-uid = "4MiB"
            memory = "16MiB"
            stall = "5s"
            token = "1KiB"
            connections = 100
            connections-per-uid = 10
            admin-connections = 2
            users-per-uid = 3
            sessions-per-user = 4
            downloads = 6
            downloads-per-uid = 6
            queue-per-uid = 0
            subscriptions = 7
            negative-entries = 0
            [access]
            admins = ["alice", "@wheel", "12", "@34"]
            observers = ["alice", "@wheel", "mallory", "7", "@staff", "broken"]
            [log]
            level = "debug"
            """)

        var expected = Configuration()
        expected.threads = 2
        expected.socket = .init(path: "/s", mode: 0o600)
        expected.storage = .init(
            cache: "/c", state: "/t", runtime: "/r", keys: .runtime, quota: 2 << 30, userQuota: 32 << 20)
        expected.memory.tier = 0
        expected.renderer.path = .program("/x/renderer")
        expected.sessions = .init(purgeOnBoot: true, pendingLogouts: "/p")
        expected.origins = [
            "work": Origin(
                name: "work", url: "http://127.0.0.1:8080/{profile}/{size}.png", defaultSize: 64,
                allow: ["https://cdn.example.org/a", "http://127.0.0.1:8081"], allowPrivateAddresses: true,
                connectTimeout: 250, timeout: 60_000, connections: 4, defaultTTL: 3600, negativeTTL: 0,
                staleWhileRevalidate: 7200, staleIfError: 259_200, caFile: "/dev/null",
                proxy: "socks5h://127.0.0.1:9050"),
            "other": Origin(name: "other", url: "https://other.example.org/{profile_md5}"),
            "long": Origin(name: "long", url: "https://a.example/avatar/{profile_sha256}"),
            "short": Origin(name: "short", url: "https://a.example"),
        ]
        // Defaults that adapt to other values.
        expected.origins["long"]?.breaker = BreakerPolicy(backoff: 7_200_000, backoffMax: 7_200_000)
        expected.origins["long"]?.negativeTTL = 172_800
        expected.origins["long"]?.negativeTTLMax = 172_800
        expected.origins["short"]?.breaker = BreakerPolicy(backoff: 500, backoffMax: 500)
        expected.origins["work"]?.breaker = BreakerPolicy(
            failures: 3, backoff: 500, backoffMax: 120_000, retryAfterMax: 3_600_000)
        expected.origins["work"]?.lowestSpeed = 2_048
        expected.origins["work"]?.negativeTTLMax = 7_200
        expected.origins["work"]?.userAgent = "thumbcached (a@example.org)"
        expected.origins["work"]?.renditions = .never
        expected.origins["work"]?.showsToken = false
        var upstream = Upstream(url: "http://10.0.0.1/{profile}")
        (upstream.allowPrivateAddresses, upstream.showsToken) = (true, true)
        expected.origins["work"]?.then = [Upstream(url: "https://second.example.org/{profile}"), upstream]
        expected.origins["long"]?.federation = .libravatar
        expected.origins["long"]?.showsToken = false
        expected.origins["long"]?.then = [Upstream(url: "https://b.example/avatar/{profile_md5}")]
        expected.origins["long"]?.then[0].federation = .libravatar
        expected.origins["work"]?.tokenEndpoint = TokenEndpoint(url: "https://id.example.org/token", clientID: "c")
        expected.limits = .init(
            server: ServerLimits(
                connections: 100, connectionsPerAccount: 10, adminConnections: 2,
                request: RequestLimits(arguments: 32, payloadBytes: 2 << 20, id: 64, image: 1 << 20, token: 1024),
                output: 3 << 20, stall: 5_000, queuePerAccount: 0, subscriptions: 7),
            memory: .init(perAccount: 4 << 20, total: 16 << 20), dimension: 100, pixels: 5_000, renditionsPerProfile: 2,
            usersPerUID: 3, sessionsPerUser: 4, downloads: 6, downloadsPerAccount: 6, negativeEntries: 0)
        expected.access.admins = AccessRule(uids: [1000, 12], gids: [10, 34])
        // Unknown observers are ignored.
        expected.access.observers = .init(
            rule: AccessRule(uids: [1000, 7], gids: [10]),
            unknown: [
                "unknown user \"mallory\"", "unknown group \"staff\"",
                "\"broken\": cannot look up user: Input/output error",
            ])
        expected.log.level = .debug
        #expect(configuration == expected)
        // No key above has its default, so this test covers every key.
        for setting in Configuration.settings(accounts: .system) {
            var changed = configuration
            setting.copy(Configuration(), &changed)
            #expect(changed != configuration, "\(setting.name)")
        }
    }

    @Test func `I8: an origin's fallback must be an image within the limits`() throws {
        try Fixture.withDirectory { directory in
            let file = "\(directory)/nobody.png"
            try Data(SampleImage.png("nobody", size: 200, width: 20).readableBytesView).write(to: URL(filePath: file))
            func decode(_ path: String, _ limits: String = "") throws -> FallbackImage? {
                let text = "[origins.a]\nurl = \"https://a.example\"\nfallback = \"\(path)\"\n[limits]\n\(limits)"
                return try Fixture.decode(text).origins["a"]?.fallback
            }
            let image = try FallbackImage(
                SampleImage.png("nobody", size: 200, width: 20), maximumDimension: 20)
            #expect(try decode(file) == image)
            #expect(try decode(file, "image = \"200B\"\ndimension = 20") == image)
            #expect(try decode("") == nil)
            for (path, limits, words) in [
                (file, "image = \"199B\"", "has more than 199 bytes"), (file, "dimension = 19", "is not a valid image"),
                ("/dev/null", "", "is not a plain file"), ("\(directory)/none", "", "No such file"),
                ("nobody.png", "", "is not an absolute path"),
            ] {
                #expect("\(path) \(limits)") {
                    try decode(path, limits)
                } throws: {
                    "\($0)".contains("origins.a.fallback: ") && "\($0)".contains(words)
                }
            }
        }
    }

    @Test func `defaults adapt to values that are set; values that are set stay`() throws {
        let small = try Fixture.decode("storage.quota = \"4MiB\"\nlimits = { connections = 1, downloads = 8 }")
        #expect(small.storage.userQuota == 4 << 20)
        #expect(small.limits.server.request.image == 4 << 20)
        #expect(small.limits.server.connectionsPerAccount == 1)
        #expect(small.limits.server.adminConnections == 0)
        #expect(small.limits.downloadsPerAccount == 8)

        let narrow = try Fixture.decode("limits.input = \"4KiB\"")
        #expect(narrow.limits.server.request.image == 4 << 10)
        #expect(narrow.limits.server.request.token == 4 << 10)

        let lowMemory = try Fixture.decode("limits.memory-per-uid = \"4MiB\"")
        #expect(
            lowMemory.limits.server.request.payloadBytes == 4 << 20 && lowMemory.limits.server.request.image == 4 << 20)
    }

    @Test func `the default directory of pending logouts is next to the state directory`() throws {
        #expect(try Fixture.decode("").sessions.pendingLogouts == "/var/lib/thumbcached-pending")
        #expect(try Fixture.decode("storage.state = \"/t//\"").sessions.pendingLogouts == "/t-pending")
        #expect(try Fixture.decode("sessions.pending-logouts = \"\"").sessions.pendingLogouts == "")
    }

    @Test func `a named file is read, and the default file may be missing`() throws {
        try Fixture.withDirectory { directory in
            let file = "\(directory)/c.toml"
            try Data("threads = 3\n".utf8).write(to: URL(filePath: file))
            #expect(try Fixture.loader().load(file: file).threads == 3)
        }
        if !FileManager.default.fileExists(atPath: ConfigurationLoader.defaultFile) {
            #expect(try Fixture.loader().load(file: nil) == Fixture.decode(""))
        }
    }

    @Test func `a reload applies limits, origins and the log level, and lists other changes`() throws {
        let old = try Fixture.decode("")
        let new = try Fixture.decode(
            """
            threads = 2
            access.admins = ["alice"]
            access.observers = ["alice"]
            socket.mode = "0600"
            log.level = "error"
            limits.image = "1MiB"
            limits.stall = "1s"
            [origins.default]
            url = "https://a.example/{profile}"
            """)
        let fixed = ["threads", "socket.mode", "access.admins", "access.observers"]
        #expect(new.changesNeedingRestart(from: old) == fixed)

        let running = new.reloaded(over: old)
        #expect(running.changesNeedingRestart(from: old) == [])
        #expect(running.limits == new.limits)
        #expect(running.origins == new.origins)
        #expect(running.log == new.log)
        #expect(running.threads == old.threads)
        #expect(running.socket == old.socket)
        #expect(running.access == old.access)
    }

    @Test func `accounts are found by name`() throws {
        #expect(try AccountDirectory.system.uid("root") == 0)
        #expect(try AccountDirectory.system.gid("root") == 0)
        #expect(try AccountDirectory.system.uid("no such user here") == nil)
        #expect(try AccountDirectory.system.gid("no such group here") == nil)
    }
}
