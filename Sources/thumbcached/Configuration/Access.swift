import DaemonServer
import Glibc
import LinuxSupport
import ProgramSupport

extension AccessRule {
    mutating func formUnion(_ other: AccessRule) {
        uids.formUnion(other.uids)
        gids.formUnion(other.gids)
    }

    /// Resolves a name: `root`, `1000`, `@wheel` or `@10`.
    /// Returns a failure if the machine has no such account. Throws if the name is invalid.
    static func resolve(
        _ name: String, with accounts: AccountDirectory
    ) throws(SettingError) -> Result<AccessRule, SettingError> {
        let isGroup = name.hasPrefix("@")
        let bare = isGroup ? String(name.dropFirst()) : name
        guard !bare.isEmpty else {
            throw SettingError(
                "\(quoted(name)) is not a valid name: write a user, as in \"root\", or a group, as in \"@wheel\"")
        }
        let id: UInt32
        if bare.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }) {
            // The highest number means "no change" to chown(2), so no account can have it.
            guard let number = UInt32(bare), number < .max else {
                throw SettingError(
                    "\(quoted(name)) is not a valid \(isGroup ? "gid" : "uid"): valid values are 0 to 4294967294")
            }
            id = number
        } else if name == "root" {
            // A machine without /etc/passwd has root, too.
            id = 0
        } else {
            let found: UInt32?
            do throws(SystemError) {
                found = isGroup ? try accounts.gid(bare) : try accounts.uid(bare)
            } catch {
                return .failure(SettingError("\(quoted(bare)): cannot \(error)"))
            }
            guard let found else {
                return .failure(SettingError("unknown \(isGroup ? "group" : "user") \(quoted(bare))"))
            }
            id = found
        }
        return .success(isGroup ? AccessRule(gids: [id]) : AccessRule(uids: [id]))
    }
}

/// The lookups of accounts, which tests replace.
struct AccountDirectory: Sendable {
    /// Returns nil if there is no such user. Blocks during the name service's lookup.
    let uid: @Sendable (_ user: String) throws(SystemError) -> UInt32?
    let gid: @Sendable (_ group: String) throws(SystemError) -> UInt32?

    static let system = AccountDirectory(
        uid: { user throws(SystemError) in try AccountDatabase.user(user)?.uid },
        gid: { group throws(SystemError) in try AccountDatabase.group(group) })
}
