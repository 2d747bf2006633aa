import NIOCore
import Synchronization
import ThumbcacheProtocol

/// The wait for one reply. It ends when the reply is there or cannot come any more, also where nobody wants it now.
final class Exchange: Sendable {
    let reply = OneShot<Value>()
    /// When nobody waits any more; nil for never.
    let deadline: NIODeadline?
    private let onEnd: @Sendable () -> Void
    private let hasEnded = Atomic(false)

    /// - Parameter onEnd: called once.
    init(by deadline: NIODeadline?, onEnd: @escaping @Sendable () -> Void) {
        self.deadline = deadline.map { min($0, .distantFuture) }
        self.onEnd = onEnd
    }

    func end(_ outcome: Result<Value, ThumbcacheError>) {
        // First: whoever has the reply may begin another request at once.
        if !hasEnded.exchange(true, ordering: .acquiringAndReleasing) { onEnd() }
        reply.resolve(outcome)
    }
}
