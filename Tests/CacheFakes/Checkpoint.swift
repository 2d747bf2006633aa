import NIOConcurrencyHelpers

/// A ``Gate`` for tasks: whoever passes waits without blocking a thread.
public final class Checkpoint: Sendable {
    private struct State {
        var isOpen = false
        var arrivals = 0
        var held: [CheckedContinuation<Void, Never>] = []
        var watchers: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// Waits until the checkpoint is open.
    public func pass() async {
        await withCheckedContinuation { continuation in
            let due = state.withLockedValue { state in
                state.arrivals += 1
                var due = state.watchers.filter { $0.count <= state.arrivals }.map(\.continuation)
                state.watchers.removeAll { $0.count <= state.arrivals }
                if state.isOpen { due.append(continuation) } else { state.held.append(continuation) }
                return due
            }
            for continuation in due { continuation.resume() }
        }
    }

    /// Lets everybody through, now and later.
    public func open() {
        let held = state.withLockedValue { state in
            state.isOpen = true
            defer { state.held = [] }
            return state.held
        }
        for continuation in held { continuation.resume() }
    }

    /// Waits until so many have come.
    public func reached(by count: Int = 1) async {
        await withCheckedContinuation { continuation in
            let isReached = state.withLockedValue { state in
                if state.arrivals >= count { return true }
                state.watchers.append((count, continuation))
                return false
            }
            if isReached { continuation.resume() }
        }
    }
}
