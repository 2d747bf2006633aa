import DaemonServer
import Glibc
import ImageFetcher
import Logging
import NIOConcurrencyHelpers
import ThumbnailCache

/// What the daemon knows before it is anything: its command line, its environment, and how to read its configuration.
struct DaemonSetup: Sendable {
    /// Nil for the default file.
    let file: String?
    /// Over the configuration's level.
    let logLevel: Logger.Level?
    let environment: [String: String]
    let loader: ConfigurationLoader

    init(file: String?, logLevel: Logger.Level?, environment: [String: String]) {
        self.file = file
        self.logLevel = logLevel
        self.environment = environment
        loader = ConfigurationLoader(environment: environment, uid: geteuid()) { origin in
            try CurlImageFetcher.validate(origin)
        }
    }

    func load() throws(ConfigurationError) -> Configuration {
        try loader.load(file: file)
    }

    /// What the daemon reads of its environment. Whatever else stands there may be a secret of others (I11, F79).
    private static var variables: [String] {
        [
            "CACHE_DIRECTORY", "STATE_DIRECTORY", "RUNTIME_DIRECTORY", "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME",
            "XDG_RUNTIME_DIR", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "WATCHDOG_PID",
            "WATCHDOG_USEC", KernelFacts.bootIDVariable,
        ]
    }

    /// The process's own.
    static func currentEnvironment() -> [String: String] {
        variables.reduce(into: [:]) { values, name in
            if let value = getenv(name) { values[name] = String(cString: value) }
        }
    }
}

/// The configuration as it is now, read at the start and replaced by a reload, and what the parts take of it.
final class LiveConfiguration: Sendable {
    /// Put together once for each configuration, since requests look at it.
    final class Snapshot: Sendable {
        let configuration: Configuration
        let cacheSettings: CacheSettings
        let serverLimits: ServerLimits
        let memoryLimits: MemoryBudget.Limits

        init(_ configuration: Configuration) {
            self.configuration = configuration
            cacheSettings = configuration.cacheSettings
            serverLimits = configuration.serverLimits
            memoryLimits = configuration.memoryLimits
        }
    }

    private let box: NIOLockedValueBox<Snapshot>

    init(_ configuration: Configuration) {
        box = NIOLockedValueBox(Snapshot(configuration))
    }

    var current: Snapshot { box.withLockedValue { $0 } }

    func replace(by configuration: Configuration) {
        let snapshot = Snapshot(configuration)
        box.withLockedValue { $0 = snapshot }
    }
}
