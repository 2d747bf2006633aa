import NIOConcurrencyHelpers

/// Counts operations in flight, so that a stopping client can wait for them.
final class InFlight: Sendable {
    private struct State {
        var count = 0
        var isEnding = false
        var drained = OneShot<Void>()
    }

    private let state = NIOLockedValueBox(State())

    func begin() throws(ThumbcacheError) {
        let isEnding = state.withLockedValue { state in
            if !state.isEnding { state.count += 1 }
            return state.isEnding
        }
        if isEnding { throw .notRunning }
    }

    func end() {
        let drained: OneShot<Void>? = state.withLockedValue { state in
            state.count -= 1
            return state.isEnding && state.count == 0 ? state.drained : nil
        }
        drained?.resolve(.success(()))
    }

    /// Rejects new operations. The result resolves when the running ones have ended.
    func stop() -> OneShot<Void> {
        state.withLockedValue { state in
            state.isEnding = true
            if state.count == 0 { state.drained.resolve(.success(())) }
            return state.drained
        }
    }
}
