import NIOConcurrencyHelpers
import NIOCore

/// A number of permits, given to waiting tasks in the order they came.
final class Permits: Sendable {
    private struct State {
        var free: Int
        var waiting = CircularBuffer<OneShot<Void>>()
    }

    private let state: NIOLockedValueBox<State>

    init(_ count: Int) { state = NIOLockedValueBox(State(free: max(1, count))) }

    /// Takes one if that needs no wait.
    func acquireAtOnce() -> Bool {
        state.withLockedValue { state in
            if state.free > 0 { state.free -= 1 } else { return false }
            return true
        }
    }

    /// - Throws: `cancelled` when the task is, in which case no permit was taken.
    func acquire() async throws(ThumbcacheError) {
        let turn: OneShot<Void>? = state.withLockedValue { state in
            if state.free > 0 {
                state.free -= 1
                return nil
            }
            let turn = OneShot<Void>()
            state.waiting.append(turn)
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

    func release() {
        while true {
            let turn: OneShot<Void>? = state.withLockedValue { state in
                if state.waiting.isEmpty { state.free += 1 }
                return state.waiting.popFirst()
            }
            // Whoever was cancelled meanwhile does not take it.
            guard let turn, !turn.resolve(.success(())) else { return }
        }
    }
}
