import Synchronization

/// How many requests of one uid wait, and what is held in memory for it, over all of its connections.
final class PeerLoad: Sendable {
    let memory = PeerMemory()
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
