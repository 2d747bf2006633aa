import NIOConcurrencyHelpers

/// A result that is set once, and one task that waits for it.
///
/// The first result wins, so a reply, a cancellation, a lost connection and a stopping client need no coordination.
final class OneShot<Success: Sendable>: Sendable {
    typealias Outcome = Result<Success, ThumbcacheError>

    private enum State {
        case pending
        /// Resumed exactly once: `resolve` removes it under the lock.
        case awaited(UnsafeContinuation<Outcome, Never>)
        case resolved(Outcome)
    }

    private let state = NIOLockedValueBox<State>(.pending)

    /// Sets the result. Returns false if it was already set.
    @discardableResult
    func resolve(_ outcome: Outcome) -> Bool {
        let previous = state.withLockedValue { state in
            let previous = state
            if case .resolved = previous { return previous }
            state = .resolved(outcome)
            return previous
        }
        switch previous {
        case .pending: return true
        case .resolved: return false
        case .awaited(let continuation):
            continuation.resume(returning: outcome)
            return true
        }
    }

    var outcome: Outcome? {
        state.withLockedValue { state in if case .resolved(let outcome) = state { outcome } else { nil } }
    }

    var isResolved: Bool { outcome != nil }

    /// Waits for the result. A cancelled task gets `cancelled`, unless the result was set before.
    func wait() async -> Outcome {
        await withTaskCancellationHandler {
            await withUnsafeContinuation { continuation in
                let outcome: Outcome? = state.withLockedValue { state in
                    if case .resolved(let outcome) = state { return outcome }
                    state = .awaited(continuation)
                    return nil
                }
                if let outcome { continuation.resume(returning: outcome) }
            }
        } onCancel: {
            resolve(.failure(.cancelled))
        }
    }
}
