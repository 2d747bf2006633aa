import CacheCore
import DequeModule
import NIOConcurrencyHelpers
import SocketLoops

/// A bounded queue of events for the subscribers of a uid on one loop: filled on any thread, emptied on the loop.
///
/// If an event does not fit, the subscribers are disconnected: none misses an event without notice.
final class EventInbox: EventSubscriber {
    /// When the events have to be written.
    enum Urgency: Sendable {
        /// In the account's next turn.
        case soon
        /// At once: the logout or purge waits for it before its receipt.
        case atOnce
    }

    private struct State {
        var events: Deque<UserEvent> = []
        /// Whether the subscribers are going to get the events.
        var isAwaited = false
        var isOverrun = false
    }

    /// The next step.
    enum Next {
        /// - Parameter isLast: whether the queue is empty now. The next event then causes another call of `deliver`.
        case write(UserEvent, isLast: Bool)
        case nothing
        /// An event did not fit. No event follows.
        case close
    }

    private let state = NIOLockedValueBox(State())
    let loop: any SubscriberLoop
    private let deliver: @Sendable (Urgency) -> Void

    static var maximumEvents: Int { 256 }

    /// - Parameter deliver: called on the loop.
    init(on loop: any SubscriberLoop, deliver: @escaping @Sendable (Urgency) -> Void) {
        self.loop = loop
        self.deliver = deliver
    }

    func enqueue(_ event: UserEvent) -> Bool {
        state.withLockedValue { state in
            // The receipt of an invalidation waits until the subscribers are disconnected.
            if state.isOverrun { return event.isInvalidating }
            if state.events.count >= Self.maximumEvents {
                state.isOverrun = true
                state.events = []
                return true
            }
            state.events.append(event)
            defer { state.isAwaited = true }
            return event.isInvalidating || !state.isAwaited
        }
    }

    func handleEvents(for event: UserEvent) {
        deliver(event.isInvalidating || isOverrun ? .atOnce : .soon)
    }

    /// Removes the oldest event.
    func next() -> Next {
        state.withLockedValue { state in
            guard let event = state.events.popFirst() else { return state.isOverrun ? .close : .nothing }
            state.isAwaited = !state.events.isEmpty
            return .write(event, isLast: !state.isAwaited)
        }
    }

    /// Whether an event did not fit.
    var isOverrun: Bool { state.withLockedValue { $0.isOverrun } }
}

extension SocketLoop: SubscriberLoop {}
