import CLinux
import Glibc

/// The files, sockets and system calls that a process keeps. An attacker who takes over the process has no others.
///
/// Landlock, landlock(7), restricts files. A filter, seccomp(2), whose rules are in `Sources/CLinux/seccomp.c`,
/// restricts sockets and other system calls. Neither needs root, and not even root can undo them.
///
/// Open descriptors stay usable, so close those that the process must not keep before ``apply()``.
public struct Confinement: Hashable, Sendable {
    /// The sockets that socket(2) may create. Other families fail with EAFNOSUPPORT.
    public enum Sockets: Hashable, Sendable {
        /// AF_UNIX only. Landlock refuses TCP on sockets that are open already.
        case unix
        /// TCP and UDP over AF_INET and AF_INET6, and AF_NETLINK for the machine's addresses. listen(2) fails, and so
        /// does a socketpair(2) of SOCK_DGRAM, because one of such a pair can be connected to any Unix socket by its
        /// path. A datagram socket that is open already can be, too.
        case internet
    }

    /// Files, and directories beneath which everything may be read and listed. Missing ones are skipped.
    ///
    /// A rule applies to the existing file at the end of symbolic links. If a file such as /etc/resolv.conf is
    /// replaced, the new one is not covered; name its directory instead.
    public let readable: [String]
    /// Files, and directories beneath which files may be read, written, created, removed and renamed, also from one
    /// directory into another. Creating devices and executing programs is refused. They must exist.
    public let writable: [String]
    public let sockets: Sockets

    public init(readable: [String], writable: [String], sockets: Sockets) {
        (self.readable, self.writable, self.sockets) = (readable, writable, sockets)
    }

    /// Whether confinement is skipped: a ThreadSanitizer build must start a symbolizer.
    public static var isUnsupportedByThisBuild: Bool { clinux_starts_a_symbolizer() }

    /// Confines the calling thread and the threads that it starts afterwards. Call it before the process has others.
    /// Afterwards the process can start no programs, signal no other process, and call neither ``leaveRoot()`` nor
    /// ``becomeUndumpable()``.
    /// - Returns: a sentence for each feature that the kernel lacks, for the log. Everything else is in force.
    /// - Throws: if a call fails for another reason, with the call and the path. Restrictions up to that call remain.
    public func apply() throws(SystemError) -> [String] {
        guard clinux_gain_no_privileges() == 0 else { throw SystemError("prctl PR_SET_NO_NEW_PRIVS") }
        var missingFeatures = try restrictFiles()
        if clinux_refuse_calls(sockets == .internet ? 1 : 0, writable.isEmpty ? 1 : 0) != 0 {
            let code = errno
            guard code == EINVAL else { throw SystemError("prctl PR_SET_SECCOMP", code: code) }
            missingFeatures.append("The kernel has no seccomp filters: all system calls stay allowed.")
        }
        return missingFeatures
    }

    private func restrictFiles() throws(SystemError) -> [String] {
        let version = clinux_landlock_version()
        if version == -1 {
            let error = SystemError(call: "landlock_create_ruleset", code: errno)
            // EPERM: the filter of a container or unit refuses the call.
            guard [ENOSYS, EOPNOTSUPP, EPERM].contains(error.code) else { throw error }
            return ["The kernel has no Landlock (\(error)): only file modes restrict access to files."]
        }
        let rights = LandlockRights(version: version, sockets: sockets)
        if !writable.isEmpty && !rights.allowsRenames {
            return [
                "Version \(version) of the kernel's Landlock cannot allow renames between directories: only file modes "
                    + "restrict access to files."
            ]
        }
        let rules = clinux_landlock_create(rights.files, rights.tcp, rights.scopes)
        guard rules != -1 else { throw SystemError("landlock_create_ruleset") }
        defer { close(rules) }
        for path in readable {
            do throws(SystemError) {
                try allow(rights.reading, beneath: path, by: rules)
            } catch {
                guard error.code == ENOENT || error.code == ENOTDIR else { throw error }
            }
        }
        for path in writable { try allow(rights.writing, beneath: path, by: rules) }
        guard clinux_landlock_restrict(rules) == 0 else { throw SystemError("landlock_restrict_self") }
        return rights.missingFeatures
    }

    private func allow(_ rights: UInt64, beneath path: String, by rules: CInt) throws(SystemError) {
        // O_PATH needs no permission on the file, and does not open the device or pipe.
        let place = try File(path, CLINUX_O_PATH)
        var status = stat()
        guard fstat(place.descriptor, &status) == 0 else { throw SystemError("fstat \(path)") }
        let isDirectory = status.st_mode & S_IFMT == S_IFDIR
        let fitting = isDirectory ? rights : rights & LandlockRights.ofPlainFiles
        guard clinux_landlock_allow(rules, place.descriptor, fitting) == 0 else {
            throw SystemError("landlock_add_rule \(path)")
        }
    }
}

/// Prevents core files, and makes root the owner of the process's files in /proc, so that other processes of the same
/// account cannot read its memory: prctl(2), PR_SET_DUMPABLE. Applies to the whole process.
public func becomeUndumpable() throws(SystemError) {
    guard clinux_set_dumpable(0) == 0 else { throw SystemError("prctl PR_SET_DUMPABLE") }
}
