/// Threads that may block, so that event loops need not.
public protocol BlockingPool: Sendable {
    /// Runs `work` soon. What one uid submits begins in the order of submission; between uids it is by turns.
    func submit(for uid: UInt32, _ work: @escaping @Sendable () -> Void)
}

extension BlockingPool {
    /// Runs blocking work and waits for its result without blocking the caller's thread.
    public func run<Result: Sendable>(
        for uid: UInt32, _ work: @escaping @Sendable () throws -> Result
    ) async throws(CacheFailure) -> Result {
        let result = await withCheckedContinuation { continuation in
            submit(for: uid) {
                continuation.resume(returning: Swift.Result(catching: work).mapError { CacheFailure($0) })
            }
        }
        return try result.get()
    }
}
