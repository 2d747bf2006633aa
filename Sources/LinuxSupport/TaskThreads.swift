import DequeModule
import Glibc
import NIOConcurrencyHelpers

/// Threads that tasks run on, in the order in which they become ready, in place of the runtime's own pool (SE-0417).
///
/// The runtime's pool is libdispatch's. It makes threads whenever it sees fit, watches them through files in /proc, and traps
/// where there is no thread or no descriptor to be had (F75). These threads are made once and need neither.
///
/// A task stays on them if it is started with them as its preference, `Task(executorPreference:)`, and so do its children.
public final class TaskThreads: TaskExecutor {
    private struct State {
        var ready: Deque<UnownedJob> = []
        /// Threads that wait for something to run.
        var asleep = 0
        var isEnding = false
    }

    private let state = NIOLockedValueBox(State())
    private let wakeup = Semaphore()
    private let threads = Threads()

    /// - Parameters:
    ///   - name: of the threads, as the system's tools show it; 15 characters at most.
    ///   - count: 1 or more.
    /// - Throws: when there is no thread to be had. Those that were started end then.
    public init(named name: String, count: Int) throws(ThreadError) {
        do throws(ThreadError) {
            try threads.start(named: name, count: count) { self.work() }
        } catch {
            stop()
            throw error
        }
    }

    public func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let wakes = state.withLockedValue { state in
            state.ready.append(job)
            guard state.asleep > 0 else { return false }
            state.asleep -= 1
            return true
        }
        if wakes { wakeup.signal() }
    }

    /// Runs `work` as a task on these threads, and blocks the calling one, which is none of them, until it is done.
    public func wait<Value: Sendable>(for work: @escaping @Sendable () async throws -> Value) throws -> Value {
        let outcome = NIOLockedValueBox<Result<Value, any Error>?>(nil)
        let isDone = Semaphore()
        Task(executorPreference: self) {
            let result: Result<Value, any Error>
            do { result = .success(try await work()) } catch { result = .failure(error) }
            outcome.withLockedValue { $0 = result }
            isDone.signal()
        }
        while true {
            isDone.wait()
            if let result = outcome.withLockedValue({ $0 }) { return try result.get() }
        }
    }

    /// Returns when every thread has ended, behind what is ready by now. A task that becomes ready later stands still for ever.
    public func stop() {
        let asleep = state.withLockedValue { state in
            state.isEnding = true
            defer { state.asleep = 0 }
            return state.asleep
        }
        for _ in 0..<asleep { wakeup.signal() }
        threads.join()
    }

    private enum Step {
        case run(UnownedJob)
        case sleep
        case end
    }

    private func work() {
        let executor = asUnownedTaskExecutor()
        while true {
            switch state.withLockedValue({ Self.next(&$0) }) {
            case .run(let job): job.runSynchronously(on: executor)
            case .sleep: wakeup.wait()
            case .end: return
            }
        }
    }

    private static func next(_ state: inout State) -> Step {
        if let job = state.ready.popFirst() { return .run(job) }
        if state.isEnding { return .end }
        state.asleep += 1
        return .sleep
    }
}
