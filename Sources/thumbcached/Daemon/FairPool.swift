import CacheCore
import LinuxSupport

/// Threads that may block on the disk, divided between accounts by ``DeficitRoundRobin``.
///
/// By default, an account occupies at most half of the threads, so that another account finds a free one.
final class FairPool: BlockingPool {
    private struct Queue {
        var waiting = DeficitRoundRobin<UInt32, @Sendable () -> Void>(quantum: FairPool.quantum)
        /// Occupied threads of each account.
        var occupied: [UInt32: Int] = [:]
    }

    /// Nanoseconds.
    private static var quantum: Int { 100_000 }
    /// The least cost of a task: waking a thread and removing the next task from the queue.
    private static var leastCost: Int { 5_000 }

    private let accountOf: @Sendable (UInt32) -> UInt32
    private let workers = WorkerThreads(Queue())

    /// - Parameters:
    ///   - perAccount: the number of threads that an account may occupy; nil for half of them.
    ///   - accountOf: the account that is charged for a uid's work.
    ///   - now: nanoseconds of a monotonic clock.
    init(
        named name: String, threads count: Int, perAccount: Int? = nil,
        accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 },
        now: @escaping @Sendable () -> Int64
    ) throws {
        self.accountOf = accountOf
        let limit = perAccount ?? max(1, count / 2)
        try workers.start(named: name, count: count) { queue in
            let next = queue.waiting.popFirst { queue.occupied[$0, default: 0] < limit }
            guard let (account, work) = next else { return nil }
            queue.occupied[account, default: 0] += 1
            return {
                let start = now()
                work()
                let duration = Int(clamping: now() - start)
                return { queue in
                    // One quantum was charged when the work was added.
                    queue.waiting.charge(max(duration, Self.leastCost) - Self.quantum, to: account)
                    let left = queue.occupied[account, default: 1] - 1
                    queue.occupied[account] = left == 0 ? nil : left
                }
            }
        }
    }

    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        let account = accountOf(uid)
        if workers.add({ $0.waiting.append(work, of: account, cost: Self.quantum) }) { return }
        // The pool has stopped, and a caller may wait for the work. All caches are closed by then, so that the work
        // fails before it blocks on the disk.
        work()
    }

    /// Runs all submitted work and ends the threads. Work that is submitted later runs on the caller's thread.
    func stop() { workers.stop() }
}
