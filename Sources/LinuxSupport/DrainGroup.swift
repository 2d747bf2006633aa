import NIOConcurrencyHelpers

/// Work under way that somebody may have to see the end of: it lets work in until it is drained, which waits for what
/// is inside.
public final class DrainGroup: Sendable {
    private struct State {
        var inside = 0
        var isClosed = false
    }

    private let state = NIOLockedValueBox(State())
    private let isDrained = ConditionLock(value: false)

    public init() {}

    /// Whether somebody waits for what is inside, or has waited.
    public var isClosed: Bool { state.withLockedValue { $0.isClosed } }

    /// False when the group is closed. Whoever was let in calls ``leave()`` once.
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

    /// Lets nobody in any more and blocks until the last has left. Any number may call it, at any time, but nobody from
    /// inside.
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
