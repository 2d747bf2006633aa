import Logging
import ProgramSupport

/// The configuration; docs/http.md documents every key.
struct HTTPConfiguration: Equatable, Sendable {
    /// The daemon's socket; empty for the one that clients use by default.
    var socket = ""
    var figures = FiguresSettings()
    var images = ImageSettings()
    var logLevel = Logger.Level.info
    /// Valid values that are probably mistakes.
    private(set) var warnings: [ConfigurationError.Problem] = []

    /// The listener of metrics and the status page.
    struct FiguresSettings: Equatable, Sendable {
        /// nil for no listener, unless systemd passes a socket.
        var listen: ListenAddress?
        var hosts: [HostName] = []
    }
}

extension HTTPConfiguration {
    static let defaultFile = "/etc/thumbcached/http.toml"

    static let settings: [Setting<HTTPConfiguration>] = [
        Setting("socket", \.socket, .path(orNone: true)),
        Setting("figures.listen", \.figures.listen, .listener),
        Setting("figures.hosts", \.figures.hosts, .list(of: .host, such: "[\"metrics.example.org\"]")),
        Setting("images.listen", \.images.listen, .listener),
        Setting("images.hosts", \.images.hosts, .list(of: .host, such: "[\"avatars.example.org\"]")),
        Setting("images.user", \.images.user, .user),
        Setting("images.log-in", \.images.logIn, .flag),
        Setting("images.origin", \.images.origin, .text),
        Setting("images.per-user", \.images.perUser, .word),
        Setting("images.signing-key", \.images.signingKey, .path(orNone: true)),
        Setting("images.default", \.images.usualDefault, .word),
        Setting(
            "images.default-urls", \.images.defaultURLs,
            .list(of: .urlPrefix, such: "[\"https://static.example.org/avatars/\"]")),
        Setting("images.size-limit", \.images.sizeLimit, .count(1...4_096)),
        Setting("images.wait", \.images.wait, .time(100...60_000)),
        Setting("images.max-age", \.images.longestAge, .seconds),
        Setting("images.user-max-age", \.images.longestUserAge, .seconds),
        Setting("images.embedding", \.images.embedding, .word),
        Setting("images.connections", \.images.connections, .count(1...1_024)),
        Setting("images.memory", \.images.memory, .size(8 << 20...1 << 30)),
        Setting("log.level", \.logLevel, .word),
    ]

    /// - Parameter file: nil for the default file, which may be absent.
    static func load(file: String?) throws(ConfigurationError) -> HTTPConfiguration {
        let path = file ?? defaultFile
        guard let text = try readConfiguration(path, mayBeMissing: file == nil) else { return HTTPConfiguration() }
        return try decode(text, file: path)
    }

    static func decode(_ text: String, file: String) throws(ConfigurationError) -> HTTPConfiguration {
        var configuration = HTTPConfiguration()
        var reader = SettingReader(settings: settings, manual: "docs/http.md")
        reader.read(text: text, into: &configuration)
        if reader.problems.isEmpty, configuration.images.logIn, configuration.images.user.isEmpty {
            reader.addProblem("images.log-in", "needs a user: set images.user")
        }
        guard reader.problems.isEmpty else { throw ConfigurationError(file: file, problems: reader.problems) }
        configuration.warnings = reader.warnings + configuration.cautions
        return configuration
    }

    private var cautions: [ConfigurationError.Problem] {
        var cautions: [ConfigurationError.Problem] = []
        if images.listen != nil, !images.servesImages {
            cautions.append(
                .init(
                    key: "images.listen",
                    sentence: "serves no image; set images.user for /avatar/, or images.per-user for /u/"))
        }
        if images.perUser == .open, case .tcp? = images.listen {
            cautions.append(
                .init(
                    key: "images.per-user",
                    sentence: "is \"open\" with a TCP address, so that every account of this machine can read the "
                        + "images of all users; use \"signed\", or the path of a Unix socket"))
        }
        return cautions
    }
}

extension SettingParser<String> {
    /// The name of a user; `""` for none.
    static var user: Self {
        text.checked { name in
            if name == "*" { return "\"*\" stands for every user; name one" }
            return name.utf8.count <= 512 ? nil : "has more than 512 bytes"
        }
    }
}

extension SettingParser<URLPrefix> {
    static var urlPrefix: Self {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let prefix = URLPrefix(text) else {
                throw SettingError(
                    "\(quoted(text)) is not the beginning of a URL: write a scheme, a host and a path that ends with a "
                        + "slash, as in \"https://static.example.org/avatars/\"")
            }
            return prefix
        }
    }
}
