import Logging
import ThumbnailCache

extension Configuration {
    /// Every key outside of `[origins]`.
    static func settings(accounts: AccountDirectory) -> [Setting<Configuration>] {
        [
            Setting("threads", \.threads, .count(1...256)),

            Setting("socket.path", \.socket.path, socketPath.optional()),
            Setting("socket.mode", \.socket.mode, mode),

            Setting("storage.cache", \.storage.cache, .path),
            Setting("storage.state", \.storage.state, .path),
            Setting("storage.runtime", \.storage.runtime, SettingKind.path.optional()),
            Setting("storage.keys", \.storage.keys, .word(Storage.Keys.allCases.map { ($0.rawValue, $0) })),
            Setting("storage.quota", \.storage.quota, .size(atLeast: 1)),
            Setting("storage.user-quota", \.storage.userQuota, .size(atLeast: 1)),

            Setting("memory.tier", \.memory.tier, .size(atLeast: 1, zero: true)),

            Setting("sessions.purge-on-boot", \.sessions.purgeOnBoot, .flag),
            Setting("sessions.pending-logouts", \.sessions.pendingLogouts, pathOrNone),

            Setting("access.admins", \.access.admins, admins(accounts)),

            Setting(
                "log.level", \.log.level, .word(Logger.Level.allCases.map { ($0.rawValue, $0) }), isReloadable: true),
        ] + limits
    }

    /// All of `[limits]`; a reload takes over each.
    private static let limits: [Setting<Configuration>] = [
        limit("image", \.limits.image, .size(atLeast: 1, atMost: 1 << 30)),
        limit("dimension", \.limits.dimension, .count(1...65_536)),
        limit("id", \.limits.id, .count(1...512)),
        limit("arguments", \.limits.arguments, .count(16...1_000_000)),
        limit("input", \.limits.input, .size(atLeast: 4 << 10, atMost: 2 << 30)),
        limit("output", \.limits.output, .size(atLeast: 4 << 10, atMost: 2 << 30)),
        limit("memory-per-uid", \.limits.memoryPerUID, .size(atLeast: 4 << 10, atMost: 1 << 40)),
        limit("memory", \.limits.memory, .size(atLeast: 4 << 10, atMost: 1 << 40)),
        limit("stall", \.limits.stall, duration(atLeast: 100, atMost: 86_400_000)),
        limit("token", \.limits.token, .size(atLeast: 1, atMost: 1 << 20)),
        limit("connections", \.limits.connections, .count(1...1_000_000)),
        limit("connections-per-uid", \.limits.connectionsPerUID, .count(1...1_000_000)),
        limit("admin-connections", \.limits.adminConnections, .count(0...1_000_000)),
        limit("users-per-uid", \.limits.usersPerUID, .count(1...10_000_000)),
        limit("sessions-per-user", \.limits.sessionsPerUser, .count(1...100_000)),
        limit("downloads", \.limits.downloads, .count(1...100_000)),
        limit("downloads-per-uid", \.limits.downloadsPerUID, .count(1...100_000)),
        limit("queue-per-uid", \.limits.queuePerUID, .count(0...1_000_000)),
        limit("negative-entries", \.limits.negativeEntries, .count(0...100_000_000)),
    ]

    private static func limit<Value: Equatable & Sendable>(
        _ name: String, _ place: any WritableKeyPath<Configuration, Value> & Sendable, _ kind: SettingKind<Value>
    ) -> Setting<Configuration> {
        Setting("limits." + name, place, kind, isReloadable: true)
    }

    private static var socketPath: SettingKind<String> {
        SettingKind.path.checked { path in
            // struct sockaddr_un has room for 108 bytes, the closing NUL among them (unix(7)).
            path.utf8.count <= ListeningSocket.maximumPathLength
                ? nil
                : "is \(path.utf8.count) bytes long; the path of a Unix socket can have \(ListeningSocket.maximumPathLength)"
        }
    }

    /// An absolute path, or nothing.
    private static var pathOrNone: SettingKind<String> {
        SettingKind<String>.text.checked { path in
            path.isEmpty || path.utf8.first == UInt8(ascii: "/")
                ? nil : "\(quoted(path)) is not an absolute path: it must begin with /, or be \"\" for none"
        }
    }

    /// Permission bits, in quotes: a bare 0666 is no TOML number, and a bare 666 would be a trap.
    private static var mode: SettingKind<UInt32> {
        SettingKind<String> { node throws(SettingError) in
            guard case .string(let text) = node else {
                throw SettingError("is \(node.typeName); write the mode in quotes, as in \"0666\"")
            }
            return text
        }.map { text throws(SettingError) in
            guard (3...4).contains(text.utf8.count),
                text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "7") ~= $0 }),
                let mode = UInt32(text, radix: 8), mode <= 0o777
            else {
                throw SettingError("\(quoted(text)) is no mode: write three octal digits after a 0, as in \"0666\"")
            }
            return mode
        }
    }

    private static func duration(atLeast least: Int, atMost most: Int) -> SettingKind<Duration> {
        SettingKind<Int>.time(atLeast: least, atMost: most).map { value throws(SettingError) in .milliseconds(value) }
    }

    private static func admins(_ accounts: AccountDirectory) -> SettingKind<Admins> {
        let one = SettingKind<String>.text.map { name throws(SettingError) in try Admins.resolve(name, with: accounts) }
        return SettingKind<[Admins]>.list(of: one, such: "[\"root\", \"@wheel\"]").map { all throws(SettingError) in
            all.reduce(into: Admins()) { sum, next in
                sum.uids.formUnion(next.uids)
                sum.gids.formUnion(next.gids)
            }
        }
    }
}
