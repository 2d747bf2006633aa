import Glibc
import LinuxSupport
import Thumbcache

/// The daemon that `doctor` and `verify` examine, and the places of its files.
struct InstalledDaemon {
    private static let configurationFile = "/etc/thumbcached/thumbcached.toml"
    static let serviceUser = "thumbcached"

    let environment: Environment
    let options: DaemonOptions
    let socket: String
    /// nil for the one that the daemon reads by itself.
    let namedConfiguration: String?
    let configurationFile: String
    /// What its lines say; nil where it could not be read.
    let configuration: ConfigurationLines?

    init(_ environment: Environment, _ options: DaemonOptions, configuration: String?) throws(Failure) {
        (self.environment, self.options, namedConfiguration) = (environment, options, configuration)
        socket = try environment.socket(options)
        configurationFile = configuration ?? Self.ownConfiguration(socket, environment) ?? Self.configurationFile
        do throws(PlainFileError) {
            self.configuration = ConfigurationLines(try readTextFile(configurationFile, limit: 1 << 20))
        } catch {
            // That there is none is no fault; what else it is, the check of the configuration says.
            self.configuration = error.isMissing && configuration == nil ? ConfigurationLines("") : nil
        }
    }

    /// What somebody's own daemon reads before the machine's file; nil where there is none.
    private static func ownConfiguration(_ socket: String, _ environment: Environment) -> String? {
        guard socket != ThumbcacheSocket.ofMachine, geteuid() != 0 else { return nil }
        let file = own("XDG_CONFIG_HOME", "/.config", environment).map { "\($0)/thumbcached.toml" }
        return file.flatMap { access($0, F_OK) == 0 ? $0 : nil }
    }

    /// That of the whole machine, rather than somebody's own.
    var isMachines: Bool { socket == ThumbcacheSocket.ofMachine }

    // MARK: Advice

    /// How to have the daemon read its configuration again after a correction.
    var reloadAdvice: String {
        if let named = namedConfiguration {
            return "correct \(named) (man thumbcached.toml), then start or reload the daemon that reads it"
        }
        return isMachines
            ? "correct it (man thumbcached.toml), then run systemctl reload thumbcached.service"
            : "correct it (man thumbcached.toml), then run systemctl --user reload thumbcached.service, "
                + "or send the daemon SIGHUP"
    }

    var startAdvice: String {
        isMachines
            ? "see systemctl status thumbcached.socket thumbcached.service"
            : "run systemctl --user start thumbcached.socket, or start thumbcached yourself"
    }

    /// Where the fetcher's messages are.
    var fetcherLog: String { isMachines ? "journalctl -u thumbcached-fetcher" : "the log of your daemon" }

    /// As whom everything can be examined.
    var accessAdvice: String { isMachines ? "run it as root" : "run it as the user that the daemon runs as" }

    /// As whom the daemon runs; nil where nobody knows.
    var owner: uid_t? {
        if isMachines { return getpwnam(Self.serviceUser)?.pointee.pw_uid }
        var status = stat()
        return stat(socket, &status) == 0 ? status.st_uid : nil
    }

    // MARK: Directories (docs/configuration.md, "Directories and the socket")

    var cache: String? {
        configuration?["storage.cache"] ?? (isMachines ? "/var/cache/thumbcached" : own("XDG_CACHE_HOME", "/.cache"))
    }

    var state: String? {
        configuration?["storage.state"]
            ?? (isMachines ? "/var/lib/thumbcached" : own("XDG_STATE_HOME", "/.local/state"))
    }

    var pending: String? {
        if let named = configuration?["sessions.pending-logouts"] { return named.isEmpty ? nil : named }
        return state.map { "\($0)-pending" }
    }

    var hasRuntimeKeys: Bool { configuration?["storage.keys"] == "runtime" }

    /// Where keys and names.key lie.
    var keyParent: String? {
        guard hasRuntimeKeys else { return state }
        if let named = configuration?["storage.runtime"] { return named }
        if isMachines { return "/run/thumbcached" }
        return environment.variable("XDG_RUNTIME_DIR").map { "\($0)/thumbcached" }
    }

    private func own(_ variable: String, _ fallback: String) -> String? { Self.own(variable, fallback, environment) }

    private static func own(_ variable: String, _ fallback: String, _ environment: Environment) -> String? {
        if let directory = environment.variable(variable), directory.hasPrefix("/") {
            return "\(directory)/thumbcached"
        }
        return environment.variable("HOME").map { "\($0)\(fallback)/thumbcached" }
    }

    // MARK: Programs

    /// - Throws: ``SystemError``, also where it is not there (ENOENT).
    func run(_ program: String, _ arguments: [String]) throws(SystemError) -> Programs.Finished {
        let beside = "\(try Programs.ownDirectory())/\(program)"
        let found = access(beside, X_OK) == 0 ? beside : Programs.find(program, path: environment.variable("PATH"))
        guard let found else { throw SystemError("find \(program)", code: ENOENT) }
        // What names the system's bus, the own directories and no more. Words that are read are English ones. The
        // machine's daemon has no such directories, and reads no file in them.
        let own = ["HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"]
        let names = (isMachines ? [] : own) + ["DBUS_SYSTEM_BUS_ADDRESS"]
        var variables = ["PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"]
        for name in names { variables[name] = environment.variable(name) }
        return try Programs.run(found, arguments, environment: variables)
    }
}

/// Keys and values of a configuration, as far as a line says them by itself: `key = "text"` below its `[section]`.
///
/// Whether the file is good only the daemon knows. This is for finding the files that it names.
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

    /// Those whose keys end so, by key.
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

    /// A text without escapes.
    private static func value(_ text: Substring) -> String? {
        guard let quote = text.first, quote == "\"" || quote == "'" else { return nil }
        let inner = text.dropFirst()
        guard let end = inner.firstIndex(of: quote), quote == "'" || !inner[..<end].contains("\\") else { return nil }
        return String(inner[..<end])
    }
}
