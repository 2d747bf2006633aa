import NIOConcurrencyHelpers

/// The subscribers of users' events.
///
/// The events of one owner are published in order. Logins, logouts and purges are published under the owner's lock. An
/// invalidation waits for the delivery of earlier updates.
public final class EventHub: Sendable {
    /// The users of a uid that a subscriber follows.
    public enum Channel: Hashable, Sendable {
        case user(OpaqueID)
        /// Every user of the uid.
        case all
    }

    private struct State {
        /// By uid, since a uid follows only its own users. Empty entries are removed.
        var uids: [UInt32: [Channel: [ObjectIdentifier: any EventSubscriber]]] = [:]
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    public func add(_ subscriber: any EventSubscriber, to channel: Channel, of uid: UInt32) -> Bool {
        state.withLockedValue { state in
            let id = ObjectIdentifier(subscriber)
            return state.uids[uid, default: [:]][channel, default: [:]].updateValue(subscriber, forKey: id) == nil
        }
    }

    public func remove(_ subscriber: any EventSubscriber, from channels: some Sequence<Channel>, of uid: UInt32) {
        let id = ObjectIdentifier(subscriber)
        state.withLockedValue { state in
            for channel in channels {
                state.uids[uid]?[channel]?[id] = nil
                if state.uids[uid]?[channel]?.isEmpty == true { state.uids[uid]?[channel] = nil }
            }
            if state.uids[uid]?.isEmpty == true { state.uids[uid] = nil }
        }
    }

    public func channelCount(of uid: UInt32) -> Int { state.withLockedValue { $0.uids[uid]?.count ?? 0 } }

    /// Queues the event for each subscriber of the user, and wakes their loops.
    /// - Parameter next: runs on one subscriber's loop after it has handled the event, or at once without subscribers.
    ///   Earlier, the thread of this work could occupy the processor that a client needs, for milliseconds.
    func publish(_ event: UserEvent, then next: (@Sendable () -> Void)? = nil) {
        let subscribers = state.withLockedValue { state -> [any EventSubscriber] in
            guard let channels = state.uids[event.owner.uid] else { return [] }
            let named = channels[.user(event.owner.user)] ?? [:]
            let all = channels[.all] ?? [:]
            return Array(named.values) + all.lazy.filter { named[$0.key] == nil }.map(\.value)
        }
        for subscriber in subscribers where subscriber.enqueue(event) {
            subscriber.loop.execute { subscriber.handleEvents(for: event) }
        }
        guard let next else { return }
        if let loop = subscribers.first?.loop { loop.execute(next) } else { next() }
    }
}
