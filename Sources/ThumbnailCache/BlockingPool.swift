/// Threads that may block, so that event loops need not.
public protocol BlockingPool: Sendable {
    /// Runs `work` soon, in the order of submission as far as there are threads.
    func submit(_ work: @escaping @Sendable () -> Void)
}

extension BlockingPool {
    /// Runs blocking work and waits for its result without blocking the caller's thread.
    func run<Result: Sendable>(_ work: @escaping @Sendable () throws -> Result) async throws -> Result {
        try await withCheckedThrowingContinuation { continuation in
            submit { continuation.resume(with: Swift.Result(catching: work)) }
        }
    }
}
