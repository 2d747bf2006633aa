import CacheCore
import DiskStore
import HelperClient
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Feeds systemd's watchdog while all vital parts of the daemon make progress (F48).
///
/// At each interval every part gets a task. When the last vital part has run it, the watchdog is fed; otherwise systemd
/// restarts the daemon. Parts that are not vital are only logged.
struct Watchdog: Sendable {
    struct HealthCheck: Sendable {
        let name: String
        /// Whether the daemon is restarted if the part is stuck. Not for threads that wait for a disk: hits in memory
        /// are still served (I9), and a restarted daemon would wait for the same disk.
        let isVital: Bool
        /// Makes the part call the closure once.
        let start: @Sendable (@escaping @Sendable () -> Void) -> Void
    }

    private struct State {
        /// Indices of checks that have started and not completed.
        var pending: Set<Int> = []
        /// Indices of checks that were logged as stuck.
        var stuck: Set<Int> = []
        /// Whether the watchdog was fed in this interval.
        var isFed = false
        var timer: (any Timer)?
        var isStopped = false
    }

    let checks: [HealthCheck]
    /// Milliseconds between checks: half of systemd's timeout. Vital parts have the other half to respond.
    let pause: Int64
    let time: any Timekeeping
    /// Feeds the watchdog. Must not block.
    let feed: @Sendable () throws -> Void
    let log: Logger
    private let state = NIOLockedValueBox(State())

    /// The vital parts, and the threads that wait for the disk. Each check has the name of its threads.
    static func checks(
        loops: any EventLoopGroup, tasks: TaskThreads, fetcher: FetcherClient,
        pools: [(name: String, pool: FairPool)]
    ) -> [HealthCheck] {
        var checks = loops.makeIterator().enumerated().map { index, loop in
            HealthCheck(name: "event loop \(index)", isVital: true) { loop.execute($0) }
        }
        checks.append(
            HealthCheck(name: "tasks", isVital: true) { alive in
                Task(executorPreference: tasks) { alive() }
            })
        checks.append(HealthCheck(name: "downloads", isVital: true) { fetcher.callOnLoop($0) })
        return checks
            + pools.map { name, pool in
                HealthCheck(name: name, isVital: false) { pool.submit(for: 0, $0) }
            }
    }

    func start() {
        startChecks()
        wait()
    }

    func stop() {
        let timer = state.withLockedValue { state in
            state.isStopped = true
            return state.timer
        }
        timer?.cancel()
    }

    private func wait() {
        state.withLockedValue { state in
            guard !state.isStopped else { return }
            state.timer = time.after(milliseconds: max(1, pause)) { endInterval() }
        }
    }

    private func endInterval() {
        let (pending, before, isStopped) = state.withLockedValue { state in
            defer { state.stuck = state.pending }
            return (state.pending, state.stuck, state.isStopped)
        }
        if isStopped { return }
        for index in checks.indices { report(checks[index], pending.contains(index), before.contains(index)) }
        startChecks()
        wait()
    }

    private func report(_ check: HealthCheck, _ isStuck: Bool, _ wasStuck: Bool) {
        if isStuck && !wasStuck {
            let consequence = check.isVital ? "the watchdog is not fed" : "its requests wait"
            log.error("part of the daemon is stuck; \(consequence)", metadata: ["part": "\(check.name)"])
        } else if wasStuck && !isStuck {
            log.notice("part of the daemon is no longer stuck", metadata: ["part": "\(check.name)"])
        }
    }

    /// Starts the checks that are not pending, so that none accumulate in a part that is stuck.
    private func startChecks() {
        let started = state.withLockedValue { state in
            state.isFed = false
            let started = checks.indices.filter { !state.pending.contains($0) }
            state.pending.formUnion(started)
            return started
        }
        for index in started { checks[index].start { completed(index) } }
    }

    private func completed(_ index: Int) {
        let isDue = state.withLockedValue { state in
            state.pending.remove(index)
            let isWaiting = state.pending.contains { checks[$0].isVital }
            if state.isFed || state.isStopped || isWaiting { return false }
            state.isFed = true
            return true
        }
        if isDue { log.onFailure("systemd's watchdog not fed", .debug) { try feed() } }
    }
}
