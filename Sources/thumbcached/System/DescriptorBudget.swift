import DaemonServer
import Glibc
import LinuxSupport
import Logging

/// Divides the process's descriptors, so that connections never take those that the disk and helpers need (I9, F15).
///
/// If the limit is too low, the daemon keeps fewer entry files and directories open, which only costs time. If that is
/// not enough, it accepts fewer connections and logs a warning.
struct DescriptorBudget: Equatable, Sendable {
    var entries: Int
    var directories: Int
    var connections: Int

    /// Entry files that the store keeps open if the limit permits. None with a memory tier, which has most images that
    /// are read again; opening an entry for a single read would cost more.
    static func entries(_ configuration: Configuration) -> Int { configuration.memory.tier == 0 ? 1024 : 0 }
    /// Directories that the store keeps open if the limit permits.
    static let directories = 1_024
    private static let minimumDirectories = 16
    /// Connections beside those reserved for admins.
    private static let minimumConnections = 8
    /// Descriptors of parts without a setting: standard streams, log, locks and roots of the store, event loops, a file
    /// and its directory for each disk thread, refused connections, and a reserve for the C library.
    static func fixed(threads: Int, diskThreads: Int) -> Int {
        64 + 4 * (threads + 1) + 3 * diskThreads + DaemonServer.maximumRefused
    }

    static func needed(_ configuration: Configuration, diskThreads: Int) -> Int {
        fixed(threads: configuration.threads, diskThreads: diskThreads) + entries(configuration) + directories
            + configuration.limits.server.connections
    }

    /// - Parameter limit: RLIMIT_NOFILE (getrlimit(2)).
    /// - Throws: if the limit is below the minimum.
    init(_ configuration: Configuration, limit: Int, diskThreads: Int) throws(DaemonError) {
        let limits = configuration.limits.server
        let fixed = Self.fixed(threads: configuration.threads, diskThreads: diskThreads)
        let minimum = min(limits.connections, limits.adminConnections + Self.minimumConnections)
        var rest = limit - fixed - Self.minimumDirectories - minimum
        guard rest >= 0 else {
            throw DaemonError(
                "the limit of open files is \(limit); this configuration needs at least "
                    + "\(limit - rest): raise LimitNOFILE= in the unit (ulimit -n in a shell), or lower "
                    + "limits.admin-connections or threads")
        }

        // Connections first, then directories: entry files get the rest.
        func allocate(_ wanted: Int) -> Int {
            let allocated = min(wanted, rest)
            rest -= allocated
            return allocated
        }
        connections = minimum + allocate(limits.connections - minimum)
        directories = Self.minimumDirectories + allocate(Self.directories - Self.minimumDirectories)
        entries = allocate(Self.entries(configuration))
    }

    func shortfalls(of configuration: Configuration) -> [String] {
        let wanted = configuration.limits.server.connections
        return wanted > connections ? ["limits.connections: \(connections) instead of \(wanted)"] : []
    }

    func applied(to configuration: Configuration) -> Configuration {
        var result = configuration
        result.limits.server.connections = connections
        result.limits.server.connectionsPerAccount = min(result.limits.server.connectionsPerAccount, connections)
        return result
    }

    /// Raises the limit of open files. If that is not enough, lowers the configuration and logs a warning.
    /// - Throws: if the limit is below the minimum.
    static func raiseLimitAndFit(
        _ configuration: Configuration, log: Logger
    ) throws -> (configuration: Configuration, budget: DescriptorBudget) {
        let needed = needed(configuration, diskThreads: Daemon.allDiskThreads)
        let allowed = try raiseOpenFileLimit(to: needed)
        let budget = try DescriptorBudget(configuration, limit: allowed, diskThreads: Daemon.allDiskThreads)
        let shortfalls = budget.shortfalls(of: configuration)
        if !shortfalls.isEmpty {
            log.warning(
                "limit of open files too low for the configuration; raise LimitNOFILE= in the unit",
                metadata: [
                    "limit": "\(allowed)", "needed": "\(needed)", "lowered": "\(shortfalls.joined(separator: "; "))",
                ])
        }
        return (budget.applied(to: configuration), budget)
    }
}
