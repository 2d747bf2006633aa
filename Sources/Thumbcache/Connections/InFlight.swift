import NIOConcurrencyHelpers

/// Counts what goes on, so that a client that stops can wait for the last of it.
final class InFlight: Sendable {
    private struct State {
        var count = 0
        var isEnding = false
        var drained = OneShot<Void>()
    }

    private let state = NIOLockedValueBox(State())

    /// - Throws: `notRunning` in a client that has stopped.
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

    /// Lets nobody begin from here on, and says when everybody who began has ended.
    func stop() -> OneShot<Void> {
        state.withLockedValue { state in
            state.isEnding = true
            if state.count == 0 { state.drained.resolve(.success(())) }
            return state.drained
        }
    }
}
