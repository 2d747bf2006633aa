import CacheCore
import Glibc
import HelperProtocol
import LinuxSupport
import ProgramSupport

/// A setting of an origin. One declaration reads it from a configuration file and sends it to the fetcher.
package struct OriginSetting<Root>: Sendable {
    package let setting: Setting<Root>
    fileprivate let field: MessageField<Root>

    fileprivate init<Value: MessageValue>(
        _ name: String, _ property: any WritableKeyPath<Root, Value> & Sendable, _ parser: SettingParser<Value>,
        _ bounds: [SettingBound] = []
    ) {
        setting = Setting(name, property, parser, bounds)
        field = MessageField(property)
    }
}

extension Origin {
    /// Every key of a section `[origins.NAME]`. Properties that are not in this list keep their defaults.
    package static let settings: [OriginSetting<Origin>] = [
        OriginSetting("url", \.url, .originURL),
        OriginSetting("show-token", \.showsToken, .flag),
        OriginSetting("federation", \.federation, .word),
        OriginSetting("then", \.then, .list(of: .upstream, such: "[{ url = \"https://b.example.org/{profile}\" }]")),
        OriginSetting("fallback", \.fallbackFile, .path(orNone: true)),
        OriginSetting("default-size", \.defaultSize, .count(1...4096)),
        OriginSetting("renditions", \.renditions, .word),
        OriginSetting("allow", \.allow, .list(of: .webURL, such: "[\"https://cdn.example.org/avatars/\"]")),
        OriginSetting("allow-private-addresses", \.allowPrivateAddresses, .flag),
        OriginSetting("connect-timeout", \.connectTimeout, .time(1...3_600_000)),
        OriginSetting("timeout", \.timeout, .time(1...3_600_000)),
        OriginSetting("connections", \.connections, .count(1...10_000)),
        OriginSetting("lowest-speed", \.lowestSpeed, .size(1...1 << 30, zero: true)),
        OriginSetting("failures", \.breaker.failures, .count(1...1_000_000)),
        OriginSetting("backoff", \.breaker.backoff, .time(1...86_400_000), [.atMost("backoff-max", raisingIt: true)]),
        OriginSetting("backoff-max", \.breaker.backoffMax, .time(1...86_400_000)),
        OriginSetting("retry-after-max", \.breaker.retryAfterMax, .time(0...86_400_000)),
        OriginSetting("default-ttl", \.defaultTTL, .seconds),
        OriginSetting("negative-ttl", \.negativeTTL, .seconds, [.atMost("negative-ttl-max", raisingIt: true)]),
        OriginSetting("negative-ttl-max", \.negativeTTLMax, .seconds),
        OriginSetting("stale-while-revalidate", \.staleWhileRevalidate, .seconds),
        OriginSetting("stale-if-error", \.staleIfError, .seconds),
        OriginSetting("ca-file", \.caFile, .readableFile),
        OriginSetting("proxy", \.proxy, .proxy),
        OriginSetting("user-agent", \.userAgent, .userAgent),
        OriginSetting("token.endpoint", \.token.url, .webURL),
        OriginSetting("token.client-id", \.token.clientID, .text.checked { $0.isEmpty ? "is empty" : nil }),
        OriginSetting("token.client-secret-file", \.token.clientSecret, .secretFile),
        OriginSetting("bind.name", \.bindName, .text),
        OriginSetting("bind.password-file", \.bindPassword, .secretFile),
    ]

    /// ``tokenEndpoint`` with an empty one for nil, so that its properties are settings like any other.
    fileprivate var token: TokenEndpoint {
        get { tokenEndpoint ?? TokenEndpoint(url: "", clientID: "") }
        set { tokenEndpoint = newValue == TokenEndpoint(url: "", clientID: "") ? nil : newValue }
    }
}

extension Upstream {
    /// Every key of a table in `then`.
    package static let settings: [OriginSetting<Upstream>] = [
        OriginSetting("url", \.url, .originURL),
        OriginSetting("allow-private-addresses", \.allowPrivateAddresses, .flag),
        OriginSetting("show-token", \.showsToken, .flag),
        OriginSetting("federation", \.federation, .word),
    ]
}

extension Origin {
    /// All settings, for the fetcher. Contains the client secret.
    package var encodedSettings: Secret { MessageWriter.encode { $0.fields(Self.settings.map(\.field), of: self) } }

    /// Decodes ``encodedSettings``.
    package init(name: String, encodedSettings: Secret) throws(MessageError) {
        self.init(name: name, url: "")
        try MessageReader.decode(encodedSettings) { message throws(MessageError) in
            try message.fields(Self.settings.map(\.field), into: &self)
        }
    }
}

extension Upstream: MessageValue {
    package func write(to message: inout MessageWriter) { message.fields(Self.settings.map(\.field), of: self) }

    package init(from message: inout MessageReader) throws(MessageError) {
        self.init(url: "")
        try message.fields(Self.settings.map(\.field), into: &self)
    }
}

extension Federation: MessageValue {}
extension RenditionPolicy: MessageValue {}

extension SettingParser<Upstream> {
    fileprivate static var upstream: Self {
        Self { node throws(SettingError) in
            guard case .table(let table) = node else {
                throw SettingError("is \(node.typeName); write { url = \"https://avatars.example.org/{profile}\" }")
            }
            var upstream = Upstream(url: "")
            var reader = SettingReader(settings: Upstream.settings.map(\.setting))
            reader.read(table, into: &upstream)
            if !reader.found.contains("url") {
                reader.addProblem("url", "is missing; write a URL, as in \"https://avatars.example.org/{profile}\"")
            }
            let flaws = reader.problems.map { problem in
                SettingError.Flaw(problem.sentence, keySuffix: problem.key.map { ".\($0)" } ?? "")
            }
            guard flaws.isEmpty else { throw SettingError(flaws) }
            return upstream
        }
    }
}

extension SettingParser<String> {
    /// The value of a header field User-Agent. A line break in it would begin another header field.
    fileprivate static var userAgent: Self {
        text.checked { text in
            text.utf8.count <= 256 && text.utf8.allSatisfy { (0x20...0x7E).contains($0) } && text.utf8.first != 0x20
                && text.utf8.last != 0x20
                ? nil
                : "is not a valid User-Agent; write at most 256 printable ASCII characters, without a space at either "
                    + "end, as in \"thumbcached (avatars@example.org)\""
        }
    }

    /// The path of a file that this process can read; empty for none.
    fileprivate static var readableFile: Self {
        path(orNone: true).checked { path in
            path.isEmpty || access(path, R_OK) == 0
                ? nil : "\(quoted(path)) cannot be read: \(SystemError("access").reason)"
        }
    }

    /// The URL of a proxy; empty for none. Messages omit it, since it may contain a password.
    fileprivate static var proxy: Self {
        text.checked { url in
            // With socks4 and socks5 libcurl resolves names itself and connects to an address that was not checked.
            let schemes = ["http://", "https://", "socks4a://", "socks5h://"]
            let isPlain = url.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7F }
            return url.isEmpty || isPlain && schemes.contains { url.hasPrefix($0) && url.utf8.count > $0.utf8.count }
                ? nil
                : "is not a valid proxy URL; write one that begins with http://, https://, socks5h:// (not socks5://) "
                    + "or socks4a:// (not socks4://), since the proxy must resolve names, or \"\" for no proxy"
        }
    }
}
