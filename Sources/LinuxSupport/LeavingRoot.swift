import CLinux
import Glibc

/// Where the process is root, it becomes somebody who owns nothing, and keeps no supplementary groups: the user
/// `thumbcached-fetcher` if there is one, else uid and gid 65534. It does nothing for anybody else.
///
/// For whoever started it by hand as root; systemd has done so before. To be called before ``Confinement/apply()``,
/// which refuses it, and on all threads at once: setresuid(2), "C library/kernel differences".
///
/// - Throws: of the call that failed, and EPERM if there is a way back, as capabilities are that outlast the change
///   (capabilities(7), SECBIT_NO_SETUID_FIXUP). The process is not to go on then.
public func leaveRoot() throws(SystemError) {
    guard getuid() == 0 || geteuid() == 0 else { return }
    let user = try ids(of: "thumbcached-fetcher") ?? (uid: 65534, gid: 65534)
    guard setgroups(0, nil) == 0 else { throw SystemError("setgroups") }
    guard clinux_set_group(user.gid) == 0 else { throw SystemError("setresgid \(user.gid)") }
    guard clinux_set_user(user.uid) == 0 else { throw SystemError("setresuid \(user.uid)") }
    // Asked of the kernel, not taken for granted: each call is one that only a privileged process can make.
    let isBack = clinux_set_user(0) == 0 || seteuid(0) == 0 || clinux_set_group(0) == 0 || setgroups(0, nil) == 0
    guard !isBack, getuid() == user.uid, geteuid() == user.uid, getgid() == user.gid, user.uid != 0 else {
        throw SystemError("setresuid \(user.uid): there is a way back to root", code: EPERM)
    }
}

/// Those of a user in the passwd; nil if there is no such user.
private func ids(of user: String) throws(SystemError) -> (uid: uid_t, gid: gid_t)? {
    // An entry longer than this is none that anybody made for a service: getpwnam_r(3) then says ERANGE.
    var buffer = [CChar](repeating: 0, count: 64 << 10)
    var entry = passwd()
    var found: UnsafeMutablePointer<passwd>?
    let code = getpwnam_r(user, &entry, &buffer, buffer.count, &found)
    if found != nil { return (entry.pw_uid, entry.pw_gid) }
    // These mean "not found" too (getpwnam(3), section ERRORS).
    guard [0, ENOENT, ESRCH, EBADF, EPERM].contains(code) else { throw SystemError("getpwnam_r \(user)", code: code) }
    return nil
}
