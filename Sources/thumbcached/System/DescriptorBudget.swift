import DaemonServer
import Glibc
import LinuxSupport
import Logging

/// How the descriptors that the process may have are shared out, so that one that is needed is never taken by a
/// connection (I9, F15).
///
/// Connections are refused before descriptors run out: what is left is for the disk, downloads and the store's own
/// files. Where the system allows too few for what is configured, the daemon keeps fewer directories open, then takes
/// fewer connections; and says so. The sockets of downloads are the fetcher's.
struct DescriptorBudget: Equatable, Sendable {
    var directories: Int
    var connections: Int

    /// Directories that the store keeps open when there is room.
    static let directories = 256
    private static let fewestDirectories = 16
    /// Besides the admins'.
    private static let fewestConnections = 8
    /// What everything takes that has no limit of its own: standard streams, log, locks and roots of the store, the
    /// event loops, that of downloads among them, one file and its directory for each thread that works on the disk,
    /// refused connections that linger, and some to spare for what the C library opens.
    static func fixed(threads: Int, diskThreads: Int) -> Int {
        64 + 4 * (threads + 1) + 3 * diskThreads + DaemonServer.refusedAtOnce
    }

    /// All that a configuration can take.
    static func needed(_ configuration: Configuration, diskThreads: Int) -> Int {
        fixed(threads: configuration.threads, diskThreads: diskThreads) + directories + configuration.limits.connections
    }

    /// - Parameter limit: descriptors that the process may have (getrlimit(2), RLIMIT_NOFILE).
    /// - Throws: when not even the least fits.
    init(_ configuration: Configuration, limit: Int, diskThreads: Int) throws(DaemonError) {
        let limits = configuration.limits
        let fixed = Self.fixed(threads: configuration.threads, diskThreads: diskThreads)
        let fewest = min(limits.connections, limits.adminConnections + Self.fewestConnections)
        var rest = limit - fixed - Self.fewestDirectories - fewest
        guard rest >= 0 else {
            throw DaemonError(
                "the process may have only \(limit) open files; with this configuration it needs at least "
                    + "\(limit - rest): raise LimitNOFILE= in the unit (ulimit -n in a shell), or lower "
                    + "limits.admin-connections or threads")
        }

        // In reverse order of sacrifice: what is left for the last is what the first did not take.
        func take(_ wanted: Int) -> Int {
            let taken = min(wanted, rest)
            rest -= taken
            return taken
        }
        connections = fewest + take(limits.connections - fewest)
        directories = Self.fewestDirectories + take(Self.directories - Self.fewestDirectories)
    }

    /// What of the configuration does not fit, with what it has become.
    func shortfalls(of configuration: Configuration) -> [String] {
        let wanted = configuration.limits.connections
        return wanted > connections ? ["limits.connections: \(connections) instead of \(wanted)"] : []
    }

    /// The configuration, with no more than there are descriptors for.
    func applied(to configuration: Configuration) -> Configuration {
        var result = configuration
        result.limits.connections = connections
        result.limits.connectionsPerUID = min(result.limits.connectionsPerUID, connections)
        return result
    }

    /// Sees to it that a configuration fits the process: raises the soft limit as far as it is needed and allowed, and
    /// where that is not enough lowers the configuration, with a warning.
    /// - Throws: when not even the least fits; ``SystemError`` when the system does not say.
    static func fit(
        _ configuration: Configuration, log: Logger
    ) throws -> (configuration: Configuration, budget: DescriptorBudget) {
        let needed = needed(configuration, diskThreads: Daemon.allDiskThreads)
        let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { throw SystemError("read the limit of open files") }
        if limit.rlim_cur < rlim_t(needed), limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = min(rlim_t(needed), limit.rlim_max)
            guard setrlimit(resource, &limit) == 0 else { throw SystemError("raise the limit of open files") }
        }
        let allowed = Int(min(limit.rlim_cur, rlim_t(Int32.max)))
        let budget = try DescriptorBudget(configuration, limit: allowed, diskThreads: Daemon.allDiskThreads)
        let shortfalls = budget.shortfalls(of: configuration)
        if !shortfalls.isEmpty {
            log.warning(
                "the process may have too few open files for its configuration; raise LimitNOFILE= in the unit",
                metadata: [
                    "limit": "\(allowed)", "needed": "\(needed)", "lowered": "\(shortfalls.joined(separator: "; "))",
                ])
        }
        return (budget.applied(to: configuration), budget)
    }
}
