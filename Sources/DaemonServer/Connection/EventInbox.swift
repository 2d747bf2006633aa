import CacheCore
import DequeModule
import NIOConcurrencyHelpers
import SocketLoops

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
        /// Whether the connection is going to write the events.
        var isAwaited = false
        var isOverrun = false
    }

    /// The connection's next step.
    enum Next {
        /// - Parameter isLast: whether the queue is empty now. The next event then causes another call of `deliver`.
        case write(PublishedEvent, isLast: Bool)
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

    func enqueue(_ published: PublishedEvent) -> Bool {
        state.withLockedValue { state in
            // The receipt of an invalidation waits until this subscriber is disconnected.
            if state.isOverrun { return published.event.isInvalidating }
            if state.events.count >= Self.maximumEvents {
                state.isOverrun = true
                state.events = []
                return true
            }
            state.events.append(published)
            defer { state.isAwaited = true }
            return published.event.isInvalidating || !state.isAwaited
        }
    }

    func handleEvents(for published: PublishedEvent) {
        deliver(published.event.isInvalidating || isOverrun ? .atOnce : .soon)
    }

    /// Removes the oldest event.
    func next() -> Next {
        state.withLockedValue { state in
            guard let published = state.events.popFirst() else { return state.isOverrun ? .close : .nothing }
            state.isAwaited = !state.events.isEmpty
            return .write(published, isLast: !state.isAwaited)
        }
    }

    /// Whether an event did not fit.
    var isOverrun: Bool { state.withLockedValue { $0.isOverrun } }
}

extension SocketLoop: SubscriberLoop {}
