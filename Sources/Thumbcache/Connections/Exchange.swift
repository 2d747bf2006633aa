import NIOCore
import Synchronization
import ThumbcacheProtocol

/// A request in flight. It ends when its reply arrives or can no longer arrive, even if the waiting task was cancelled.
final class Exchange: Sendable {
    let reply = OneShot<Value>()
    /// The time at which the wait fails; nil for never.
    let deadline: NIODeadline?
    private let onEnd: @Sendable () -> Void
    private let hasEnded = Atomic(false)

    /// - Parameter onEnd: called exactly once.
    init(by deadline: NIODeadline?, onEnd: @escaping @Sendable () -> Void) {
        self.deadline = deadline.map { min($0, .distantFuture) }
        self.onEnd = onEnd
    }

    func end(_ outcome: Result<Value, ThumbcacheError>) {
        // Called first, because the waiting task may start another request immediately.
        if !hasEnded.exchange(true, ordering: .acquiringAndReleasing) { onEnd() }
        reply.resolve(outcome)
    }
}
