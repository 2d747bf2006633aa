import CacheCore
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The subscribers on one event loop, by uid. Confined to the loop.
///
/// An event is queued once for all subscribers of its uid, since queueing it for each of them would take longer than
/// sending it. Events are written in order, each to all subscribers before the next.
final class LoopSubscribers {
    /// The subscribers of one uid.
    private final class Group {
        let uid: UInt32
        let inbox: EventInbox
        let account: LoopAccount
        var followers: [EventHub.Channel: [ObjectIdentifier: Connection]] = [:]
        /// The event that is being written.
        var delivery: Delivery?
        /// Whether the rest of the events waits for the account's next turn.
        var isEnqueued = false

        init(of uid: UInt32, _ inbox: EventInbox, _ account: LoopAccount) {
            (self.uid, self.inbox, self.account) = (uid, inbox, account)
        }

        func subscribers(of user: OpaqueID) -> [Connection] {
            let named = followers[.user(user)] ?? [:]
            return Array(named.values) + (followers[.all] ?? [:]).lazy.filter { named[$0.key] == nil }.map(\.value)
        }
    }

    private struct Delivery {
        let isInvalidation: Bool
        /// Whether no event follows yet.
        let isLast: Bool
        /// The subscribers that do not have the event yet.
        var rest: ArraySlice<Connection>
        // The event's encodings.
        private let (two, three): (ByteBuffer, ByteBuffer)

        init(_ event: UserEvent, isLast: Bool, to subscribers: [Connection]) {
            (isInvalidation, self.isLast, rest) = (event.isInvalidating, isLast, subscribers[...])
            (two, three) = (event.message(.two), event.message(.three))
        }

        func message(_ version: RESPVersion) -> ByteBuffer { version == .two ? two : three }
    }

    private let loop: SocketLoop
    private let scheduler: LoopScheduler
    private let events: EventHub
    private var groups: [UInt32: Group] = [:]

    init(of loop: SocketLoop, _ scheduler: LoopScheduler, _ events: EventHub) {
        (self.loop, self.scheduler, self.events) = (loop, scheduler, events)
    }

    func add(_ connection: Connection, to channel: EventHub.Channel) {
        let uid = connection.peer.uid
        let group = groups[uid] ?? Group(of: uid, makeInbox(of: uid), connection.loopAccount)
        groups[uid] = group
        if group.followers[channel] == nil { _ = events.add(group.inbox, to: channel, of: uid) }
        group.followers[channel, default: [:]][ObjectIdentifier(connection)] = connection
    }

    func remove(_ connection: Connection, from channels: some Sequence<EventHub.Channel>) {
        let uid = connection.peer.uid
        guard let group = groups[uid] else { return }
        for channel in channels {
            group.followers[channel]?[ObjectIdentifier(connection)] = nil
            guard group.followers[channel]?.isEmpty == true else { continue }
            group.followers[channel] = nil
            events.remove(group.inbox, from: CollectionOfOne(channel), of: uid)
        }
        if group.followers.isEmpty { groups[uid] = nil }
    }

    private func makeInbox(of uid: UInt32) -> EventInbox {
        let me = NIOLoopBound(self, eventLoop: loop)
        return EventInbox(on: loop) { urgency in me.value.deliverEvents(of: uid, urgency) }
    }

    /// Writes queued events while the account has time left; all of them for `.atOnce`.
    private func deliverEvents(of uid: UInt32, _ urgency: EventInbox.Urgency) {
        guard let group = groups[uid] else { return }
        group.account.startRound()
        var unsent: [Connection] = []
        write(eventsOf: group, urgency, &unsent)
        for connection in unsent { connection.sendEvents() }
        group.account.charge()
    }

    /// - Parameter unsent: receives the connections that have to send events.
    private func write(eventsOf group: Group, _ urgency: EventInbox.Urgency, _ unsent: inout [Connection]) {
        // At most this many events precede a logout or purge, even if more are added meanwhile.
        for _ in 0...EventInbox.maximumEvents {
            guard var delivery = group.delivery.take() ?? nextDelivery(of: group) else { return }
            while let connection = delivery.rest.first {
                guard urgency == .atOnce || group.account.mayRun else {
                    group.delivery = delivery
                    return enqueue(group)
                }
                delivery.rest.removeFirst()
                group.account.startCommand()
                let message = delivery.message(connection.version)
                if connection.receive(message, isInvalidation: delivery.isInvalidation, isLast: delivery.isLast) {
                    unsent.append(connection)
                }
            }
        }
        enqueue(group)
    }

    private func nextDelivery(of group: Group) -> Delivery? {
        switch group.inbox.next() {
        case .write(let event, let isLast):
            return Delivery(event, isLast: isLast, to: group.subscribers(of: event.owner.user))
        case .nothing: break
        case .close: for connection in group.followers.values.flatMap(\.values) { connection.dropSubscriber() }
        }
        return nil
    }

    private func enqueue(_ group: Group) {
        guard !group.isEnqueued else { return }
        group.isEnqueued = true
        scheduler.enqueue(group.account) { [self] in
            group.isEnqueued = false
            // Otherwise all subscribers have left.
            if groups[group.uid] === group { deliverEvents(of: group.uid, .soon) }
        }
    }
}

extension UserEvent {
    fileprivate func message(_ version: RESPVersion) -> ByteBuffer {
        .reply {
            $0.writePushHeader(count: 3, version: version)
            $0.writeBulkString("message")
            $0.writeBulkString(owner.user.withBytes { ByteBuffer(bytes: $0) })
            $0.writeBulkString(payload)
        }
    }

    /// Words separated by one space. The profile is the rest after the second space.
    private var payload: ByteBuffer {
        func words(_ name: String, _ profile: OpaqueID? = nil) -> ByteBuffer {
            var text = ByteBuffer(string: "\(name) \(epoch)")
            profile?.withBytes { bytes in
                text.writeStaticString(" ")
                text.writeBytes(bytes)
            }
            return text
        }
        return switch kind {
        case .login: words("login")
        case .logout: words("logout")
        case .purge(let profile): words("purge", profile)
        case .update(let profile): words("update", profile)
        }
    }
}
