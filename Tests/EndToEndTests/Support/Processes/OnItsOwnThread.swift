import Foundation
import Testing

/// Runs each test of a suite on a thread of its own, which the test may block.
struct OnItsOwnThread: SuiteTrait, TestTrait, TestScoping {
    var isRecursive: Bool { true }

    fileprivate static let mark = "thumbcached test thread"

    /// Whether the calling thread was started for a test.
    static var isHere: Bool { Thread.current.threadDictionary[mark] != nil }

    func provideScope(
        for test: Test, testCase: Test.Case?, performing body: @Sendable () async throws -> Void
    ) async throws {
        let executor = ThreadExecutor()
        defer { executor.stop() }
        try await withTaskExecutorPreference(executor) { try await body() }
    }
}

extension Trait where Self == OnItsOwnThread {
    static var onItsOwnThread: Self { OnItsOwnThread() }
}

/// Executes jobs on one thread, in order of arrival.
private final class ThreadExecutor: TaskExecutor {
    private struct Work {
        var jobs: [UnownedJob] = []
        var isStopped = false
    }

    private let work = Watched(Work())

    init() {
        let thread = Thread { [self] in run() }
        thread.stackSize = 8 << 20
        thread.start()
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        work.change { $0.jobs.append(job) }
    }

    func stop() { work.change { $0.isStopped = true } }

    private func run() {
        Thread.current.threadDictionary[OnItsOwnThread.mark] = true
        while true {
            let jobs = work.wait(until: { !$0.jobs.isEmpty || $0.isStopped }) { work in
                defer { work.jobs = [] }
                return work.jobs
            }
            if jobs.isEmpty { return }
            for job in jobs { job.runSynchronously(on: asUnownedTaskExecutor()) }
        }
    }
}
