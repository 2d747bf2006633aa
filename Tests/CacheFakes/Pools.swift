import CacheCore
import Foundation
import NIOConcurrencyHelpers

/// Runs work on the caller's thread, so that a test reads as one sequence.
public struct ImmediatePool: BlockingPool {
    public init() {}

    public func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        work()
    }
}

/// Queues work until the test runs it.
public final class GatedPool: BlockingPool {
    private let queue = NIOLockedValueBox<[@Sendable () -> Void]>([])

    public init() {}

    public func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        queue.withLockedValue { $0.append(work) }
    }

    /// The number of queued pieces of work.
    public var count: Int { queue.withLockedValue { $0.count } }

    /// Runs the queued piece at `index`, by default the oldest. Returns false if there is none.
    @discardableResult
    public func runNext(at index: Int = 0) -> Bool {
        let work = queue.withLockedValue { $0.indices.contains(index) ? $0.remove(at: index) : nil }
        work?()
        return work != nil
    }

    /// Runs all queued work, including work that it submits.
    public func runAll() {
        while runNext() {}
    }
}

/// A pool with its own threads, which end when the pool is released.
public final class ThreadPool: BlockingPool {
    /// The state that the threads share with the pool; they must not retain the pool itself.
    private final class Queue: Sendable {
        private struct Work {
            var pieces: [@Sendable () -> Void] = []
            var isInvalidating = false
        }

        private let work = NIOLockedValueBox(Work())
        /// Whether `next()` returns at once: with work, or because the pool has ended.
        private let hasSomething = ConditionLock<Bool>(value: false)

        func append(_ piece: @escaping @Sendable () -> Void) {
            hasSomething.lock()
            work.withLockedValue { $0.pieces.append(piece) }
            hasSomething.unlock(withValue: true)
        }

        func end() {
            hasSomething.lock()
            work.withLockedValue { $0.isInvalidating = true }
            hasSomething.unlock(withValue: true)
        }

        /// Blocks until there is work; nil after `end()`.
        func next() -> (@Sendable () -> Void)? {
            hasSomething.lock(whenValue: true)
            let (piece, isMore) = work.withLockedValue { work in
                let piece = work.pieces.isEmpty ? nil : work.pieces.removeFirst()
                return (piece, work.isInvalidating || !work.pieces.isEmpty)
            }
            hasSomething.unlock(withValue: isMore)
            return piece
        }
    }

    private let queue = Queue()

    public init(threads: Int = 2) {
        for _ in 0..<threads {
            Thread.detachNewThread { [queue] in
                while let piece = queue.next() { piece() }
            }
        }
    }

    deinit { queue.end() }

    public func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        queue.append(work)
    }
}
