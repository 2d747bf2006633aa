import DequeModule
import NIOConcurrencyHelpers

/// A lock for tasks, acquired in the order of their calls.
///
/// Serializes the logins, purges and logouts of a user, and the pending logouts of a uid. An actor cannot: it is
/// reentrant at each `await`.
final class AsyncFIFOLock: Sendable {
    private struct State {
        var isHeld = false
        var waiting: Deque<CheckedContinuation<Void, Never>> = []
    }

    private let state = NIOLockedValueBox(State())

    var waiting: Int { state.withLockedValue { $0.waiting.count } }

    func withLock<Result, Failure: Error>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        await acquire()
        defer { release() }
        return try await body()
    }

    private func acquire() async {
        await withCheckedContinuation { continuation in
            let isAcquired = state.withLockedValue { state in
                if state.isHeld {
                    state.waiting.append(continuation)
                    return false
                }
                state.isHeld = true
                return true
            }
            if isAcquired { continuation.resume() }
        }
    }

    /// Passes the lock to the next waiting task, so that no other task can acquire it before.
    private func release() {
        let next = state.withLockedValue { state in
            let next = state.waiting.popFirst()
            state.isHeld = next != nil
            return next
        }
        next?.resume()
    }
}
