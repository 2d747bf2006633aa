import DequeModule
import NIOConcurrencyHelpers

/// Lets one through at a time, in the order they came: what log-in, purge and log-out of one user queue behind.
///
/// An actor would not do: it lets others in at every `await`, as where a purge of the user waits for the disk.
final class AsyncFIFOLock: Sendable {
    private struct State {
        var isTaken = false
        var waiting: Deque<CheckedContinuation<Void, Never>> = []
    }

    private let state = NIOLockedValueBox(State())

    /// How many stand in line behind the one whose turn it is.
    var waiting: Int { state.withLockedValue { $0.waiting.count } }

    func withLock<Result, Failure: Error>(
        isolation: isolated (any Actor)? = #isolation, _ body: () async throws(Failure) -> Result
    ) async throws(Failure) -> Result {
        await take()
        defer { pass() }
        return try await body()
    }

    private func take() async {
        await withCheckedContinuation { continuation in
            let isMine = state.withLockedValue { state in
                if state.isTaken {
                    state.waiting.append(continuation)
                    return false
                }
                state.isTaken = true
                return true
            }
            if isMine { continuation.resume() }
        }
    }

    /// Hands the turn straight to the next in line, so that nobody can slip in between.
    private func pass() {
        let next = state.withLockedValue { state in
            let next = state.waiting.popFirst()
            state.isTaken = next != nil
            return next
        }
        next?.resume()
    }
}
