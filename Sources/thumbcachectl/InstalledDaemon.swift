import Glibc
import LinuxSupport
import Thumbcache

/// The daemon that `doctor` and `verify` examine, and the locations of its files.
struct InstalledDaemon {
    private static let configurationFile = "/etc/thumbcached/thumbcached.toml"
    static let serviceUser = "thumbcached"

    let environment: Environment
    let options: DaemonOptions
    let socket: String
    /// The configuration file of `--config`; nil for the daemon's default.
    let namedConfiguration: String?
    let configurationFile: String
    /// The settings in the file; nil if it cannot be read.
    let configuration: ConfigurationLines?
    /// The configuration file of thumbcached-http.
    let httpConfigurationFile: String

    init(
        _ environment: Environment, _ options: DaemonOptions, configuration: String?, httpConfiguration: String? = nil
    ) throws(Failure) {
        (self.environment, self.options, namedConfiguration) = (environment, options, configuration)
        httpConfigurationFile = httpConfiguration ?? "/etc/thumbcached/http.toml"
        socket = try environment.socket(options)
        configurationFile = configuration ?? Self.ownConfiguration(socket, environment) ?? Self.configurationFile
        do throws(PlainFileError) {
            self.configuration = ConfigurationLines(try readTextFile(configurationFile, limit: 1 << 20))
        } catch {
            // A missing default file is valid. `ConfigurationCheck` reports any other error.
            self.configuration = error.isMissing && configuration == nil ? ConfigurationLines("") : nil
        }
    }

    /// Returns the user's configuration file, which a user's own daemon reads instead of the machine's.
    private static func ownConfiguration(_ socket: String, _ environment: Environment) -> String? {
        guard socket != ThumbcacheSocket.ofMachine, geteuid() != 0 else { return nil }
        let file = own("XDG_CONFIG_HOME", "/.config", environment).map { "\($0)/thumbcached.toml" }
        return file.flatMap { access($0, F_OK) == 0 ? $0 : nil }
    }

    /// Whether this is the machine's daemon, not one that a user started.
    var isSystemDaemon: Bool { socket == ThumbcacheSocket.ofMachine }

    var reloadAdvice: String {
        if let named = namedConfiguration {
            return "correct \(named) (man thumbcached.toml), then start or reload the daemon that reads it"
        }
        return isSystemDaemon
            ? "correct it (man thumbcached.toml), then run systemctl reload thumbcached.service"
            : "correct it (man thumbcached.toml), then run systemctl --user reload thumbcached.service, "
                + "or send the daemon SIGHUP"
    }

    var startAdvice: String {
        isSystemDaemon
            ? "see systemctl status thumbcached.socket thumbcached.service"
            : "run systemctl --user start thumbcached.socket, or start thumbcached yourself"
    }

    var fetcherLog: String { isSystemDaemon ? "journalctl -u thumbcached-fetcher" : "the log of your daemon" }

    var accessAdvice: String { isSystemDaemon ? "run it as root" : "run it as the user that the daemon runs as" }

    /// The uid that the daemon runs as; nil if unknown.
    var owner: uid_t? {
        if isSystemDaemon { return getpwnam(Self.serviceUser)?.pointee.pw_uid }
        var status = stat()
        return stat(socket, &status) == 0 ? status.st_uid : nil
    }

    // The directories are those of docs/configuration.md, "Directories and the socket".
    var cache: String? {
        configuration?["storage.cache"]
            ?? (isSystemDaemon ? "/var/cache/thumbcached" : own("XDG_CACHE_HOME", "/.cache"))
    }

    var state: String? {
        configuration?["storage.state"]
            ?? (isSystemDaemon ? "/var/lib/thumbcached" : own("XDG_STATE_HOME", "/.local/state"))
    }

    var pending: String? {
        if let named = configuration?["sessions.pending-logouts"] { return named.isEmpty ? nil : named }
        return state.map { "\($0)-pending" }
    }

    var hasRuntimeKeys: Bool { configuration?["storage.keys"] == "runtime" }

    /// The directory that contains `keys` and `names.key`.
    var keyParent: String? {
        guard hasRuntimeKeys else { return state }
        if let named = configuration?["storage.runtime"] { return named }
        if isSystemDaemon { return "/run/thumbcached" }
        return environment.variable("XDG_RUNTIME_DIR").map { "\($0)/thumbcached" }
    }

    private func own(_ variable: String, _ fallback: String) -> String? { Self.own(variable, fallback, environment) }

    private static func own(_ variable: String, _ fallback: String, _ environment: Environment) -> String? {
        if let directory = environment.variable(variable), directory.hasPrefix("/") {
            return "\(directory)/thumbcached"
        }
        return environment.variable("HOME").map { "\($0)\(fallback)/thumbcached" }
    }

    /// Runs `--check-config` of a program. Returns its output, without the program's name.
    func checkConfiguration(
        _ program: String, _ arguments: [String]
    ) throws(SystemError) -> (isValid: Bool, lines: [String]) {
        let finished = try run(program, ["--check-config"] + arguments)
        let lines = finished.lines.map { line in
            line.hasPrefix("\(program): ") ? String(line.dropFirst(program.count + 2)) : line
        }
        return (finished.status == 0, lines)
    }

    /// Runs a program of this installation or in PATH. Throws ENOENT if it is missing.
    func run(_ program: String, _ arguments: [String]) throws(SystemError) -> Programs.Finished {
        let beside = "\(try Programs.ownDirectory())/\(program)"
        let found = access(beside, X_OK) == 0 ? beside : Programs.find(program, path: environment.variable("PATH"))
        guard let found else { throw SystemError("find \(program)", code: ENOENT) }
        // The child gets the address of the system bus and, for a user's own daemon, the user's directories. The C
        // locale keeps output in English, since it is parsed.
        let own = ["HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"]
        let names = (isSystemDaemon ? [] : own) + ["DBUS_SYSTEM_BUS_ADDRESS"]
        var variables = ["PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"]
        for name in names { variables[name] = environment.variable(name) }
        return try Programs.run(found, arguments, environment: variables)
    }
}

/// Keys and string values of a configuration file, found line by line without a TOML parser, to find the files that it
/// names. Only the daemon validates the configuration.
struct ConfigurationLines {
    private var values: [String: String] = [:]

    init(_ text: String) {
        var section = ""
        for line in text.split(whereSeparator: \.isNewline) {
            let line = Self.trimmed(line)
            if line.first == "[" {
                section = Self.name(line.dropFirst().prefix { $0 != "]" })
            } else if line.first != "#", let equals = line.firstIndex(of: "=") {
                let key = Self.name(line[..<equals])
                guard let value = Self.value(Self.trimmed(line[line.index(after: equals)...])) else { continue }
                values[section.isEmpty ? key : "\(section).\(key)"] = value
            }
        }
    }

    subscript(key: String) -> String? { values[key] }

    /// The non-empty values whose keys end with the suffix, sorted by key.
    func all(_ suffix: String) -> [(key: String, value: String)] {
        values.filter { $0.key.hasSuffix(suffix) && !$0.value.isEmpty }.map { ($0.key, $0.value) }
            .sorted { $0.0 < $1.0 }
    }

    private static func trimmed(_ text: Substring) -> Substring {
        var text = text.drop { $0 == " " || $0 == "\t" }
        while let last = text.last, last == " " || last == "\t" { text.removeLast() }
        return text
    }

    private static func name(_ text: Substring) -> String { String(text.filter { !" \t\"'".contains($0) }) }

    /// Nil for other values than quoted strings, and for strings with escapes.
    private static func value(_ text: Substring) -> String? {
        guard let quote = text.first, quote == "\"" || quote == "'" else { return nil }
        let inner = text.dropFirst()
        guard let end = inner.firstIndex(of: quote), quote == "'" || !inner[..<end].contains("\\") else { return nil }
        return String(inner[..<end])
    }
}
