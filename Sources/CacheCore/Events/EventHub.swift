import NIOConcurrencyHelpers

/// Who wants to know what of which users, and the place where events are told.
///
/// What is told of one owner comes in the order in which it happened: log-ins, log-outs and purges are told with the
/// owner's turn, and an update before the ending that it came before, which waits for it as for an answer on its way.
public final class EventHub: Sendable {
    /// Users of a uid that a subscriber follows.
    public enum Channel: Hashable, Sendable {
        case user(OpaqueID)
        /// Every user of the uid.
        case all
    }

    private struct State {
        /// By uid, since a uid follows its own users alone. What is empty is taken out.
        var uids: [UInt32: [Channel: [ObjectIdentifier: any EventSubscriber]]] = [:]
    }

    private let state = NIOLockedValueBox(State())

    public init() {}

    /// - Returns: false where the subscriber follows the channel already.
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

    /// How many channels of a uid somebody follows.
    public func channelCount(of uid: UInt32) -> Int { state.withLockedValue { $0.uids[uid]?.count ?? 0 } }

    /// Tells whoever follows the user, each once. Costs one look-up where nobody follows one of the uid's.
    func publish(_ event: UserEvent) {
        let subscribers = state.withLockedValue { state -> [any EventSubscriber] in
            guard let channels = state.uids[event.owner.uid] else { return [] }
            let named = channels[.user(event.owner.user)] ?? [:]
            return Array(named.merging(channels[.all] ?? [:]) { one, _ in one }.values)
        }
        for subscriber in subscribers { subscriber.tell(event) }
    }
}
