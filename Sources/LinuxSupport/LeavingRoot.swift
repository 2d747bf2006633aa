import CLinux
import Glibc

/// Gives up root for the user `thumbcached-fetcher`, or for uid and gid 65534 if that user does not exist. Drops all
/// supplementary groups. Does nothing unless the process runs as root. For a start by hand; systemd sets the user
/// itself. Call this before ``Confinement/apply()``, which rejects it. Affects all threads (setresuid(2), "C
/// library/kernel differences").
/// - Throws: the call that failed; EPERM if the process could become root again, for instance because capabilities
///   outlast the change (capabilities(7), SECBIT_NO_SETUID_FIXUP). The process must not continue then.
public func leaveRoot() throws(SystemError) {
    guard getuid() == 0 || geteuid() == 0 else { return }
    let user = try AccountDatabase.user("thumbcached-fetcher") ?? (uid: 65534, gid: 65534)
    guard setgroups(0, nil) == 0 else { throw SystemError("setgroups") }
    guard clinux_set_group(user.gid) == 0 else { throw SystemError("setresgid \(user.gid)") }
    guard clinux_set_user(user.uid) == 0 else { throw SystemError("setresuid \(user.uid)") }
    // Try to return: each of these calls succeeds only with privileges.
    let isBack = clinux_set_user(0) == 0 || seteuid(0) == 0 || clinux_set_group(0) == 0 || setgroups(0, nil) == 0
    guard !isBack, getuid() == user.uid, geteuid() == user.uid, getgid() == user.gid, user.uid != 0 else {
        throw SystemError("setresuid \(user.uid): there is a way back to root", code: EPERM)
    }
}
