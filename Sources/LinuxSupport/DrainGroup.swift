import NIOConcurrencyHelpers

/// Counts operations in progress, and lets ``drain()`` reject new ones and wait for the rest.
public final class DrainGroup: Sendable {
    private struct State {
        var inside = 0
        var isClosed = false
    }

    private let state = NIOLockedValueBox(State())
    private let isDrained = ConditionLock(value: false)

    public init() {}

    public var isClosed: Bool { state.withLockedValue { $0.isClosed } }

    /// Begins an operation; returns false if the group is closed. After true, call ``leave()`` once.
    public func enter() -> Bool {
        state.withLockedValue { state in
            if state.isClosed { return false }
            state.inside += 1
            return true
        }
    }

    public func leave() {
        let isLast = state.withLockedValue { state in
            state.inside -= 1
            return state.isClosed && state.inside == 0
        }
        if isLast { announceDrained() }
    }

    /// Rejects new operations and blocks until the last one has ended. Idempotent. Must not be called from within an
    /// operation.
    public func drain() {
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
