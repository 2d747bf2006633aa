import Fleet
import Glibc
import LinuxSupport
import Logging
import ProgramSupport

/// What the relay goes by. fleet/docs/fleet.md has every key.
struct RelayConfiguration: RedisConfigured, Equatable, Sendable {
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

    private static let settings: [Setting<RelayConfiguration>] =
        [
            Setting("host", \.host, .visibleName(of: "a host")),
            Setting("state", \.state, .path()),
            Setting("socket", \.socket, .path()),
            Setting("stream", \.stream, .visibleName(of: "a key")),
            Setting("on-gap", \.onGap, .word),
            Setting("on-outage", \.onOutage, .word),
            Setting("grace", \.grace, .time(1_000...365 * 86_400_000)),
            Setting("heartbeat", \.heartbeat, .time(100...3_600_000)),
            Setting("keep", \.keep, .time(60_000...3650 * 86_400_000)),
            Setting("log.level", \.logLevel, .word),
        ] + RedisSettings.settings()

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
        var reader = SettingReader(settings: settings, manual: "fleet/docs/fleet.md")
        reader.read(text: text, into: &configuration)
        if reader.problems.isEmpty { configuration.complain(&reader) }
        guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
        return configuration
    }

    private func complain(_ reader: inout SettingReader<RelayConfiguration>) {
        if host.isEmpty { reader.complain("host", "the machine has no name: set it") }
        redis.complain(&reader)
    }
}
