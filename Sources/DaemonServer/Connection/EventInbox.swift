import CacheCore
import NIOConcurrencyHelpers
import SocketLoops

/// A bounded queue of events for the subscribers of a uid on one loop: filled on any thread, emptied on the loop.
///
/// If an event does not fit, the subscribers are disconnected: no subscriber misses an event without notice.
final class EventInbox: EventSubscriber {
    /// When the events have to be written.
    enum Urgency: Sendable {
        /// In the account's next turn.
        case soon
        /// At once: the logout or purge waits for it before its receipt.
        case atOnce
    }

    struct QueuedEvent: Sendable, Equatable {
        let event: UserEvent
        /// Counts the events of this inbox, from 1 on.
        let number: UInt64
    }

    private struct State {
        var events: [QueuedEvent] = []
        var lastNumber: UInt64 = 0
        /// Whether a call of `deliver` is pending.
        var isAwaited = false
        var isOverrun = false
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
            state.lastNumber += 1
            state.events.append(QueuedEvent(event: event, number: state.lastNumber))
            defer { state.isAwaited = true }
            return event.isInvalidating || !state.isAwaited
        }
    }

    func handleEvents(for event: UserEvent) {
        deliver(event.isInvalidating || isOverrun ? .atOnce : .soon)
    }

    /// Removes and returns all events. The next event then causes another call of `deliver`.
    /// - Returns: nil if an event was rejected because the queue was full; no event follows.
    func removeAll() -> [QueuedEvent]? {
        state.withLockedValue { state in
            guard !state.isOverrun else { return nil }
            defer { (state.events, state.isAwaited) = ([], false) }
            return state.events
        }
    }

    /// Whether the queue is empty and no event was rejected.
    var isEmpty: Bool { state.withLockedValue { $0.events.isEmpty && !$0.isOverrun } }

    /// Whether an event was rejected because the queue was full.
    var isOverrun: Bool { state.withLockedValue { $0.isOverrun } }

    /// The number of the last event; 0 if there was none.
    var lastNumber: UInt64 { state.withLockedValue { $0.lastNumber } }
}

extension SocketLoop: SubscriberLoop {}
