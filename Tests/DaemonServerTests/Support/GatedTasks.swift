import NIOConcurrencyHelpers

/// A task executor that holds back tasks while its gate is closed.
final class GatedTasks: TaskExecutor {
    private let waiting = NIOLockedValueBox<[UnownedJob]?>(nil)

    /// The number of held tasks.
    var count: Int { waiting.withLockedValue { $0?.count ?? 0 } }

    func close() { waiting.withLockedValue { $0 = $0 ?? [] } }

    func open() {
        let jobs = waiting.withLockedValue { waiting in
            defer { waiting = nil }
            return waiting ?? []
        }
        for job in jobs { globalConcurrentExecutor.enqueue(job) }
    }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let waits = waiting.withLockedValue { waiting in
            waiting?.append(job)
            return waiting != nil
        }
        if !waits { globalConcurrentExecutor.enqueue(job) }
    }
}
