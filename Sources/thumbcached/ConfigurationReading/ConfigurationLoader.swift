import LinuxSupport
import ThumbnailCache

/// Makes a ``Configuration`` of a file, the environment and the defaults, or says all that is wrong with them.
struct ConfigurationLoader: Sendable {
    /// Read when no file is named, if it exists.
    static let defaultFile = "/etc/thumbcached/thumbcached.toml"
    /// Bytes. No sensible configuration comes near; a device or a log named by mistake would.
    static let maximumFileSize = 1 << 20

    let environment: [String: String]
    /// The daemon's own.
    let uid: UInt32
    var accounts = AccountDirectory.system
    /// Throws for an origin that no download could be made from. What it throws is shown as it describes itself.
    let validateOrigin: @Sendable (Origin) throws -> Void

    init(
        environment: [String: String], uid: UInt32, accounts: AccountDirectory = .system,
        validateOrigin: @escaping @Sendable (Origin) throws -> Void
    ) {
        self.environment = environment
        self.uid = uid
        self.accounts = accounts
        self.validateOrigin = validateOrigin
    }

    /// - Parameter file: Nil for the default one, which need not exist.
    func load(file: String?) throws(ConfigurationError) -> Configuration {
        guard let text = try read(file ?? Self.defaultFile, mayBeMissing: file == nil) else {
            return try decode("", file: "")
        }
        return try decode(text, file: file ?? Self.defaultFile)
    }

    /// - Parameter file: What to call the text in errors.
    func decode(_ text: String, file: String) throws(ConfigurationError) -> Configuration {
        var configuration = Configuration()
        let standard = StandardDirectories(environment: environment, uid: uid)
        configuration.socket.path = standard.socket
        configuration.storage.cache = standard.cache ?? ""
        configuration.storage.state = standard.state ?? ""
        configuration.storage.runtime = standard.runtime

        let document: [String: TOMLNode]
        do throws(ConfigurationError.Problem) {
            document = try TOMLNode.parse(text)
        } catch {
            throw ConfigurationError(file: file, problems: [error])
        }
        var reader = SettingReader(Configuration.settings(accounts: accounts), ignoring: ["origins"])
        reader.read(document, into: &configuration)
        var problems = reader.problems
        if let origins = document["origins"] { problems += configuration.readOrigins(origins, validateOrigin) }
        if !reader.found.contains("sessions.pending-logouts"), !configuration.storage.state.isEmpty {
            // Beside the state directory and not in it: that one is the daemon's own, and this one root's.
            configuration.sessions.pendingLogouts = configuration.storage.state.trimmingSlashes + "-pending"
        }
        // Relations between values of which one is wrong already would only confuse.
        if problems.isEmpty {
            problems += configuration.settleRelations(found: reader.found)
            problems += missingPaths(configuration)
        }
        guard problems.isEmpty else { throw ConfigurationError(file: file, problems: problems) }
        return configuration
    }

    private func missingPaths(_ configuration: Configuration) -> [ConfigurationError.Problem] {
        var problems: [ConfigurationError.Problem] = []
        func require(_ path: String?, _ key: String, or variables: String) {
            guard path?.isEmpty ?? true else { return }
            let sentence = "nothing says where this is: set it, or \(variables) in the environment"
            problems.append(.init(key: key, sentence: sentence))
        }
        require(configuration.storage.cache, "storage.cache", or: "CACHE_DIRECTORY, XDG_CACHE_HOME or HOME")
        require(configuration.storage.state, "storage.state", or: "STATE_DIRECTORY, XDG_STATE_HOME or HOME")
        if configuration.storage.keys == .runtime {
            let variables = "RUNTIME_DIRECTORY or XDG_RUNTIME_DIR"
            require(configuration.storage.runtime, "storage.runtime", or: variables)
        }
        if environment["LISTEN_FDS"] == nil {
            require(configuration.socket.path, "socket.path", or: "RUNTIME_DIRECTORY or XDG_RUNTIME_DIR")
        }
        return problems
    }

    /// The text of a file; nil where it may be missing and is.
    private func read(_ file: String, mayBeMissing: Bool) throws(ConfigurationError) -> String? {
        let sentence: String
        do throws(PlainFileError) {
            return try readTextFile(file, limit: Self.maximumFileSize)
        } catch {
            switch error {
            case _ where error.isMissing && mayBeMissing: return nil
            case _ where error.isMissing: sentence = "does not exist"
            case .tooLarge:
                sentence = "is larger than \(ByteSize.format(Self.maximumFileSize)): this is no configuration"
            default: sentence = "\(error)"
            }
        }
        throw ConfigurationError(file: file, problems: [.init(key: nil, sentence: sentence)])
    }
}

extension String {
    /// Without slashes at its end.
    fileprivate var trimmingSlashes: String {
        String(self[..<(lastIndex { $0 != "/" }.map { index(after: $0) } ?? startIndex)])
    }
}
