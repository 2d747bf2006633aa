import Glibc
import LinuxSupport
import Logging

/// How many descriptors the process may have: getrlimit(2), RLIMIT_NOFILE.
enum DescriptorLimit {
    /// Sees to it that a configuration fits the limit: raises the soft limit as far as it is needed and allowed, and where
    /// that is not enough lowers the configuration, with a warning.
    /// - Throws: ``TooFewDescriptors``; ``SystemError`` when the system does not say.
    static func fit(
        _ configuration: Configuration, diskThreads: Int, log: Logger
    ) throws -> (configuration: Configuration, budget: DescriptorBudget) {
        let needed = DescriptorBudget.needed(configuration, diskThreads: diskThreads)
        let limit = try raise(to: needed)
        let budget = try DescriptorBudget(configuration, limit: limit, diskThreads: diskThreads)
        let shortfalls = budget.shortfalls(of: configuration)
        if !shortfalls.isEmpty {
            log.warning(
                "the process may have too few open files for its configuration; raise LimitNOFILE= in the unit",
                metadata: [
                    "limit": "\(limit)", "needed": "\(needed)", "lowered": "\(shortfalls.joined(separator: "; "))",
                ])
        }
        return (budget.applied(to: configuration), budget)
    }

    /// Raises the soft limit to `needed`, or as far towards it as the hard one allows. Never lowers it.
    /// - Returns: the soft limit that is in force then.
    private static func raise(to needed: Int) throws(SystemError) -> Int {
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { throw SystemError("read the limit of open files") }
        if limit.rlim_cur < rlim_t(needed), limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = min(rlim_t(needed), limit.rlim_max)
            guard setrlimit(resource, &limit) == 0 else { throw SystemError("raise the limit of open files") }
        }
        return Int(min(limit.rlim_cur, rlim_t(Int32.max)))
    }
}
