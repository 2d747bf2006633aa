import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import ThumbnailCache

/// Threads that may block on the disk, shared out between accounts by turns.
///
/// A turn is worth a tenth of a millisecond of a thread's time: who takes longer is passed over until the others have had as much. And no
/// account has more than half of the threads at once, however much it submits, so that whoever comes next finds one that is free.
final class FairPool: BlockingPool {
    private typealias Work = @Sendable () -> Void

    private struct State {
        var queue = FairQueue<UInt32, Work>(quantum: FairPool.turn)
        /// Threads that work, by the account that they work for.
        var working: [UInt32: Int] = [:]
        /// Threads that wait for work.
        var asleep = 0
        var isEnding = false
    }

    private enum Step {
        case work(account: UInt32, Work)
        case sleep
        case end
    }

    /// Nanoseconds.
    private static var turn: Int { 100_000 }
    /// What a piece costs at least: waking a thread, and looking for the next piece.
    private static var leastCost: Int { 5_000 }

    private let mostOfAccount: Int
    private let accountOf: @Sendable (UInt32) -> UInt32
    private let now: @Sendable () -> Int64
    private let wakeup = Semaphore()
    private let state = NIOLockedValueBox(State())
    private let threads = Threads()

    /// - Parameters:
    ///   - name: of the threads, as the system's tools show it; 15 characters at most.
    ///   - count: threads; an account has half of them at most.
    ///   - accountOf: the account that a uid's work counts for.
    ///   - now: nanoseconds of a clock that nobody sets.
    /// - Throws: when there is no thread to be had: pthread_create(3). Those that were started end then.
    init(
        named name: String, threads count: Int, accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 },
        now: @escaping @Sendable () -> Int64
    ) throws {
        mostOfAccount = max(1, count / 2)
        self.accountOf = accountOf
        self.now = now
        do {
            try threads.start(named: name, count: count) { self.work() }
        } catch {
            stop()
            throw error
        }
    }

    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        enum Way {
            case waits
            case wakes
            case comesLate
        }
        let account = accountOf(uid)
        let way: Way = state.withLockedValue { state in
            if state.isEnding { return .comesLate }
            state.queue.append(work, of: account, cost: Self.turn)
            guard state.asleep > 0 else { return .waits }
            state.asleep -= 1
            return .wakes
        }
        switch way {
        case .waits: break
        case .wakes: wakeup.signal()
        // Somebody may wait for it to end, and what it would touch has been closed.
        case .comesLate: work()
        }
    }

    /// Returns when all that was submitted is done and every thread has ended. What is submitted later is done by the caller.
    func stop() {
        let asleep = state.withLockedValue { state in
            state.isEnding = true
            defer { state.asleep = 0 }
            return state.asleep
        }
        for _ in 0..<asleep { wakeup.signal() }
        threads.join()
    }

    // MARK: The threads

    private func work() {
        while true {
            switch state.withLockedValue({ next(&$0) }) {
            case .work(let account, let work):
                let start = now()
                work()
                let duration = Int(clamping: now() - start)
                state.withLockedValue { state in
                    state.queue.charge(max(duration, Self.leastCost) - Self.turn, to: account)
                    let left = state.working[account, default: 1] - 1
                    state.working[account] = left == 0 ? nil : left
                }
            case .sleep: wakeup.wait()
            case .end: return
            }
        }
    }

    private func next(_ state: inout State) -> Step {
        if let (account, work) = state.queue.popFirst(mayHave: { state.working[$0, default: 0] < mostOfAccount }) {
            state.working[account, default: 0] += 1
            return .work(account: account, work)
        }
        // What is left belongs to accounts that have all that they may: the thread that comes back from one of them takes it.
        if state.isEnding { return .end }
        state.asleep += 1
        return .sleep
    }
}
