import CacheCore
import DaemonServer
import LinuxSupport
import Logging
import ProgramSupport

extension Configuration {
    /// Every key outside of `[origins]`. What bounds others stands before them.
    static func settings(accounts: AccountDirectory) -> [Setting<Configuration>] {
        [
            Setting("threads", \.threads, .count(1...256)),

            Setting("socket.path", \.socket.path, socketPath.optional()),
            Setting("socket.mode", \.socket.mode, mode),

            Setting("storage.cache", \.storage.cache, .path()),
            Setting("storage.state", \.storage.state, .path()),
            Setting("storage.runtime", \.storage.runtime, SettingParser.path().optional()),
            Setting("storage.keys", \.storage.keys, .word),
            Setting("storage.quota", \.storage.quota, .size(1...Int.max)),
            Setting("storage.user-quota", \.storage.userQuota, .size(1...Int.max), [.atMost("storage.quota")]),

            Setting("memory.tier", \.memory.tier, .size(1...Int.max, zero: true)),

            Setting("renderer.path", \.renderer.path, rendererPlace),

            Setting("sessions.purge-on-boot", \.sessions.purgeOnBoot, .flag),
            Setting("sessions.pending-logouts", \.sessions.pendingLogouts, .path(orNone: true)),

            Setting("access.admins", \.access.admins, admins(accounts)),
            Setting("access.observers", \.access.observers, observers(accounts)),

            Setting("log.level", \.log.level, .word, isReloadable: true),
        ] + limits
    }

    /// All of `[limits]`; a reload takes over each.
    private static let limits: [Setting<Configuration>] = [
        limit("memory", \.limits.memory, .size(4 << 10...1 << 40)),
        limit("memory-per-uid", \.limits.memoryPerUID, .size(4 << 10...1 << 40), .atMost("limits.memory")),
        limit("input", \.limits.input, .size(4 << 10...2 << 30), .atMost("limits.memory-per-uid")),
        limit("output", \.limits.output, .size(4 << 10...2 << 30)),
        limit("image", \.limits.image, .size(1...1 << 30), .atMost("storage.user-quota"), .atMost("limits.input")),
        limit("token", \.limits.token, .size(1...1 << 20), .atMost("limits.input")),
        limit("dimension", \.limits.dimension, .count(1...65_536)),
        limit("pixels", \.limits.pixels, .count(1...4_000_000_000)),
        limit("renditions-per-profile", \.limits.renditionsPerProfile, .count(1...1_000)),
        limit("id", \.limits.id, .count(1...512)),
        limit("arguments", \.limits.arguments, .count(16...1_000_000)),
        limit("stall", \.limits.stall, .time(100...86_400_000)),
        limit("connections", \.limits.connections, .count(1...1_000_000)),
        limit("connections-per-uid", \.limits.connectionsPerUID, .count(1...1_000_000), .atMost("limits.connections")),
        limit("admin-connections", \.limits.adminConnections, .count(0...1_000_000), .below("limits.connections")),
        limit("users-per-uid", \.limits.usersPerUID, .count(1...10_000_000)),
        limit("sessions-per-user", \.limits.sessionsPerUser, .count(1...100_000)),
        limit("downloads", \.limits.downloads, .count(1...100_000)),
        limit("downloads-per-uid", \.limits.downloadsPerUID, .count(1...100_000), .atMost("limits.downloads")),
        limit("queue-per-uid", \.limits.queuePerUID, .count(0...1_000_000)),
        limit("subscriptions", \.limits.subscriptions, .count(0...1_000_000)),
        limit("negative-entries", \.limits.negativeEntries, .count(0...100_000_000)),
    ]

    private static func limit<Value: FixedWidthInteger & Sendable>(
        _ name: String, _ field: any WritableKeyPath<Configuration, Value> & Sendable, _ kind: SettingParser<Value>,
        _ bounds: SettingBound...
    ) -> Setting<Configuration> {
        Setting("limits." + name, field, kind, bounds, isReloadable: true)
    }

    private static var rendererPlace: SettingParser<Configuration.Renderer.Place> {
        SettingParser<Configuration.Renderer.Place> { node throws(SettingError) in
            if case .string("beside") = node { return .beside }
            let path = try SettingParser<String>.path(orNone: true).read(node)
            return path.isEmpty ? .nowhere : .program(path)
        }
    }

    private static var socketPath: SettingParser<String> {
        SettingParser.path().checked { path in
            let (count, longest) = (path.utf8.count, UnixAddress.longestPath)
            return count <= longest ? nil : "is \(count) bytes long; the path of a Unix socket can have \(longest)"
        }
    }

    /// Permission bits, in quotes: a bare 0666 is no TOML number, and a bare 666 would be a trap.
    private static var mode: SettingParser<UInt32> {
        SettingParser { node throws(SettingError) in
            guard case .string(let text) = node else {
                throw SettingError("is \(node.typeName); write the mode in quotes, as in \"0666\"")
            }
            guard (3...4).contains(text.utf8.count),
                text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "7") ~= $0 }),
                let mode = UInt32(text, radix: 8), mode <= 0o777
            else {
                throw SettingError("\(quoted(text)) is no mode: write three octal digits after a 0, as in \"0666\"")
            }
            return mode
        }
    }

    private static func admins(_ accounts: AccountDirectory) -> SettingParser<AccessRule> {
        let one = SettingParser<String>.text.map { name throws(SettingError) in
            try AccessRule.resolve(name, with: accounts).get()
        }
        return SettingParser<[AccessRule]>.list(of: one, such: "[\"root\", \"@wheel\"]").map {
            all throws(SettingError) in
            all.reduce(into: AccessRule()) { $0.formUnion($1) }
        }
    }

    /// Whom the machine does not know is nobody, and is told of in the log: figures that nobody reads are no reason to
    /// serve nobody. (An admin who is missing is one: his log-outs would be denied.)
    private static func observers(_ accounts: AccountDirectory) -> SettingParser<Configuration.Access.Observers> {
        typealias Observers = Configuration.Access.Observers
        let one = SettingParser<String>.text.map { name throws(SettingError) in
            switch try AccessRule.resolve(name, with: accounts) {
            case .success(let rule): Observers(rule: rule)
            case .failure(let reason): Observers(unknown: reason.flaws.map(\.sentence))
            }
        }
        return SettingParser<[Observers]>.list(of: one, such: "[\"prometheus\", \"@monitoring\"]").map {
            all throws(SettingError) in
            all.reduce(into: Observers()) { sum, next in
                sum.rule.formUnion(next.rule)
                sum.unknown += next.unknown
            }
        }
    }

    // MARK: At a reload

    /// The keys that differ from those of a running daemon and that a reload cannot take over, in their order.
    func changesNeedingRestart(from old: Configuration) -> [String] {
        Self.fixedSettings.filter { setting in
            var unchanged = self
            setting.copy(old, &unchanged)
            return unchanged != self
        }.map(\.name)
    }

    /// What a running daemon goes by after a reload: this configuration, with the values of `old` wherever only a
    /// restart takes over a change.
    func reloaded(over old: Configuration) -> Configuration {
        Self.fixedSettings.reduce(into: self) { $1.copy(old, &$0) }
    }

    /// For what looks at values only: no account is looked up.
    private static var fixedSettings: [Setting<Configuration>] {
        settings(accounts: .system).filter { !$0.isReloadable }
    }
}
