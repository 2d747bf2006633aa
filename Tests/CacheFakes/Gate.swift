import NIOConcurrencyHelpers

/// Holds whoever passes until it is opened, and tells when somebody stands before it.
///
/// Passing blocks the thread, as the disk would: what passes must run on a ``ThreadPool`` or a thread of its own.
public final class Gate: Sendable {
    private struct Arrivals {
        var count = 0
        var waiting: [(count: Int, continuation: CheckedContinuation<Void, Never>)] = []
    }

    private let isOpen = ConditionLock<Bool>(value: false)
    private let arrivals = NIOLockedValueBox(Arrivals())

    public init() {}

    /// Blocks until the gate is open.
    public func pass() {
        let due = arrivals.withLockedValue { arrivals in
            arrivals.count += 1
            let due = arrivals.waiting.filter { $0.count <= arrivals.count }
            arrivals.waiting.removeAll { $0.count <= arrivals.count }
            return due
        }
        for (_, continuation) in due { continuation.resume() }
        isOpen.lock(whenValue: true)
        isOpen.unlock()
    }

    /// How many have come to the gate.
    public var arrived: Int { arrivals.withLockedValue { $0.count } }

    /// Lets everybody through, now and later.
    public func open() {
        isOpen.lock()
        isOpen.unlock(withValue: true)
    }

    /// Waits until somebody, or so many, have come to the gate.
    public func reached(by count: Int = 1) async {
        await withCheckedContinuation { continuation in
            let isReached = arrivals.withLockedValue { arrivals in
                if arrivals.count >= count { return true }
                arrivals.waiting.append((count, continuation))
                return false
            }
            if isReached { continuation.resume() }
        }
    }
}
