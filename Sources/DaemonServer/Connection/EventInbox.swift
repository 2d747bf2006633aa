import CacheCore
import DequeModule
import NIOConcurrencyHelpers

/// Events on their way to a connection: told on any thread, taken on the connection's loop.
///
/// It holds a bounded number, so that who is told faster than its loop or its peer takes them costs nobody memory. What
/// does not fit is never left out in silence: the connection ends.
final class EventInbox: EventSubscriber {
    /// How soon the connection is to look.
    enum Urgency: Sendable {
        /// When it is the account's turn.
        case soon
        /// Before a receipt: whoever ends a cache waits for it.
        case atOnce
    }

    private struct State {
        var events: Deque<UserEvent> = []
        var isAwaited = false
        var isOverrun = false
    }

    private let state = NIOLockedValueBox(State())
    private let wake: @Sendable (Urgency) -> Void

    /// Events that may wait.
    static var most: Int { 256 }

    /// - Parameter wake: called on any thread, with no lock held.
    init(wake: @escaping @Sendable (Urgency) -> Void) {
        self.wake = wake
    }

    func tell(_ event: UserEvent) {
        let urgency = state.withLockedValue { state -> Urgency? in
            if state.isOverrun { return nil }
            if state.events.count >= Self.most {
                state.isOverrun = true
                state.events = []
                return .atOnce
            }
            state.events.append(event)
            if event.isInvalidating { return .atOnce }
            if state.isAwaited { return nil }
            state.isAwaited = true
            return .soon
        }
        if let urgency { wake(urgency) }
    }

    /// The next in order. Nil where there is none: then the next is woken for.
    func next() -> UserEvent? {
        state.withLockedValue { state in
            let event = state.events.popFirst()
            state.isAwaited = event != nil
            return event
        }
    }

    /// Whether something did not fit. Then nothing comes any more.
    var isOverrun: Bool { state.withLockedValue { $0.isOverrun } }
}
