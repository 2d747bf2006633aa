import CacheCore
import DiskStore
import HelperClient
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Feeds systemd's watchdog as long as all that must live does its own work (F48).
///
/// At every beat each check is asked for a sign of life, which it gives by the work that it is there for: an event loop
/// by running a task, as the one that speaks with the fetcher does. The watchdog is fed when the last vital check has
/// answered. While one does not answer, the watchdog is not fed, and systemd restarts the daemon. A check that is not
/// vital is only reported in the log.
struct Watchdog: Sendable {
    struct HealthCheck: Sendable {
        let name: String
        /// Whether a restart is right when it is stuck. It is not for what waits for a disk: memory hits are still
        /// served then (I9), and a restart would wait for the same disk.
        let isVital: Bool
        /// Has the check call back, once, by its own work.
        let ask: @Sendable (@escaping @Sendable () -> Void) -> Void
    }

    private struct State {
        /// Asked, and has not answered yet; by index.
        var unanswered: Set<Int> = []
        /// Did not answer in time, and that was told.
        var silent: Set<Int> = []
        /// Whether the watchdog was fed since the last beat.
        var isFed = false
        var timer: (any Timer)?
        var isStopped = false
    }

    let checks: [HealthCheck]
    /// Milliseconds between beats: half of what systemd waits, sd_watchdog_enabled(3). A vital check has the other half
    /// to answer.
    let pause: Int64
    let time: any Timekeeping
    /// Tells systemd that the daemon is alive. Must not block. Where it throws, the next one comes in time.
    let feed: @Sendable () throws -> Void
    let log: Logger
    private let state = NIOLockedValueBox(State())

    /// What has to live, and the threads that wait for the disk.
    static func checks(
        loops: any EventLoopGroup, tasks: TaskThreads, fetcher: FetcherClient,
        pools: [(name: String, pool: FairPool)]
    ) -> [HealthCheck] {
        var checks = loops.makeIterator().enumerated().map { index, loop in
            HealthCheck(name: "event loop \(index)", isVital: true) { loop.execute($0) }
        }
        checks.append(
            HealthCheck(name: "log-ins and log-outs", isVital: true) { alive in
                Task(executorPreference: tasks) { alive() }
            })
        checks.append(HealthCheck(name: "downloads", isVital: true) { fetcher.whenAlive($0) })
        return checks
            + pools.map { name, pool in
                HealthCheck(name: "disk of \(name)", isVital: false) { pool.submit(for: 0, $0) }
            }
    }

    /// Begins to ask. Called once.
    func start() {
        ask()
        wait()
    }

    /// Ends the asking; systemd is not fed any more.
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
            state.timer = time.after(milliseconds: max(1, pause)) { beat() }
        }
    }

    private func beat() {
        let (unanswered, before, isStopped) = state.withLockedValue { state in
            defer { state.silent = state.unanswered }
            return (state.unanswered, state.silent, state.isStopped)
        }
        if isStopped { return }
        for index in checks.indices { tell(checks[index], unanswered.contains(index), before.contains(index)) }
        ask()
        wait()
    }

    private func tell(_ check: HealthCheck, _ isSilent: Bool, _ wasSilent: Bool) {
        if isSilent && !wasSilent {
            let consequence = check.isVital ? "the watchdog is not fed" : "what waits for it waits on"
            log.error("a part of the daemon is stuck; \(consequence)", metadata: ["part": "\(check.name)"])
        } else if wasSilent && !isSilent {
            log.notice("a part of the daemon that was stuck goes on", metadata: ["part": "\(check.name)"])
        }
    }

    /// Asks whoever does not owe an answer already, so that nothing heaps up at what is stuck.
    private func ask() {
        let asked = state.withLockedValue { state in
            state.isFed = false
            let asked = checks.indices.filter { !state.unanswered.contains($0) }
            state.unanswered.formUnion(asked)
            return asked
        }
        for index in asked { checks[index].ask { answered(index) } }
    }

    private func answered(_ index: Int) {
        let isDue = state.withLockedValue { state in
            state.unanswered.remove(index)
            let isWaiting = state.unanswered.contains { checks[$0].isVital }
            if state.isFed || state.isStopped || isWaiting { return false }
            state.isFed = true
            return true
        }
        if isDue { log.attempt("systemd's watchdog could not be fed", .debug) { try feed() } }
    }
}
