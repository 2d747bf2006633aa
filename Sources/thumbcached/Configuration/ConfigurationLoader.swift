import DiskStore
import Glibc
import LinuxSupport
import ProgramSupport

/// Reads a ``Configuration`` from a file, the environment and the defaults, or throws all errors in them.
struct ConfigurationLoader: Sendable {
    /// The machine's file. Read if no file is named and it exists.
    static let defaultFile = "/etc/thumbcached/thumbcached.toml"

    let environment: [String: String]
    /// The daemon's uid.
    var uid = geteuid()
    var accounts = AccountDirectory.system

    func load(file: String?) throws(ConfigurationError) -> Configuration {
        for path in file.map({ [$0] }) ?? defaultFiles {
            guard let text = try readConfiguration(path, mayBeMissing: file == nil) else { continue }
            var configuration = try decode(text, file: path)
            configuration.file = path
            return configuration
        }
        return try decode("", file: "")
    }

    /// The user's file, then the machine's. Only the first that exists is read; an unreadable file is an error.
    var defaultFiles: [String] { [ownFile, Self.defaultFile].compactMap { $0 } }

    /// The file of the user who runs the daemon; nil for root and for services.
    var ownFile: String? { StandardDirectories(environment: environment, uid: uid).ownConfiguration }

    func decode(_ text: String, file: String) throws(ConfigurationError) -> Configuration {
        var configuration = Configuration()
        let standard = StandardDirectories(environment: environment, uid: uid)
        configuration.socket.path = standard.socket
        configuration.storage.cache = standard.cache ?? ""
        configuration.storage.state = standard.state ?? ""
        configuration.storage.runtime = standard.runtime

        var reader = SettingReader(settings: Configuration.settings(accounts: accounts), ignoring: "origins")
        let document = reader.read(text: text, into: &configuration)
        var ofOrigins = document["origins"].map { configuration.readOrigins($0) } ?? []
        if !reader.found.contains("sessions.pending-logouts"), !configuration.storage.state.isEmpty {
            // Next to the state directory, not in it: it belongs to root, the state directory to the daemon.
            var state = configuration.storage.state[...]
            while state.last == "/" { state.removeLast() }
            configuration.sessions.pendingLogouts = "\(state)-pending"
        }
        if !reader.found.contains("access.observers") {
            do throws(SettingError) {
                configuration.access.observers = try .defaults(with: accounts)
            } catch {
                for flaw in error.flaws { reader.addProblem("access.observers", flaw.sentence) }
            }
        }
        // Relations to an invalid value would produce misleading errors.
        if reader.problems.isEmpty, ofOrigins.isEmpty {
            reader.reconcile(&configuration)
            nameMissingPaths(configuration, &reader)
            ofOrigins += configuration.readFallbacks()
        }
        let problems = reader.problems + ofOrigins
        guard problems.isEmpty else { throw ConfigurationError(file: file, problems: problems) }
        return configuration
    }

    private func nameMissingPaths(_ configuration: Configuration, _ reader: inout SettingReader<Configuration>) {
        func require(_ path: String?, _ key: String, or variables: String) {
            guard path?.isEmpty ?? true else { return }
            reader.addProblem(key, "no default: set it, or \(variables) in the environment")
        }
        require(configuration.storage.cache, "storage.cache", or: "CACHE_DIRECTORY, XDG_CACHE_HOME or HOME")
        require(configuration.storage.state, "storage.state", or: "STATE_DIRECTORY, XDG_STATE_HOME or HOME")
        let variables = "RUNTIME_DIRECTORY or XDG_RUNTIME_DIR"
        if configuration.storage.keys == .runtime {
            require(configuration.storage.runtime, "storage.runtime", or: variables)
        }
        if !SocketActivation(environment: environment).isActive {
            require(configuration.socket.path, "socket.path", or: variables)
        }
    }
}
