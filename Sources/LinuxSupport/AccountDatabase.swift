import Glibc

/// Users and groups as the name service knows them (nsswitch.conf(5)). Blocks during the lookup.
public enum AccountDatabase {
    /// Returns the ids of a user; nil if there is no such user.
    public static func user(_ name: String) throws(SystemError) -> (uid: uid_t, gid: gid_t)? {
        try search("look up user") { buffer, size in
            var entry = passwd()
            var found: UnsafeMutablePointer<passwd>?
            let code = getpwnam_r(name, &entry, buffer, size, &found)
            return (code, found.map { ($0.pointee.pw_uid, $0.pointee.pw_gid) })
        }
    }

    /// Returns the id of a group; nil if there is no such group.
    public static func group(_ name: String) throws(SystemError) -> gid_t? {
        try search("look up group") { buffer, size in
            var entry = Glibc.group()
            var found: UnsafeMutablePointer<Glibc.group>?
            let code = getgrnam_r(name, &entry, buffer, size, &found)
            return (code, found?.pointee.gr_gid)
        }
    }

    /// Repeats the call with a larger buffer while the entry does not fit: a group can have many members.
    private static func search<Entry>(
        _ action: String, _ call: (UnsafeMutablePointer<CChar>, _ size: Int) -> (code: Int32, entry: Entry?)
    ) throws(SystemError) -> Entry? {
        var size = 4096
        while true {
            let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: size)
            defer { buffer.deallocate() }
            let (code, entry) = call(buffer, size)
            switch code {
            // These mean "not found" too (getpwnam(3), section ERRORS).
            case 0, ENOENT, ESRCH, EBADF, EPERM: return entry
            case EINTR: continue
            case ERANGE where size < 16 << 20: size *= 4
            default: throw SystemError(action, code: code)
            }
        }
    }
}
