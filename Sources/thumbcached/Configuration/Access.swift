import DaemonServer
import Glibc
import LinuxSupport
import ProgramSupport

extension AccessRule {
    mutating func formUnion(_ other: AccessRule) {
        uids.formUnion(other.uids)
        gids.formUnion(other.gids)
    }

    /// Resolves names: `root`, `1000`, `@wheel`, `@10`. They are resolved once, when the configuration is read.
    /// - Returns: the failure where the machine does not know whoever is named.
    /// - Throws: for what can be nobody's name.
    static func resolve(
        _ name: String, with accounts: AccountDirectory
    ) throws(SettingError) -> Result<AccessRule, SettingError> {
        let isGroup = name.hasPrefix("@")
        let bare = isGroup ? String(name.dropFirst()) : name
        guard !bare.isEmpty else {
            throw SettingError(
                "\(quoted(name)) names nobody: write a user, as in \"root\", or a group, as in \"@wheel\"")
        }
        let id: UInt32
        if bare.utf8.allSatisfy({ UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 }) {
            // The highest number means "no change" to chown and its kin, and is nobody's.
            guard let number = UInt32(bare), number < .max else {
                throw SettingError("\(quoted(name)) is no \(isGroup ? "gid" : "uid"): valid values are 0 to 4294967294")
            }
            id = number
        } else if name == "root" {
            // Also where there is no /etc/passwd to ask.
            id = 0
        } else {
            let found: UInt32?
            do throws(SystemError) {
                found = isGroup ? try accounts.gid(bare) : try accounts.uid(bare)
            } catch {
                return .failure(SettingError("\(quoted(bare)) could not be looked up: \(error)"))
            }
            guard let found else {
                return .failure(
                    SettingError("this machine knows no \(isGroup ? "group" : "user") \(quoted(bare))"))
            }
            id = found
        }
        return .success(isGroup ? AccessRule(gids: [id]) : AccessRule(uids: [id]))
    }
}

/// The machine's users and groups.
struct AccountDirectory: Sendable {
    /// Nil where there is no such user. Blocks on whatever the name service asks.
    let uid: @Sendable (_ user: String) throws(SystemError) -> UInt32?
    /// Nil where there is no such group.
    let gid: @Sendable (_ group: String) throws(SystemError) -> UInt32?

    /// What `getpwnam_r` and `getgrnam_r` say.
    static let system = AccountDirectory(
        uid: { user throws(SystemError) in
            try search("look up user") { buffer, size in
                var entry = passwd()
                var found: UnsafeMutablePointer<passwd>?
                let code = getpwnam_r(user, &entry, buffer, size, &found)
                return (code, found?.pointee.pw_uid)
            }
        },
        gid: { group throws(SystemError) in
            try search("look up group") { buffer, size in
                var entry = Glibc.group()
                var found: UnsafeMutablePointer<Glibc.group>?
                let code = getgrnam_r(group, &entry, buffer, size, &found)
                return (code, found?.pointee.gr_gid)
            }
        })

    /// Calls with a larger buffer each time that the entry does not fit; a group can have many members.
    private static func search(
        _ action: String, _ call: (UnsafeMutablePointer<CChar>, _ size: Int) -> (code: Int32, id: UInt32?)
    ) throws(SystemError) -> UInt32? {
        var size = 4096
        while true {
            let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: size)
            defer { buffer.deallocate() }
            let (code, id) = call(buffer, size)
            switch code {
            // These mean "not found" too (getpwnam(3), section ERRORS).
            case 0, ENOENT, ESRCH, EBADF, EPERM: return id
            case EINTR: continue
            case ERANGE where size < 16 << 20: size *= 4
            default: throw SystemError(action, code: code)
            }
        }
    }
}
