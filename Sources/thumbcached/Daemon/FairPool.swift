import CacheCore
import LinuxSupport

/// Threads that may block on the disk, shared out between accounts by turns.
///
/// A turn is worth a tenth of a millisecond of a thread's time: who takes longer is passed over until the others have
/// had as much. And no account has more than half of the threads at once, however much it submits, so that whoever
/// comes next finds one that is free.
final class FairPool: BlockingPool {
    private struct Lines {
        var waiting = FairQueue<UInt32, @Sendable () -> Void>(quantum: FairPool.turn)
        /// Threads that work, by the account that they work for.
        var working: [UInt32: Int] = [:]
    }

    /// Nanoseconds.
    private static var turn: Int { 100_000 }
    /// What a piece costs at least: waking a thread, and looking for the next piece.
    private static var leastCost: Int { 5_000 }

    private let accountOf: @Sendable (UInt32) -> UInt32
    private let workers = WorkerThreads(Lines())

    /// - Parameters:
    ///   - count: threads; an account has half of them at most.
    ///   - accountOf: the account that a uid's work counts for.
    ///   - now: nanoseconds of a clock that nobody sets.
    /// - Throws: what ``WorkerThreads/start(named:count:next:)`` throws.
    init(
        named name: String, threads count: Int, accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 },
        now: @escaping @Sendable () -> Int64
    ) throws {
        self.accountOf = accountOf
        let mostOfAccount = max(1, count / 2)
        try workers.start(named: name, count: count) { lines in
            let next = lines.waiting.popFirst { lines.working[$0, default: 0] < mostOfAccount }
            guard let (account, work) = next else { return nil }
            lines.working[account, default: 0] += 1
            return {
                let start = now()
                work()
                let duration = Int(clamping: now() - start)
                return { lines in
                    lines.waiting.charge(max(duration, Self.leastCost) - Self.turn, to: account)
                    let left = lines.working[account, default: 1] - 1
                    lines.working[account] = left == 0 ? nil : left
                }
            }
        }
    }

    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        let account = accountOf(uid)
        if workers.add({ $0.waiting.append(work, of: account, cost: Self.turn) }) { return }
        // Somebody may wait for it to end, and what it would touch has been closed.
        work()
    }

    /// Returns when all that was submitted is done and every thread has ended. What is submitted later is done by the
    /// caller.
    func stop() { workers.stop() }
}
