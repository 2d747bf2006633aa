import CacheCore
import DaemonServer
import DiskStore
import Logging
import ProgramSupport
import ThumbcacheProtocol

/// All settings of the daemon. The properties declare the defaults; ``settings(accounts:)`` declares keys and values;
/// `docs/configuration.md` explains each key. Sizes are in bytes, times in milliseconds, paths are absolute.
struct Configuration: Equatable, Sendable {
    /// The file that was read; nil if there was none.
    var file: String?
    /// Event loops.
    var threads = 1
    var socket = Socket()
    var storage = Storage()
    var memory = Memory()
    var renderer = Renderer()
    var sessions = Sessions()
    /// By name. A LOGIN without ORIGIN uses `default`. ``Origin/settings`` declares their keys.
    var origins: [String: Origin] = [:]
    var limits = Limits()
    var access = Access()
    var log = Log()
    /// Warnings about values, found while they were read.
    var cautions: [ConfigurationError.Problem] = []

    struct Socket: Equatable, Sendable {
        /// Nil if neither file nor environment has one. Then systemd must pass a socket.
        var path: String?
        /// Permission bits. Every account may connect, since the kernel reports the peer's uid.
        var mode: UInt32 = 0o666
    }

    struct Storage: Equatable, Sendable {
        var cache = ""
        /// Directory of logins and, with ``DiskStoreConfiguration/KeyStorage/disk``, of keys.
        var state = ""
        /// A directory that a reboot empties; nil if neither file nor environment has one.
        var runtime: String?
        var keys = DiskStoreConfiguration.KeyStorage.disk
        /// For all users together.
        var quota = 1 << 30
        var userQuota = 64 << 20
    }

    struct Memory: Equatable, Sendable {
        /// 0 disables the memory tier.
        var tier = 64 << 20
    }

    struct Renderer: Equatable, Sendable {
        /// Where the renderer is. A socket that systemd passes takes precedence.
        enum Place: Equatable, Sendable {
            /// In the daemon's directory, or in the `libexec` directory next to it.
            case beside
            case program(String)
            case nowhere
        }

        var path = Place.beside
    }

    struct Sessions: Equatable, Sendable {
        var purgeOnBoot = false
        /// Directory of pending-logout files; empty for none.
        var pendingLogouts = ""
    }

    struct Limits: Equatable, Sendable {
        var server = ServerLimits()
        var memory = MemoryBudget.Limits()
        /// Pixels of the longer side of an image.
        var dimension = 8192
        /// Width times height of an image that is rendered in another size.
        var pixels = 50_000_000
        var renditionsPerProfile = 8
        var usersPerUID = 10_000
        var sessionsPerUser = 64
        /// Concurrent downloads from all origins.
        var downloads = 256
        var downloadsPerAccount = 64
        /// Negative entries of one user.
        var negativeEntries = 100_000
    }

    struct Access: Equatable, Sendable {
        /// Accounts that may log out and purge users of every uid.
        var admins = AccessRule(uids: [0])
        /// Accounts that may read the metrics of all uids.
        var observers = Observers()

        struct Observers: Equatable, Sendable {
            /// Names of the default observers; a machine without thumbcached-http has no such account.
            static let names = ["thumbcached-http"]

            var rule = AccessRule()
            /// Reasons why names in the file are ignored.
            var unknown: [String] = []
        }
    }

    struct Log: Equatable, Sendable {
        var level = Logger.Level.info
    }
}

extension Configuration {
    /// Every key outside of `[origins]`. A setting that bounds others precedes them.
    static func settings(accounts: AccountDirectory) -> [Setting<Configuration>] {
        [
            Setting("threads", \.threads, .count(1...256)),

            Setting("socket.path", \.socket.path, SettingParser.socketPath.optional()),
            Setting("socket.mode", \.socket.mode, .mode),

            Setting("storage.cache", \.storage.cache, .path()),
            Setting("storage.state", \.storage.state, .path()),
            Setting("storage.runtime", \.storage.runtime, SettingParser.path().optional()),
            Setting("storage.keys", \.storage.keys, .word),
            Setting("storage.quota", \.storage.quota, .size(1...Int.max)),
            Setting("storage.user-quota", \.storage.userQuota, .size(1...Int.max), [.atMost("storage.quota")]),

            Setting("memory.tier", \.memory.tier, .size(1...Int.max, zero: true)),

            Setting("renderer.path", \.renderer.path, .rendererPlace),

            Setting("sessions.purge-on-boot", \.sessions.purgeOnBoot, .flag),
            Setting("sessions.pending-logouts", \.sessions.pendingLogouts, .path(orNone: true)),

            Setting("access.admins", \.access.admins, .admins(accounts)),
            Setting("access.observers", \.access.observers, .observers(accounts)),

            Setting("log.level", \.log.level, .word, isReloadable: true),
        ] + limitSettings
    }

    /// Every key of `[limits]`. A reload applies all of them.
    private static let limitSettings: [Setting<Configuration>] = [
        limit("memory", \.limits.memory.total, .size(4 << 10...1 << 40)),
        limit("memory-per-uid", \.limits.memory.perAccount, .size(4 << 10...1 << 40), .atMost("limits.memory")),
        limit(
            "input", \.limits.server.request.payloadBytes, .size(4 << 10...2 << 30), .atMost("limits.memory-per-uid")),
        limit("output", \.limits.server.output, .size(4 << 10...2 << 30)),
        limit(
            "image", \.limits.server.request.image, .size(1...1 << 30), .atMost("storage.user-quota"),
            .atMost("limits.input")),
        limit("token", \.limits.server.request.token, .size(1...1 << 20), .atMost("limits.input")),
        limit("dimension", \.limits.dimension, .count(1...65_536)),
        limit("pixels", \.limits.pixels, .count(1...4_000_000_000)),
        limit("renditions-per-profile", \.limits.renditionsPerProfile, .count(1...1_000)),
        limit("id", \.limits.server.request.id, .count(1...512)),
        limit("arguments", \.limits.server.request.arguments, .count(16...1_000_000)),
        limit("stall", \.limits.server.stall, .time(100...86_400_000)),
        limit("connections", \.limits.server.connections, .count(1...1_000_000)),
        limit(
            "connections-per-uid", \.limits.server.connectionsPerAccount, .count(1...1_000_000),
            .atMost("limits.connections")),
        limit(
            "admin-connections", \.limits.server.adminConnections, .count(0...1_000_000), .below("limits.connections")),
        limit("users-per-uid", \.limits.usersPerUID, .count(1...10_000_000)),
        limit("sessions-per-user", \.limits.sessionsPerUser, .count(1...100_000)),
        limit("downloads", \.limits.downloads, .count(1...100_000)),
        limit("downloads-per-uid", \.limits.downloadsPerAccount, .count(1...100_000), .atMost("limits.downloads")),
        limit("queue-per-uid", \.limits.server.queuePerAccount, .count(0...1_000_000)),
        limit("subscriptions", \.limits.server.subscriptions, .count(0...1_000_000)),
        limit("negative-entries", \.limits.negativeEntries, .count(0...100_000_000)),
    ]

    private static func limit<Value: FixedWidthInteger & Sendable>(
        _ name: String, _ property: any WritableKeyPath<Configuration, Value> & Sendable,
        _ parser: SettingParser<Value>, _ bounds: SettingBound...
    ) -> Setting<Configuration> {
        Setting("limits." + name, property, parser, bounds, isReloadable: true)
    }
}

extension Configuration {
    /// Keys that differ from a running daemon's and need a restart, in the order of the list.
    func changesNeedingRestart(from old: Configuration) -> [String] {
        Self.fixedSettings.filter { setting in
            var unchanged = self
            setting.copy(old, &unchanged)
            return unchanged != self
        }.map(\.name)
    }

    /// Returns this configuration with the values of `old` for all keys that need a restart.
    func reloaded(over old: Configuration) -> Configuration {
        Self.fixedSettings.reduce(into: self) { $1.copy(old, &$0) }
    }

    /// Only compares and copies values, so that no account is looked up.
    private static var fixedSettings: [Setting<Configuration>] {
        settings(accounts: .system).filter { !$0.isReloadable }
    }
}
