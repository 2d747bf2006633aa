import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The subscribers on one event loop, by uid. Confined to the loop.
///
/// An event is queued once for all subscribers of its uid, since queueing it for each of them would take longer than
/// sending it. All queued events are delivered together, to one subscriber after another.
final class LoopSubscribers {
    /// The subscribers of one uid.
    private final class Group {
        let uid: UInt32
        let inbox: EventInbox
        let account: LoopAccount
        var channels: [EventHub.Channel: [ObjectIdentifier: Connection]] = [:]
        /// The events that not all subscribers have yet.
        var batch: Batch?
        /// Whether delivery continues in the account's next turn.
        var isEnqueued = false

        init(of uid: UInt32, _ inbox: EventInbox, _ account: LoopAccount) {
            (self.uid, self.inbox, self.account) = (uid, inbox, account)
        }

        /// The indices of the events that a connection has subscribed to.
        func indices(of events: [EventInbox.QueuedEvent], for connection: Connection) -> [Int] {
            guard let since = connection.subscriptions?.since else { return [] }
            let id = ObjectIdentifier(connection)
            let hasAll = channels[.all]?[id] != nil
            var (user, isSubscribed): (OpaqueID?, Bool) = (nil, false)
            return events.indices.filter { index in
                let owner = events[index].event.owner
                // Most consecutive events are of one user.
                if user != owner.user {
                    (user, isSubscribed) = (owner.user, hasAll || channels[.user(owner.user)]?[id] != nil)
                }
                return isSubscribed && since < events[index].number
            }
        }

        /// The subscribers of at least one of these users.
        func subscribers(of users: Set<OpaqueID>) -> [ObjectIdentifier: Connection] {
            users.reduce(into: channels[.all] ?? [:]) { found, user in
                let named = channels[.user(user)] ?? [:]
                if found.isEmpty { found = named } else { found.merge(named) { one, _ in one } }
            }
        }
    }

    private struct Batch {
        let events: [EventInbox.QueuedEvent]
        /// The subscribers that do not have the events yet.
        var rest: ArraySlice<Connection>
        /// Whether subscriptions are checked for each event and subscriber.
        var needsCheck: Bool
        // The encodings of the events.
        private let (two, three): ([ByteBuffer], [ByteBuffer])

        init(_ events: [EventInbox.QueuedEvent], for group: Group) {
            self.events = events
            (two, three) = (events.map { $0.event.message(.two) }, events.map { $0.event.message(.three) })
            let subscribers = group.subscribers(of: Set(events.map(\.event.owner.user))).values
            let newest = events.last?.number ?? 0
            rest = subscribers.filter { ($0.subscriptions?.since ?? .max) < newest }[...]
            needsCheck = events.count > 1
        }

        func messages(_ version: RESPVersion) -> [ByteBuffer] { version == .two ? two : three }
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
        if group.channels[channel] == nil { _ = events.add(group.inbox, to: channel, of: uid) }
        group.channels[channel, default: [:]][ObjectIdentifier(connection)] = connection
    }

    /// The number of the last event of a uid; 0 if it has no subscribers here.
    func lastEventNumber(of uid: UInt32) -> UInt64 { groups[uid]?.inbox.lastNumber ?? 0 }

    func remove(_ connection: Connection, from channels: some Sequence<EventHub.Channel>) {
        let uid = connection.peer.uid
        guard let group = groups[uid] else { return }
        var unused: [EventHub.Channel] = []
        for channel in channels {
            group.channels[channel]?[ObjectIdentifier(connection)] = nil
            guard group.channels[channel]?.isEmpty == true else { continue }
            group.channels[channel] = nil
            unused.append(channel)
        }
        if !unused.isEmpty { events.remove(group.inbox, from: unused, of: uid) }
        if group.channels.isEmpty { groups[uid] = nil }
    }

    private func makeInbox(of uid: UInt32) -> EventInbox {
        let me = NIOLoopBound(self, eventLoop: loop)
        return EventInbox(on: loop) { urgency in me.value.deliverEvents(of: uid, urgency) }
    }

    /// Delivers queued events while the account has time left; all of them for `.atOnce`, which takes milliseconds if
    /// hundreds of subscribers get hundreds of events.
    private func deliverEvents(of uid: UInt32, _ urgency: EventInbox.Urgency) {
        guard let group = groups[uid] else { return }
        group.account.startRound()
        defer { group.account.charge() }
        // At most two batches: the rest of the last one, and the events queued by now. More would delay the receipt of
        // a logout or purge.
        for _ in 0..<2 {
            guard group.batch != nil || !group.inbox.isEmpty else { return }
            guard urgency == .atOnce || group.account.mayRun else { return enqueue(group) }
            guard var batch = group.batch.take() ?? nextBatch(of: group) else { return }
            group.account.charge()
            while let connection = batch.rest.first {
                guard urgency == .atOnce || group.account.mayRun else {
                    // Subscriptions may end before the next turn.
                    batch.needsCheck = true
                    group.batch = batch
                    return enqueue(group)
                }
                batch.rest.removeFirst()
                deliver(batch, to: connection, of: group)
                // The estimated time of a command is too short for many events.
                if batch.events.count > 1 { group.account.charge() }
            }
        }
    }

    /// Disconnects the subscribers if an event was lost.
    private func nextBatch(of group: Group) -> Batch? {
        if let events = group.inbox.removeAll() { return Batch(events, for: group) }
        let reason: Logger.Message = "disconnected a subscriber: too many events of its uid were waiting"
        for connection in group.channels.values.flatMap(\.values) { connection.dropSubscriber(reason) }
        return nil
    }

    private func deliver(_ batch: Batch, to connection: Connection, of group: Group) {
        group.account.startCommand()
        let messages = batch.messages(connection.version)
        guard batch.needsCheck else {
            return connection.receive(messages, isInvalidation: batch.events.contains(where: \.event.isInvalidating))
        }
        let wanted = group.indices(of: batch.events, for: connection)
        guard !wanted.isEmpty else { return }
        connection.receive(
            wanted.map { messages[$0] },
            isInvalidation: wanted.contains { batch.events[$0].event.isInvalidating })
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
