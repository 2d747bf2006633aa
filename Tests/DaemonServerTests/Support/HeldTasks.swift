import NIOConcurrencyHelpers

/// Where tasks run, unless a test holds them: then those that become ready wait.
final class HeldTasks: TaskExecutor {
    private let waiting = NIOLockedValueBox<[UnownedJob]?>(nil)

    /// How many wait.
    var held: Int { waiting.withLockedValue { $0?.count ?? 0 } }

    func hold() { waiting.withLockedValue { $0 = $0 ?? [] } }

    func letGo() {
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
