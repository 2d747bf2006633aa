import NIOConcurrencyHelpers
import NIOCore

/// A semaphore for tasks. Permits are granted in order of arrival.
final class Permits: Sendable {
    private struct State {
        var free: Int
        var waiting = CircularBuffer<OneShot<Void>>()
        var isStopped = false
    }

    private let state: NIOLockedValueBox<State>

    init(_ count: Int) { state = NIOLockedValueBox(State(free: max(1, count))) }

    func tryAcquire() -> Bool {
        state.withLockedValue { state in
            guard state.free > 0, !state.isStopped else { return false }
            state.free -= 1
            return true
        }
    }

    /// - Throws: `cancelled` if the task is cancelled, and `notRunning` after ``stop()``, without a permit.
    func acquire() async throws(ThumbcacheError) {
        let turn: OneShot<Void>? = state.withLockedValue { state in
            let turn = OneShot<Void>()
            if state.isStopped {
                turn.resolve(.failure(.notRunning))
            } else if state.free > 0 {
                state.free -= 1
                return nil
            } else {
                state.waiting.append(turn)
            }
            return turn
        }
        guard let turn else { return }
        switch await turn.wait() {
        case .success: return
        case .failure(let error):
            state.withLockedValue { $0.waiting.removeAll { $0 === turn } }
            throw error
        }
    }

    /// Fails all waiting and later tasks.
    func stop() {
        let waiting = state.withLockedValue { state in
            defer { (state.waiting, state.isStopped) = ([], true) }
            return state.waiting
        }
        for turn in waiting { turn.resolve(.failure(.notRunning)) }
    }

    func release() {
        while true {
            let turn: OneShot<Void>? = state.withLockedValue { state in
                if state.waiting.isEmpty { state.free += 1 }
                return state.waiting.popFirst()
            }
            // A cancelled task does not accept the permit; the next one gets it.
            guard let turn, !turn.resolve(.success(())) else { return }
        }
    }
}
