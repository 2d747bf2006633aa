import NIOConcurrencyHelpers

/// Lets operations in until it is closed; closing waits for those inside. What they use may be wiped after that (F56).
final class OperationGate: Sendable {
    private struct State {
        var inside = 0
        var isClosed = false
    }

    private let state = NIOLockedValueBox(State())
    private let isDrained = ConditionLock(value: false)

    /// False when the gate is closed. Whoever was let in calls ``leave()`` once.
    func enter() -> Bool {
        state.withLockedValue { state in
            if state.isClosed { return false }
            state.inside += 1
            return true
        }
    }

    func leave() {
        let isLast = state.withLockedValue { state in
            state.inside -= 1
            return state.isClosed && state.inside == 0
        }
        if isLast { announceDrained() }
    }

    /// Lets nobody in any more and waits until the last has left. Any number may call it, at any time, but nobody from
    /// inside.
    func close() {
        let isEmpty = state.withLockedValue { state in
            state.isClosed = true
            return state.inside == 0
        }
        if isEmpty { announceDrained() }
        isDrained.lock(whenValue: true)
        isDrained.unlock()
    }

    private func announceDrained() {
        isDrained.lock()
        isDrained.unlock(withValue: true)
    }
}
