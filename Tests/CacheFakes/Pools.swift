import CacheCore
import Foundation
import NIOConcurrencyHelpers

/// Runs work at once, on the caller's thread: a test then reads as one sequence.
public struct ImmediatePool: BlockingPool {
    public init() {}

    public func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        work()
    }
}

/// Keeps work until the test runs it, one piece at a time or all.
public final class GatedPool: BlockingPool {
    private let queue = NIOLockedValueBox<[@Sendable () -> Void]>([])

    public init() {}

    public func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void) {
        queue.withLockedValue { $0.append(work) }
    }

    /// How many pieces of work wait.
    public var count: Int { queue.withLockedValue { $0.count } }

    /// Runs the piece at `index` of those that wait, the oldest if none is named. False when there is none.
    @discardableResult
    public func runNext(at index: Int = 0) -> Bool {
        let work = queue.withLockedValue { $0.indices.contains(index) ? $0.remove(at: index) : nil }
        work?()
        return work != nil
    }

    /// Runs what waits and what comes of it, until nothing is left.
    public func runAll() {
        while runNext() {}
    }
}

/// Threads of its own that may block. They end when the pool goes.
public final class ThreadPool: BlockingPool {
    /// What the threads share with the pool; they must not keep the pool itself alive.
    private final class Queue: Sendable {
        private struct Work {
            var pieces: [@Sendable () -> Void] = []
            var isInvalidating = false
        }

        private let work = NIOLockedValueBox(Work())
        /// Whether a thread that looks now finds something: a piece of work, or the end.
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

        /// Blocks until there is something to do; nil at the end.
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
