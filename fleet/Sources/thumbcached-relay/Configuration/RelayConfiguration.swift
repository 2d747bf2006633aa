import Fleet
import Glibc
import LinuxSupport
import Logging
import ProgramSupport

/// The relay's configuration; fleet/docs/fleet.md documents every key.
struct RelayConfiguration: RedisConfigured, Equatable, Sendable {
    /// The host's name in the table of hosts.
    var host = ""
    /// The directory of the position file.
    var state = ""
    /// The daemon's socket.
    var socket = "/run/thumbcached/thumbcached.sock"
    var stream = "thumbcached:fleet"
    var onGap = GapPolicy.logoutAll
    var onOutage = GapPolicy.ignore
    /// Milliseconds, like all times here.
    var grace: Int64 = 3_600_000
    /// Interval of heartbeats.
    var heartbeat: Int64 = 5_000
    /// Minimum retention of published entries.
    var keep: Int64 = 7 * 86_400_000
    var redis = RedisSettings()
    var logLevel = Logger.Level.info
}

extension RelayConfiguration {
    static let defaultFile = "/etc/thumbcached/relay.toml"

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
    ///   - file: nil for the default file, which may be absent.
    ///   - hostName: the machine's.
    static func load(
        file: String?, environment: [String: String], hostName: String
    ) throws(ConfigurationError) -> RelayConfiguration {
        let path = file ?? defaultFile
        guard let text = try readConfiguration(path, mayBeMissing: file == nil) else {
            return try decode("", file: "", environment: environment, hostName: hostName)
        }
        return try decode(text, file: path, environment: environment, hostName: hostName)
    }

    static func decode(
        _ text: String, file: String, environment: [String: String], hostName: String
    ) throws(ConfigurationError) -> RelayConfiguration {
        var configuration = RelayConfiguration()
        configuration.host = hostName
        // systemd passes all directories in one variable: the first is used.
        configuration.state = environment["STATE_DIRECTORY"]?.split(separator: ":").first.map(String.init) ?? ""
        var reader = SettingReader(settings: settings, manual: "fleet/docs/fleet.md")
        reader.read(text: text, into: &configuration)
        if reader.problems.isEmpty { configuration.checkConsistency(&reader) }
        guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
        return configuration
    }

    private func checkConsistency(_ reader: inout SettingReader<RelayConfiguration>) {
        if host.isEmpty { reader.addProblem("host", "the machine has no host name; set host") }
        redis.checkConsistency(&reader)
    }
}
