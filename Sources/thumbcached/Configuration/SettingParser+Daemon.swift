import DaemonServer
import LinuxSupport
import ProgramSupport

extension SettingParser<Configuration.Renderer.Place> {
    static var rendererPlace: Self {
        Self { node throws(SettingError) in
            if case .string("beside") = node { return .beside }
            let path = try SettingParser<String>.path(orNone: true).read(node)
            return path.isEmpty ? .nowhere : .program(path)
        }
    }
}

extension SettingParser<String> {
    static var socketPath: Self {
        path().checked { path in
            let (count, longest) = (path.utf8.count, UnixAddress.longestPath)
            return count <= longest ? nil : "is \(count) bytes long; the path of a Unix socket has at most \(longest)"
        }
    }
}

extension SettingParser<UInt32> {
    /// Permission bits, in quotes: TOML does not allow the number 0666, and 666 would be decimal.
    static var mode: Self {
        Self { node throws(SettingError) in
            guard case .string(let text) = node else {
                throw SettingError("is \(node.typeName); write the mode in quotes, as in \"0666\"")
            }
            guard (3...4).contains(text.utf8.count),
                text.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "7") ~= $0 }),
                let mode = UInt32(text, radix: 8), mode <= 0o777
            else {
                throw SettingError(
                    "\(quoted(text)) is not a valid mode; write three octal digits after a 0, as in \"0666\"")
            }
            return mode
        }
    }
}

extension SettingParser<AccessRule> {
    /// Names that must all be known: logouts of an admin whose name is unknown would be denied.
    static func admins(_ accounts: AccountDirectory) -> Self {
        let admin = SettingParser<String>.text.map { name throws(SettingError) in
            try AccessRule.resolve(name, with: accounts).get()
        }
        return SettingParser<[AccessRule]>.list(of: admin, such: "[\"root\", \"@wheel\"]").map {
            all throws(SettingError) in
            all.reduce(into: AccessRule()) { $0.formUnion($1) }
        }
    }
}

extension SettingParser<Configuration.Access.Observers> {
    /// Names of which unknown ones are ignored with a warning: missing metrics must not prevent a start.
    static func observers(_ accounts: AccountDirectory) -> Self {
        typealias Observers = Configuration.Access.Observers
        let observer = SettingParser<String>.text.map { name throws(SettingError) in
            try Observers(name, with: accounts)
        }
        return SettingParser<[Observers]>.list(of: observer, such: "[\"prometheus\", \"@monitoring\"]").map {
            all throws(SettingError) in
            all.reduce(into: Observers()) { sum, next in
                sum.rule.formUnion(next.rule)
                sum.unknown += next.unknown
            }
        }
    }
}

extension Configuration.Access.Observers {
    init(_ name: String, with accounts: AccountDirectory) throws(SettingError) {
        switch try AccessRule.resolve(name, with: accounts) {
        case .success(let rule): self.rule = rule
        case .failure(let reason): unknown = reason.flaws.map(\.sentence)
        }
    }

    /// The observers of a configuration that sets none. Accounts that do not exist are ignored without a warning.
    static func defaults(with accounts: AccountDirectory) throws(SettingError) -> Self {
        var observers = Self()
        for name in names { observers.rule.formUnion(try Self(name, with: accounts).rule) }
        return observers
    }
}
