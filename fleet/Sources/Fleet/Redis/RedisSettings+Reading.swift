import ProgramSupport

/// A configuration with a `[redis]` table.
package protocol RedisConfigured {
    var redis: RedisSettings { get set }
}

/// The keys of the `[redis]` table.
extension RedisSettings {
    package static func settings<Root: RedisConfigured>() -> [Setting<Root>] {
        [
            Setting("redis.address", \.redis.address, address(defaultPort: 6_379)),
            Setting(
                "redis.sentinels", \.redis.sentinels,
                .list(of: address(defaultPort: 26_379), such: "[\"one.example.org:26379\"]")),
            Setting("redis.master", \.redis.master, .visibleName(of: "a master")),
            Setting("redis.user", \.redis.user, .text),
            Setting("redis.password-file", \.redis.password, .secretFile),
            Setting("redis.sentinel-user", \.redis.sentinelUser, .text),
            Setting("redis.sentinel-password-file", \.redis.sentinelPassword, .secretFile),
            Setting("redis.timeout", \.redis.timeout, .time(100...600_000)),
            Setting("redis.tls", \.redis.tls.isOn, .flag),
            Setting("redis.authorities", \.redis.tls.authorities, .path()),
            Setting("redis.certificate", \.redis.tls.certificate, .path()),
            Setting("redis.key", \.redis.tls.key, .path()),
        ]
    }

    private static func address(defaultPort: Int) -> SettingParser<RedisAddress> {
        SettingParser<String>.text.map { text throws(SettingError) in
            guard let address = RedisAddress(text, defaultPort: defaultPort) else {
                let examples = "\"redis.example.org:\(defaultPort)\" or \"/run/redis/redis.sock\""
                throw SettingError("\(quoted(text)) is not an address: write \(examples)")
            }
            return address
        }
    }

    /// Reports settings that contradict each other.
    package func checkConsistency<Root>(_ reader: inout SettingReader<Root>) {
        if tls.certificate.isEmpty != tls.key.isEmpty {
            reader.addProblem("redis.certificate", "a certificate and its key belong together: set both or neither")
        }
        if !tls.isOn, !tls.authorities.isEmpty || !tls.certificate.isEmpty {
            reader.addProblem("redis.tls", "is off, and certificates are set: write redis.tls = true")
        }
        if password == nil, !user.isEmpty {
            reader.addProblem("redis.user", "has no password: set redis.password-file")
        }
        if sentinelPassword == nil, !sentinelUser.isEmpty {
            reader.addProblem("redis.sentinel-user", "has no password: set redis.sentinel-password-file")
        }
    }
}

extension SettingParser<String> {
    /// 1 to 255 visible ASCII characters, safe in tables and keys.
    package static func visibleName(of what: String) -> SettingParser<String> {
        text.checked { name in
            let isRight = 1...255 ~= name.utf8.count && name.utf8.allSatisfy { 0x21...0x7E ~= $0 }
            return isRight
                ? nil
                : "\(quoted(name)) is not a valid name of \(what): 1 to 255 visible ASCII characters without spaces"
        }
    }
}
