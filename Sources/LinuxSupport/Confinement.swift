import CLinux
import Glibc

/// What a process keeps of its powers, for the day on which somebody breaks into it.
///
/// Files are kept by Landlock, landlock(7); sockets and all other system calls by a filter, seccomp(2), whose list is
/// in `Sources/CLinux/seccomp.c`. Neither needs root. Neither can be taken back, by root either.
///
/// What is open stays open: who confines a process closes first what it is not to keep.
public struct Confinement: Hashable, Sendable {
    /// What socket(2) makes. Any other family is refused with EAFNOSUPPORT.
    public enum Sockets: Hashable, Sendable {
        /// AF_UNIX alone, and no TCP by any other way.
        case unix
        /// TCP and UDP over AF_INET and AF_INET6, and AF_NETLINK for the machine's addresses; nothing listens.
        /// socketpair(2) makes pairs of SOCK_STREAM: one of a pair of SOCK_DGRAM could be connected to any Unix socket
        /// that has a path, and so could one that the process has from before.
        case internet
    }

    /// Files, and directories beneath which all may be read and listed. What does not exist is passed over.
    ///
    /// A rule holds for the file that is there now, behind symbolic links. A file that others replace, as
    /// /etc/resolv.conf, is lost with that; its directory is not.
    public let readable: [String]
    /// Files, and directories beneath which everything may be done with files, from one of them into another, too, but
    /// devices made, or programs run. They have to exist.
    public let writable: [String]
    public let sockets: Sockets

    public init(readable: [String], writable: [String], sockets: Sockets) {
        (self.readable, self.writable, self.sockets) = (readable, writable, sockets)
    }

    /// Whether the program was built with ThreadSanitizer, which starts another program to say what it has found.
    public static var isInTheWayOfThisBuild: Bool { clinux_starts_a_symbolizer() }

    /// Confines the calling thread, and whatever it starts from then on: for the whole process, before there is
    /// another thread. Whoever wants to be somebody else is so already (``leaveRoot()``), and whoever wants to be
    /// undumpable (``becomeUndumpable()``): both are refused afterwards, as are programs and signals to others.
    ///
    /// - Returns: what the kernel lacks for it, a sentence each, for the log. The rest is in force.
    /// - Throws: of the call that failed and the path, if one of them failed for another reason. What was in force by
    ///   then stays.
    public func apply() throws(SystemError) -> [String] {
        guard clinux_gain_no_privileges() == 0 else { throw SystemError("prctl PR_SET_NO_NEW_PRIVS") }
        var lacks = try restrictFiles()
        if clinux_refuse_calls(sockets == .internet ? 1 : 0, writable.isEmpty ? 1 : 0) != 0 {
            let code = errno
            guard code == EINVAL else { throw SystemError("prctl PR_SET_SECCOMP", code: code) }
            lacks.append("The kernel has no filter for system calls (seccomp): none of them is refused.")
        }
        return lacks
    }

    private func restrictFiles() throws(SystemError) -> [String] {
        let version = clinux_landlock_version()
        if version == -1 {
            let error = SystemError(call: "landlock_create_ruleset", code: errno)
            // Where a container or a unit does not let the call through, the process is as it was before Landlock.
            guard [ENOSYS, EOPNOTSUPP, EPERM].contains(error.code) else { throw error }
            return ["There is no Landlock (\(error)): files are kept by their modes alone."]
        }
        let rights = LandlockRights(version: version, sockets: sockets)
        if !writable.isEmpty && !rights.allowsRenames {
            return [
                "The kernel's Landlock is of version \(version) and would refuse all renames from one directory into "
                    + "another: files are kept by their modes alone."
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
        return rights.lacks
    }

    private func allow(_ rights: UInt64, beneath path: String, by rules: CInt) throws(SystemError) {
        // Opened for its place alone: neither its mode nor what is behind a device or a pipe is asked.
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

/// Makes the process unreadable for others of its account: no core file, and its files in /proc are root's. For the
/// whole process: prctl(2), PR_SET_DUMPABLE.
public func becomeUndumpable() throws(SystemError) {
    guard clinux_set_dumpable(0) == 0 else { throw SystemError("prctl PR_SET_DUMPABLE") }
}
