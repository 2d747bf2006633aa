import CacheCore
import HelperProtocol
import LinuxSupport
import ProgramSupport
import Testing

@testable import Origins

/// The list of an origin's settings, from which they are read and sent to the fetcher.
@Suite struct OriginSettingsTests {
    /// A value other than the default for each key except the secrets, which are files.
    private static let text = """
        url = "https://a.test/{profile}"
        show-token = false
        federation = "libravatar"
        then = [
            { url = "https://b.test/", allow-private-addresses = true, show-token = true, federation = "libravatar" },
            { url = "https://c.test/" },
        ]
        fallback = "/nobody.png"
        default-size = 64
        renditions = "never"
        allow = ["https://d.test/", "https://e.test/"]
        allow-private-addresses = true
        connect-timeout = "3ms"
        timeout = "4ms"
        connections = 5
        lowest-speed = "6B"
        failures = 7
        backoff = "8ms"
        backoff-max = "9ms"
        retry-after-max = "10ms"
        default-ttl = "11s"
        negative-ttl = "12s"
        negative-ttl-max = "13s"
        stale-while-revalidate = "14s"
        stale-if-error = "15s"
        ca-file = "/dev/null"
        proxy = "http://p.test:1"
        user-agent = "thumbcached (a@b.test)"
        token = { endpoint = "https://t.test/", client-id = "c" }
        bind = { name = "cn=b" }
        """

    private static func read() throws -> Origin {
        var origin = Origin(name: "a", url: "")
        var reader = SettingReader(settings: Origin.settings.map(\.setting))
        reader.read(text: text, into: &origin)
        try #require(reader.problems.isEmpty, "\(reader.problems)")
        origin.tokenEndpoint?.clientSecret = Secret("s".utf8)
        origin.bindPassword = Secret("p".utf8)
        return origin
    }

    @Test func `every setting of an origin reaches the fetcher`() throws {
        let origin = try Self.read()
        #expect(try Origin(name: "a", encodedSettings: origin.encodedSettings) == origin)
        // The text above must have a value for each setting; a missing one would arrive as its default.
        let defaults = Origin(name: "a", url: "")
        for setting in Origin.settings.map(\.setting) {
            var changed = origin
            setting.copy(defaults, &changed)
            #expect(changed != origin, "\(setting.name)")
        }
        for setting in Upstream.settings.map(\.setting) {
            var changed = origin
            setting.copy(Upstream(url: ""), &changed.then[0])
            #expect(changed != origin, "then.\(setting.name)")
        }
    }

    @Test func `an origin without a token endpoint has none in the fetcher`() throws {
        let origin = Origin(name: "a", url: "https://a.test/{profile}")
        #expect(try Origin(name: "a", encodedSettings: origin.encodedSettings) == origin)
    }

    @Test func `I8: settings that are truncated or have an additional byte are an error`() throws {
        let bytes = try Self.read().encodedSettings.withBytes { Array($0) }
        for count in 0..<bytes.count {
            #expect(throws: MessageError.self) { try Origin(name: "a", encodedSettings: Secret(bytes.prefix(count))) }
        }
        #expect(throws: MessageError.self) { try Origin(name: "a", encodedSettings: Secret(bytes + [0])) }
    }
}
