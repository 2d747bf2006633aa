import NIOConcurrencyHelpers

/// A point that threads and tasks pass only after the test has opened it. Counts arrivals.
public final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var arrivals = 0
        var waiters: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
        var waiting: [CheckedContinuation<Void, Never>] = []
    }

    private let state = NIOLockedValueBox(State())
    /// Becomes true when the gate opens; blocked threads wait for it.
    private let isOpen = ConditionLock<Bool>(value: false)

    public init() {}

    /// Arrives and blocks the thread until the gate is open. A task must not call it.
    public func pass() {
        arrive()
        isOpen.lock(whenValue: true)
        isOpen.unlock()
    }

    /// Counts an arrival without waiting.
    public func arrive() {
        let due = state.withLockedValue { state in
            state.arrivals += 1
            let due = state.waiters.filter { $0.count <= state.arrivals }
            state.waiters.removeAll { $0.count <= state.arrivals }
            return due
        }
        for (_, continuation) in due { continuation.resume() }
    }

    /// The number of arrivals so far.
    public var arrived: Int { state.withLockedValue { $0.arrivals } }

    /// Lets all pass, now and later.
    public func open() {
        let waiting = state.withLockedValue { state in
            state.isOpen = true
            defer { state.waiting = [] }
            return state.waiting
        }
        isOpen.lock()
        isOpen.unlock(withValue: true)
        for continuation in waiting { continuation.resume() }
    }

    /// Suspends until the gate is open.
    public func opened() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLockedValue { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
    }

    /// Suspends until the gate has counted that many arrivals.
    public func reached(by count: Int = 1) async {
        await withCheckedContinuation { continuation in
            let isReached = state.withLockedValue { state in
                if state.arrivals >= count { return true }
                state.waiters.append((count, continuation))
                return false
            }
            if isReached { continuation.resume() }
        }
    }
}
