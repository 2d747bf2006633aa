import CacheCore
import DequeModule
import NIOConcurrencyHelpers

/// A bounded queue of events for a subscriber: filled on any thread, emptied on the connection's loop.
///
/// If an event does not fit, the connection closes: a subscriber never misses an event without notice.
final class EventInbox: EventSubscriber {
    /// When the connection has to write the events.
    enum Urgency: Sendable {
        /// In the account's next turn.
        case soon
        /// At once: the logout or purge waits for it before its receipt.
        case atOnce
    }

    private struct State {
        var events: Deque<PublishedEvent> = []
        var isAwaited = false
        var isOverrun = false
    }

    private let state = NIOLockedValueBox(State())
    private let wake: @Sendable (Urgency) -> Void

    static var maximumEvents: Int { 256 }

    /// - Parameter wake: called on any thread, without a lock.
    init(wake: @escaping @Sendable (Urgency) -> Void) {
        self.wake = wake
    }

    func deliver(_ published: PublishedEvent) {
        let urgency = state.withLockedValue { state -> Urgency? in
            if state.isOverrun { return nil }
            if state.events.count >= Self.maximumEvents {
                state.isOverrun = true
                state.events = []
                return .atOnce
            }
            state.events.append(published)
            if published.event.isInvalidating { return .atOnce }
            if state.isAwaited { return nil }
            state.isAwaited = true
            return .soon
        }
        if let urgency { wake(urgency) }
    }

    /// Returns the oldest event, and whether it was the last one; nil if the queue is empty. After the last one, the next
    /// delivery calls `wake`.
    func next() -> (published: PublishedEvent, isLast: Bool)? {
        state.withLockedValue { state in
            guard let published = state.events.popFirst() else { return nil }
            state.isAwaited = !state.events.isEmpty
            return (published, !state.isAwaited)
        }
    }

    /// Whether an event did not fit. Then no event follows.
    var isOverrun: Bool { state.withLockedValue { $0.isOverrun } }
}
