import Fleet
import LinuxSupport
import Logging
import ProgramSupport

/// The configuration; fleet/docs/oidc.md documents every key.
struct OIDCConfiguration: RedisConfigured, Equatable, Sendable {
    var listen = ListenAddress.tcp(host: "127.0.0.1", port: 9_421)
    /// PEM files; empty for plain HTTP.
    var certificate = ""
    var key = ""
    var limits = HTTPLimits()
    var rules = TokenRules()
    /// URL of the provider's keys; empty without a provider.
    var jwks = ""
    /// PEM file of authorities for `jwks`; empty for the system's.
    var authorities = ""
    var keyTimes = KeyTimes()
    /// Timeout of a key download in milliseconds.
    var keyTimeout: Int64 = 5_000
    var user: IDTemplate?
    var session: IDTemplate?
    /// Maximum number of token ids kept against replay.
    var remembered = 65_536
    var stream = StreamSettings()
    var redis = RedisSettings()
    var logLevel = Logger.Level.info
}

extension OIDCConfiguration {
    static let defaultFile = "/etc/thumbcached/oidc.toml"

    static let settings: [Setting<OIDCConfiguration>] =
        [
            Setting("stream", \.stream.stream, .visibleName(of: "a key")),
            Setting("keep", \.stream.keep, .time(60_000...3650 * 86_400_000)),
            Setting("replicas", \.stream.replicas, SettingParser<Int>.count(0...100).optional()),
            Setting("wait", \.stream.wait, .time(1_000...600_000)),
            Setting("oidc.issuer", \.rules.issuer, .webURL),
            Setting("oidc.client-id", \.rules.clientID, .text.checked { $0.isEmpty ? "is empty" : nil }),
            Setting("oidc.jwks", \.jwks, .keyURL),
            Setting("oidc.user", \.user, .template),
            Setting("oidc.session", \.session, .template),
            Setting(
                "oidc.other-audiences", \.rules.otherAudiences, .list(of: .text, such: "[\"another-client\"]")),
            Setting(
                "oidc.algorithms", \.rules.algorithms,
                .list(of: .algorithm, such: "[\"RS256\"]").checked {
                    $0.isEmpty ? "is empty; every token would be rejected" : nil
                }),
            Setting("oidc.types", \.rules.types, .list(of: .text, such: "[\"logout+jwt\"]")),
            Setting("oidc.max-age", \.rules.longestAge, .time(1_000...86_400_000).seconds),
            Setting("oidc.require-exp", \.rules.requiresExpiry, .flag),
            Setting("oidc.clock-skew", \.rules.skew, .time(0...3_600_000).seconds),
            Setting("oidc.remembered", \.remembered, .count(1...10_000_000)),
            Setting("oidc.authorities", \.authorities, .path()),
            Setting("oidc.keys-pause", \.keyTimes.pause, .time(1_000...3_600_000)),
            Setting("oidc.keys-lifetime", \.keyTimes.lifetime, .time(1_000...30 * 86_400_000)),
            Setting("oidc.keys-timeout", \.keyTimeout, .time(100...60_000)),
            Setting("http.listen", \.listen, .listen),
            Setting("http.certificate", \.certificate, .path()),
            Setting("http.key", \.key, .path()),
            Setting("http.connections", \.limits.connections, .count(1...256)),
            Setting("http.body", \.limits.body, .size(1 << 10...1 << 20)),
            Setting("http.request-time", \.limits.requestTime, .time(100...600_000)),
            Setting("http.refusals", \.limits.refusals, .count(0...1_000_000)),
            Setting("log.level", \.logLevel, .word),
        ] + RedisSettings.settings()

    /// - Parameter file: nil for the default file, which may be absent.
    static func load(file: String?) throws(ConfigurationError) -> OIDCConfiguration {
        let path = file ?? defaultFile
        guard let text = try readConfiguration(path, mayBeMissing: file == nil) else { return OIDCConfiguration() }
        return try decode(text, file: path)
    }

    static func decode(_ text: String, file: String) throws(ConfigurationError) -> OIDCConfiguration {
        var configuration = OIDCConfiguration()
        var reader = SettingReader(settings: settings, manual: "fleet/docs/oidc.md")
        reader.read(text: text, into: &configuration)
        if reader.problems.isEmpty { configuration.checkConsistency(&reader) }
        guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
        return configuration
    }

    private func checkConsistency(_ reader: inout SettingReader<OIDCConfiguration>) {
        redis.checkConsistency(&reader)
        if certificate.isEmpty != key.isEmpty {
            reader.addProblem("http.certificate", "a certificate and its key belong together: set both or neither")
        }
        let needed = ["oidc.issuer", "oidc.client-id", "oidc.jwks", "oidc.user"]
        // Without any oidc key there is no provider, and requests get 501.
        guard reader.found.contains(where: { $0.hasPrefix("oidc.") }) else { return }
        for name in needed where !reader.found.contains(name) {
            reader.addProblem(name, "is missing: a provider is \(needed.joined(separator: ", "))")
        }
    }

    /// Whether a provider is configured.
    var hasProvider: Bool { !jwks.isEmpty }
}
