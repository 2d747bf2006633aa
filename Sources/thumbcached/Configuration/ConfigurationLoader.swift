import DiskStore
import Glibc
import LinuxSupport
import ProgramSupport

/// Makes a ``Configuration`` of a file, the environment and the defaults, or says all that is wrong with them.
struct ConfigurationLoader: Sendable {
    /// The machine's. Read when no file is named, if it exists.
    static let defaultFile = "/etc/thumbcached/thumbcached.toml"
    /// Bytes. No sensible configuration comes near; a device or a log named by mistake would.
    static let maximumFileSize = 1 << 20

    let environment: [String: String]
    /// The daemon's own.
    var uid = geteuid()
    var accounts = AccountDirectory.system

    /// - Parameter file: Nil for the first of ``defaultFiles`` that exists; there need be none.
    func load(file: String?) throws(ConfigurationError) -> Configuration {
        for path in file.map({ [$0] }) ?? defaultFiles {
            guard let text = try read(path, mayBeMissing: file == nil) else { continue }
            var configuration = try decode(text, file: path)
            configuration.file = path
            return configuration
        }
        return try decode("", file: "")
    }

    /// The daemon's own user's file, then the machine's. One counts, as a whole: what it leaves out has its default. One
    /// that is there and cannot be read is an error, and no reason to take the other.
    var defaultFiles: [String] { [ownFile, Self.defaultFile].compactMap { $0 } }

    /// The file of a person who runs a daemon; nil for root and for services.
    var ownFile: String? { StandardDirectories(environment: environment, uid: uid).ownConfiguration }

    /// - Parameter file: What to call the text in errors.
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
            // Beside the state directory and not in it: that one is the daemon's own, and this one root's.
            var state = configuration.storage.state[...]
            while state.last == "/" { state.removeLast() }
            configuration.sessions.pendingLogouts = "\(state)-pending"
        }
        // Relations between values of which one is wrong already would only confuse.
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
            reader.complain(key, "nothing says where this is: set it, or \(variables) in the environment")
        }
        require(configuration.storage.cache, "storage.cache", or: "CACHE_DIRECTORY, XDG_CACHE_HOME or HOME")
        require(configuration.storage.state, "storage.state", or: "STATE_DIRECTORY, XDG_STATE_HOME or HOME")
        let variables = "RUNTIME_DIRECTORY or XDG_RUNTIME_DIR"
        if configuration.storage.keys == .runtime {
            require(configuration.storage.runtime, "storage.runtime", or: variables)
        }
        if environment["LISTEN_FDS"] == nil { require(configuration.socket.path, "socket.path", or: variables) }
    }

    /// The text of a file; nil where it may be missing and is.
    private func read(_ file: String, mayBeMissing: Bool) throws(ConfigurationError) -> String? {
        do throws(PlainFileError) {
            return try readTextFile(file, limit: Self.maximumFileSize)
        } catch {
            if error.isMissing && mayBeMissing { return nil }
            throw ConfigurationError(file: file, problems: [.init(key: nil, sentence: "\(error)")])
        }
    }
}

/// Where things go when the configuration does not say, by the environment.
///
/// First what systemd made for the service (systemd.exec(5), RuntimeDirectory= and its kin), then the calling user's
/// own directories (XDG Base Directory Specification 0.8).
struct StandardDirectories: Equatable, Sendable {
    var cache: String?
    var state: String?
    var runtime: String?
    /// The default of `socket.path`.
    var socket: String?
    /// A file of the daemon's own user. Nil for root, whose daemon is the machine's, and where one of the variables above
    /// is set: then the daemon is a service, and what its account can write or its environment may lead to must not
    /// decide who its admins and origins are.
    var ownConfiguration: String?

    /// What systemd passes to a service that it makes directories for.
    private static let ofServices = ["CACHE_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"]

    init(environment: [String: String], uid: UInt32) {
        // A relative path in these variables is to be ignored, says the specification; an empty one counts as unset.
        func directory(_ name: String) -> String? {
            // systemd passes all directories of one kind in one variable: the first is ours.
            environment[name]?.split(separator: ":", omittingEmptySubsequences: false).first
                .flatMap { $0.hasPrefix("/") ? String($0) : nil }
        }
        func own(_ variable: String, under fallback: String) -> String? {
            let base = directory(variable) ?? directory("HOME").map { "\($0)/\(fallback)" }
            return base.map { "\($0)/thumbcached" }
        }
        let isRoot = uid == 0
        let passed = directory("RUNTIME_DIRECTORY")
        // Without a runtime directory of the session there is nothing that a reboot is sure to empty, except root's
        // own. There the keys are one level below the socket: everybody must be able to reach that, and nobody these.
        let session = directory("XDG_RUNTIME_DIR").map { "\($0)/thumbcached" }

        cache = directory("CACHE_DIRECTORY") ?? own("XDG_CACHE_HOME", under: ".cache")
        state = directory("STATE_DIRECTORY") ?? own("XDG_STATE_HOME", under: ".local/state")
        runtime = passed ?? session ?? (isRoot ? "/run/thumbcached/keys" : nil)
        // Root's daemon serves the whole machine: it is to be found where clients look first, whoever started it.
        socket = (passed ?? (isRoot ? "/run/thumbcached" : session)).map { "\($0)/thumbcached.sock" }
        // Set to anything: who meant to make a service of it must not get a person's file by a slip.
        let isService = Self.ofServices.contains { environment[$0] != nil }
        ownConfiguration =
            isRoot || isService ? nil : own("XDG_CONFIG_HOME", under: ".config").map { "\($0)/thumbcached.toml" }
    }
}
