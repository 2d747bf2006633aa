import Glibc

/// Raises the soft limit of open files (RLIMIT_NOFILE) to `needed`, or as far as the hard limit permits.
/// - Returns: the limit in force; it may be lower than `needed`, and was not lowered.
public func raiseOpenFileLimit(to needed: Int) throws(SystemError) -> Int {
    let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    var limit = rlimit()
    guard getrlimit(resource, &limit) == 0 else { throw SystemError("read the limit of open files") }
    if limit.rlim_cur < rlim_t(needed), limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = min(rlim_t(needed), limit.rlim_max)
        guard setrlimit(resource, &limit) == 0 else { throw SystemError("raise the limit of open files") }
    }
    return Int(min(limit.rlim_cur, rlim_t(Int32.max)))
}
