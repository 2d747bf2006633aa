import Synchronization

/// True at the first call only.
final class Once: Sendable {
    private let isUsed = Atomic<Bool>(false)

    func isFirst() -> Bool {
        !isUsed.exchange(true, ordering: .relaxed)
    }
}
