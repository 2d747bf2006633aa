import CacheCore
import DaemonServer
import DiskStore
import Glibc
import HelperProtocol
import LinuxSupport
import ThumbcacheProtocol

/// The source of METRICS and INFO. Each part declares its own metrics; this type only collects them. No value names a
/// user or a profile (I11).
struct DaemonMetrics: Sendable {
    let services: CacheServices
    let store: @Sendable () -> StoreStatistics
    let fetch: @Sendable () -> FetcherStatistics
    let origins: @Sendable () -> [String]
    let registry: PeerRegistry
    let latencies: Latencies
    /// Nanoseconds of ``Daemon/monotonicNanoseconds()``.
    let started: Int64
    /// Seconds since 1970.
    let startTime = time(nil)

    var uptimeSeconds: Int { Int((Daemon.monotonicNanoseconds() - started) / 1_000_000_000) }

    /// All metrics, in the order of METRICS.
    /// - Parameter figures: of all users.
    func all(_ figures: UserSessions.Figures) -> [Metric] {
        Metric.Section.allCases.flatMap { metrics($0, for: nil) { figures } }
    }

    /// - Parameters:
    ///   - peer: nil for METRICS. A peer that is no observer gets the values of its own account.
    ///   - figures: of the peer's users; of all users for METRICS and observers.
    func metrics(
        _ section: Metric.Section, for peer: Peer?, _ figures: () -> UserSessions.Figures
    ) -> [Metric] {
        let seesAll = peer?.isObserver ?? true
        let counters = services.counters
        switch section {
        case .server:
            let resident = Self.residentBytes()
            return [
                Metric(
                    "build_info", .gauge, unit: "1", "Always 1. The label is the daemon's version.",
                    [.init(1, labels: ["version": Version.current], visibility: .metrics)]),
                Metric(
                    "uptime_seconds", .gauge, unit: "seconds", "Time since the daemon's start.", uptimeSeconds,
                    .metrics),
                Metric(
                    "resident_memory_bytes", .gauge, unit: "bytes", "Resident memory of the daemon.",
                    resident, .metrics),
                Metric(
                    "process_start_time_seconds", .gauge, unit: "seconds", "Start time of the daemon, since 1970.",
                    startTime, .metrics),
                Metric(
                    "process_open_fds", .gauge, unit: "descriptors", "Open file descriptors of the daemon.",
                    Self.openDescriptors(), .metrics),
                Metric(
                    "process_resident_memory_bytes", .gauge, unit: "bytes",
                    "Resident memory of the daemon, under the name that all programs use.", resident, .metrics),
            ]
        case .clients: return registry.statistics.metrics
        case .memory: return [services.budget.metric(of: seesAll ? nil : peer?.uid)] + services.memory.metrics
        case .cache:
            return counters.metrics(in: .cache, seesAll: seesAll, replacing: [.memoryHits: figures().memoryHits])
                + services.writes.metrics + [latencies.metric]
        case .store:
            var statistics = store()
            if !seesAll { statistics.usage = figures().usage }
            return statistics.metrics
        case .fetch: return fetch().metrics(origins: origins()) + counters.metrics(in: .fetch, seesAll: seesAll)
        case .sessions: return figures().metrics + counters.metrics(in: .sessions, seesAll: seesAll)
        case .purge: return counters.metrics(in: .purge, seesAll: seesAll)
        }
    }

    /// Counts proc_pid_fd(5), which has a process's own descriptors even if it is not dumpable. 0 if /proc cannot be read.
    static func openDescriptors() -> Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        var count = 0
        while let entry = readdir(directory) {
            if entry.pointee.d_name.0 != CChar(UInt8(ascii: ".")) { count += 1 }
        }
        // Without the one that lists them.
        return count - 1
    }

    /// Reads proc_pid_statm(5). 0 if /proc cannot be read.
    static func residentBytes() -> Int {
        do throws(PlainFileError) {
            let figures = try readTextFile("/proc/self/statm", limit: 256).split(separator: " ")
            guard figures.count > 1, let pages = Int(figures[1]) else { return 0 }
            return pages * sysconf(Int32(_SC_PAGESIZE))
        } catch {
            return 0
        }
    }
}
