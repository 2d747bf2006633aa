import CFibers
import CacheCore
import DequeModule

/// Everything that can run next: jobs of tasks, work of pools, and work that waits at a step of the disk. One thread
/// runs all of it in an order that the dice decide.
final class Scheduler: TaskExecutor, @unchecked Sendable {
    // Unchecked: everything here runs on one thread.
    fileprivate enum Ready {
        case job(UnownedJob)
        case work(SimulatedPool)
        case fiber(Fiber)
    }

    private let dice: Dice
    private var ready: [Ready] = []
    private var idle: [Fiber] = []
    private var running: Fiber?
    private let hasFibers = fibers_are_supported()

    init(dice: Dice) { self.dice = dice }

    var isIdle: Bool { ready.isEmpty }

    func enqueue(_ job: consuming ExecutorJob) { ready.append(.job(UnownedJob(job))) }

    fileprivate func workAdded(to pool: SimulatedPool) { ready.append(.work(pool)) }

    /// Runs a piece of work to its end, or to its next wait.
    func runOne() {
        var index = dice.roll(ready.count)
        // A pool whose threads all wait begins nothing. Those threads are in `ready`, too.
        while case .work(let pool) = ready[index], pool.isFull { index = (index + 1) % ready.count }
        ready.swapAt(index, ready.count - 1)
        switch ready.removeLast() {
        case .job(let job):
            job.runSynchronously(on: asUnownedTaskExecutor())
        case .work(let pool):
            let work = pool.removeNext(dice)
            guard hasFibers else { return work() }
            let fiber = idle.popLast() ?? Fiber()
            fiber.begin(work, in: pool)
            run(fiber)
        case .fiber(let fiber):
            run(fiber)
        }
    }

    private func run(_ fiber: Fiber) {
        running = fiber
        let hasEnded = fiber.resume()
        running = nil
        if hasEnded { idle.append(fiber) } else { ready.append(.fiber(fiber)) }
    }

    /// Releases the stacks of idle threads. Work in queues that never runs may retain this scheduler.
    func releaseStacks() { idle = [] }

    /// Lets other work run first, if called from work of a pool. That work must hold no lock.
    func wait() {
        if running != nil { fiber_yield() }
    }
}

/// A pool whose threads are fibers.
final class SimulatedPool: BlockingPool, @unchecked Sendable {
    // Unchecked: see Scheduler.
    private unowned let scheduler: Scheduler
    private let threads: Int
    private var lines: [(uid: UInt32, work: Deque<@Sendable () -> Void>)] = []
    fileprivate var busy = 0

    init(threads: Int, _ scheduler: Scheduler) {
        self.threads = threads
        self.scheduler = scheduler
    }

    fileprivate var isFull: Bool { busy >= threads }

    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        if let index = lines.firstIndex(where: { $0.uid == uid }) {
            lines[index].work.append(work)
        } else {
            lines.append((uid, [work]))
        }
        scheduler.workAdded(to: self)
    }

    /// Within an account, work starts in the order of submission.
    fileprivate func removeNext(_ dice: Dice) -> @Sendable () -> Void {
        let index = dice.roll(lines.count)
        let work = lines[index].work.removeFirst()
        if lines[index].work.isEmpty {
            lines.swapAt(index, lines.count - 1)
            lines.removeLast()
        }
        return work
    }
}

/// A thread of a pool: work with a stack of its own, which can wait in the middle.
private final class Fiber {
    private var handle: OpaquePointer?
    private var work: (() -> Void)?
    private var pool: SimulatedPool?

    init() {
        let context = Unmanaged.passUnretained(self).toOpaque()
        handle = fiber_create({ Fiber.runForever($0) }, context)
        precondition(handle != nil, "no memory for a stack")
    }

    deinit { fiber_destroy(handle) }

    func begin(_ work: @escaping () -> Void, in pool: SimulatedPool) {
        pool.busy += 1
        (self.work, self.pool) = (work, pool)
    }

    /// Returns whether the work has ended.
    func resume() -> Bool {
        fiber_resume(handle)
        return work == nil
    }

    private static func runForever(_ context: UnsafeMutableRawPointer?) {
        guard let context else { return }
        let fiber = Unmanaged<Fiber>.fromOpaque(context)
        while true {
            // The stack of an idle fiber must retain nothing.
            fiber._withUnsafeGuaranteedRef { $0.runWork() }
            fiber_yield()
        }
    }

    private func runWork() {
        work?()
        pool?.busy -= 1
        (work, pool) = (nil, nil)
    }
}
