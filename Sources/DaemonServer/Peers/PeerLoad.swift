import Synchronization

/// How many requests of one account wait, over all of its connections.
final class PeerLoad: Sendable {
    private let waiting = Atomic<Int>(0)

    /// Takes a place in the queue; false when `limit` are waiting already.
    func enter(limit: Int) -> Bool {
        if waiting.add(1, ordering: .relaxed).newValue <= limit { return true }
        leave()
        return false
    }

    func leave() {
        waiting.subtract(1, ordering: .relaxed)
    }
}
