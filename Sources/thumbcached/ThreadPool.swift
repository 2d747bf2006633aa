import DequeModule
import Dispatch
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import ThumbnailCache

/// Threads that may block on the disk.
///
/// A piece of work wakes one thread at most. swift-nio's pool wakes all that have nothing to do, for one of them to find it: with eight
/// threads ten system calls for each image that was downloaded, and a quarter of the time.
final class ThreadPool: BlockingPool {
    private struct State {
        var waiting: Deque<@Sendable () -> Void> = []
        var threads: Int
        var isStopped = false
        var whenStopped: [CheckedContinuation<Void, Never>] = []
    }

    private let state: NIOLockedValueBox<State>
    /// Counts what waits.
    private let work = DispatchSemaphore(value: 0)

    /// - Parameter name: what the system's tools show; 15 characters at most.
    /// - Throws: ``IOError`` if there is no thread to be had; those that there are end with the pool then.
    init(threads count: Int, named name: String) throws {
        state = NIOLockedValueBox(State(threads: 0))
        for _ in 0..<count {
            state.withLockedValue { $0.threads += 1 }
            let code = startThread(named: name) { [self] in run() }
            guard code == 0 else {
                state.withLockedValue { $0.threads -= 1 }
                endThreads()
                throw IOError(errnoCode: code, reason: "pthread_create: thread \(name)")
            }
        }
    }

    /// Work that comes after the stop is done before this returns: somebody waits for it to end, and what it would touch has been
    /// closed by then.
    func submit(_ work: @escaping @Sendable () -> Void) {
        let isTaken = state.withLockedValue { state in
            if !state.isStopped { state.waiting.append(work) }
            return !state.isStopped
        }
        if isTaken { self.work.signal() } else { work() }
    }

    private func run() {
        while true {
            work.wait()
            guard let next = state.withLockedValue({ $0.waiting.popFirst() }) else { break }
            next()
        }
        let stopped = state.withLockedValue { state -> [CheckedContinuation<Void, Never>] in
            state.threads -= 1
            guard state.threads == 0 else { return [] }
            defer { state.whenStopped = [] }
            return state.whenStopped
        }
        for continuation in stopped { continuation.resume() }
    }

    /// Returns when all that was submitted before is done and the threads have ended.
    func stop() async {
        endThreads()
        await withCheckedContinuation { continuation in
            let isOver = state.withLockedValue { state in
                if state.threads > 0 { state.whenStopped.append(continuation) }
                return state.threads == 0
            }
            if isOver { continuation.resume() }
        }
    }

    /// Each thread that is woken once more than there is work finds none, and ends.
    private func endThreads() {
        let threads = state.withLockedValue { state -> Int in
            guard !state.isStopped else { return 0 }
            state.isStopped = true
            return state.threads
        }
        for _ in 0..<threads { work.signal() }
    }
}
