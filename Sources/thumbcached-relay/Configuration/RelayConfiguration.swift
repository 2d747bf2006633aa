import ConfigurationReading
import Glibc
import LinuxSupport
import Logging
import ThumbnailCache

/// What the relay goes by. docs/fleet.md has every key.
struct RelayConfiguration: Equatable, Sendable {
    /// By which the host is known in the fleet.
    var host = ""
    /// The directory of the position.
    var state = ""
    /// The daemon's.
    var socket = "/run/thumbcached/thumbcached.sock"
    var stream = "thumbcached:fleet"
    var onGap = GapPolicy.logoutAll
    var onOutage = GapPolicy.ignore
    /// Milliseconds, as all times here.
    var grace: Int64 = 3_600_000
    /// How often a host shows that it is there.
    var heartbeat: Int64 = 5_000
    /// For how long what is published stays in the stream, at least.
    var keep: Int64 = 7 * 86_400_000
    var redis = RedisSettings()
    var logLevel = Logger.Level.info
}

extension RelayConfiguration {
    static let defaultFile = "/etc/thumbcached/relay.toml"
    private static let maximumFileSize = 1 << 20

    private static let settings: [Setting<RelayConfiguration>] = [
        Setting("host", \.host, name("a host")),
        Setting("state", \.state, .path()),
        Setting("socket", \.socket, .path()),
        Setting("stream", \.stream, name("a key")),
        Setting("on-gap", \.onGap, .word),
        Setting("on-outage", \.onOutage, .word),
        Setting("grace", \.grace, .time(1_000...365 * 86_400_000)),
        Setting("heartbeat", \.heartbeat, .time(100...3_600_000)),
        Setting("keep", \.keep, .time(60_000...3650 * 86_400_000)),
        Setting("redis.address", \.redis.address, address(defaultPort: 6_379)),
        Setting(
            "redis.sentinels", \.redis.sentinels,
            .list(of: address(defaultPort: 26_379), such: "[\"one.example.org:26379\"]")),
        Setting("redis.master", \.redis.master, name("a master")),
        Setting("redis.user", \.redis.user, .text),
        Setting("redis.password-file", \.redis.password, .secretFile),
        Setting("redis.sentinel-user", \.redis.sentinelUser, .text),
        Setting("redis.sentinel-password-file", \.redis.sentinelPassword, .secretFile),
        Setting("redis.timeout", \.redis.timeout, .time(100...600_000)),
        Setting("redis.tls", \.redis.tls.isOn, .flag),
        Setting("redis.authorities", \.redis.tls.authorities, .path()),
        Setting("redis.certificate", \.redis.tls.certificate, .path()),
        Setting("redis.key", \.redis.tls.key, .path()),
        Setting("log.level", \.logLevel, .word),
    ]

    /// Of visible ASCII, which shows in tables and in keys as it is.
    private static func name(_ what: String) -> SettingKind<String> {
        SettingKind<String>.text.checked { name in
            let isRight = 1...255 ~= name.utf8.count && name.utf8.allSatisfy { 0x21...0x7E ~= $0 }
            return isRight
                ? nil : "\(quoted(name)) is no name of \(what): 1 to 255 visible ASCII characters without spaces"
        }
    }

    private static func address(defaultPort: Int) -> SettingKind<RedisAddress> {
        SettingKind<String>.text.map { text throws(SettingError) in
            guard let address = RedisAddress(text, defaultPort: defaultPort) else {
                let examples = "\"redis.example.org:\(defaultPort)\" or \"/run/redis/redis.sock\""
                throw SettingError("\(quoted(text)) is no address: write \(examples)")
            }
            return address
        }
    }

    /// - Parameters:
    ///   - file: nil for the default one, which need not exist.
    ///   - hostName: the machine's.
    static func load(
        file: String?, environment: [String: String], hostName: String
    ) throws(ConfigurationError) -> RelayConfiguration {
        let path = file ?? defaultFile
        let text: String
        do throws(PlainFileError) {
            text = try readTextFile(path, limit: maximumFileSize)
        } catch {
            guard error.isMissing, file == nil else {
                throw ConfigurationError(file: path, problems: [.init(key: nil, sentence: "\(error)")])
            }
            return try decode("", file: "", environment: environment, hostName: hostName)
        }
        return try decode(text, file: path, environment: environment, hostName: hostName)
    }

    static func decode(
        _ text: String, file: String, environment: [String: String], hostName: String
    ) throws(ConfigurationError) -> RelayConfiguration {
        var configuration = RelayConfiguration()
        configuration.host = hostName
        // systemd passes all directories in one variable: the first is ours.
        configuration.state = environment["STATE_DIRECTORY"]?.split(separator: ":").first.map(String.init) ?? ""
        let document: [String: TOMLNode]
        do throws(ConfigurationError.Problem) {
            document = try TOMLNode.parse(text)
        } catch {
            throw ConfigurationError(file: file, problems: [error])
        }
        var reader = SettingReader(settings: settings, manual: "docs/fleet.md")
        reader.read(document, into: &configuration)
        if reader.problems.isEmpty { configuration.complain(&reader) }
        guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
        return configuration
    }

    private func complain(_ reader: inout SettingReader<RelayConfiguration>) {
        if host.isEmpty { reader.complain("host", "the machine has no name: set it") }
        let tls = redis.tls
        if tls.certificate.isEmpty != tls.key.isEmpty {
            reader.complain("redis.certificate", "a certificate and its key belong together: set both or neither")
        }
        if !tls.isOn, !tls.authorities.isEmpty || !tls.certificate.isEmpty {
            reader.complain("redis.tls", "is off, and certificates are set: write redis.tls = true")
        }
        if redis.password == nil, !redis.user.isEmpty {
            reader.complain("redis.user", "has no password: set redis.password-file")
        }
        if redis.sentinelPassword == nil, !redis.sentinelUser.isEmpty {
            reader.complain("redis.sentinel-user", "has no password: set redis.sentinel-password-file")
        }
    }
}
