import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// What a connection follows: users of its uid.
struct Subscriptions {
    let inbox: EventInbox
    var channels: Set<EventHub.Channel> = []
    /// Bytes that they take up, about.
    private(set) var cost = 0

    static func cost(of channel: EventHub.Channel) -> Int { 400 + 2 * channel.name.readableBytes }

    /// Whether it was not there.
    mutating func insert(_ channel: EventHub.Channel) -> Bool {
        guard channels.insert(channel).inserted else { return false }
        cost += Self.cost(of: channel)
        return true
    }

    mutating func remove(_ channel: EventHub.Channel) -> Bool {
        guard channels.remove(channel) != nil else { return false }
        cost -= Self.cost(of: channel)
        return true
    }
}

/// SUBSCRIBE, UNSUBSCRIBE, and the events that come of them, as Redis's Pub/Sub has them: messages under version 2 of
/// the protocol, pushes under version 3.
///
/// Endings are written before their receipts are (I3 for what clients keep). A peer that has not taken what was sent
/// before cannot take them: it is disconnected, and by that knows that it has missed something.
extension Connection {
    /// Under version 2 a reply could not be told from a message: so nothing is answered but what is about the
    /// subscriptions.
    var takesEventsOnly: Bool { version == .two && subscriptions != nil }

    func subscribe(_ targets: [UserTarget]) {
        let channels = targets.map(\.channel)
        // Behind all replies: a message would else come between a version 2 client and what it waits for.
        afterReplies { [self] in
            var all = subscriptions?.channels ?? []
            var confirmations = ByteBuffer()
            var cost = 0
            for channel in channels {
                if all.insert(channel).inserted { cost += Subscriptions.cost(of: channel) }
                confirmations.writeConfirmation("subscribe", channel, count: all.count, version)
            }
            guard all.count <= limits.subscriptions else {
                let reason = "this connection would follow \(all.count) users (limit subscriptions, "
                return respond(.error(CommandError(.busy, reason + "\(limits.subscriptions)): unsubscribe from some")))
            }
            guard makeRoom(forReply: confirmations.readableBytes + cost) else { return respond(noRoom) }
            // To make room is to send, by which the peer may turn out to be gone. Nobody would ever unsubscribe it.
            guard !isClosed else { return }
            follow(channels)
            respond(confirmations)
        }
    }

    private func follow(_ channels: [EventHub.Channel]) {
        var subscriptions = subscriptions ?? Subscriptions(inbox: makeInbox())
        for channel in channels where subscriptions.insert(channel) {
            _ = context.services.events.add(subscriptions.inbox, to: channel, of: peer.uid)
        }
        self.subscriptions = subscriptions
    }

    private func makeInbox() -> EventInbox {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        return EventInbox { urgency in loop.execute { me.value.tellEvents(urgency) } }
    }

    /// - Parameter targets: none for all there are.
    func unsubscribe(_ targets: [UserTarget]) {
        let channels = targets.isEmpty ? Array(subscriptions?.channels ?? []) : targets.map(\.channel)
        afterReplies { [self] in
            var confirmations = ByteBuffer()
            for channel in channels {
                leave(channel)
                let count = subscriptions?.channels.count ?? 0
                confirmations.writeConfirmation("unsubscribe", channel, count: count, version)
            }
            if channels.isEmpty { confirmations.writeConfirmation("unsubscribe", nil, count: 0, version) }
            respond(confirmations)
        }
    }

    private func leave(_ channel: EventHub.Channel) {
        // In place: a copy of all channels for each that is left would be quadratic.
        guard subscriptions?.remove(channel) == true, let inbox = subscriptions?.inbox else { return }
        context.services.events.remove(inbox, from: CollectionOfOne(channel), of: peer.uid)
        if subscriptions?.channels.isEmpty == true { subscriptions = nil }
    }

    /// From everybody, without a word.
    func unsubscribe() {
        guard let all = subscriptions.take() else { return }
        context.services.events.remove(all.inbox, from: all.channels, of: peer.uid)
    }

    // MARK: Events

    /// Writes what has been told, as far as the account has time left, or all of it.
    private func tellEvents(_ urgency: EventInbox.Urgency) {
        guard !isClosed, let inbox = subscriptions?.inbox else { return }
        if isInsideArray && !inbox.isOverrun {
            // A push stands between replies, and never within one.
            if urgency == .atOnce { dropSubscriber() }
            return
        }
        defer { share.charge() }
        share.begin()
        // An ending has no more before it, whatever is told meanwhile.
        for _ in 0...EventInbox.most where urgency == .atOnce || share.mayGoOn {
            guard !inbox.isOverrun, hasRoomForEvent else { return dropSubscriber() }
            guard let event = inbox.next() else { return sendEvents(urgency) }
            share.beginCommand()
            writeEvent(event)
        }
        sendEvents(urgency)
        share.goOnLater { [self] in tellEvents(.soon) }
    }

    /// What was told while an array was being sent.
    func tellEventsThatWaited() {
        guard isInsideArray, batch == nil, replies.isEmpty else { return }
        isInsideArray = false
        tellEvents(.soon)
    }

    private var hasRoomForEvent: Bool {
        if hasRoom { return true }
        flush()
        return !isClosed && hasRoom
    }

    private func sendEvents(_ urgency: EventInbox.Urgency) {
        flush()
        if urgency == .atOnce {
            // Also where the kernel took nothing when it was asked last: the peer may have read since.
            writeGathered()
            stream.flushNow()
        }
        guard !isClosed else { return }
        if urgency == .atOnce && unread > 0 { return dropSubscriber() }
        updateMemory()
        watch()
    }

    private func dropSubscriber() {
        guard !isClosed else { return }
        context.services.counters.count(.subscribersDropped)
        context.sessions.uidLog.write(
            "disconnected a subscriber that does not read its events", uid: peer.uid,
            ["pid": "\(peer.pid)", "unread": "\(unread)"], at: context.services.time.now)
        stream.close()
    }

    private func writeEvent(_ event: UserEvent) {
        context.services.counters.count(.eventsTold)
        gathered.writePushHeader(count: 3, version: version)
        gathered.writeBulkString("message")
        event.owner.user.withBytes { gathered.writeBulkString($0) }
        gathered.writeBulkString(event.payload)
    }
}

extension UserEvent {
    /// Words with one space between them; a profile is all that stands behind the second one.
    fileprivate var payload: ByteBuffer {
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

extension UserTarget {
    /// Kept beyond the request it came with.
    fileprivate var channel: EventHub.Channel {
        switch self {
        case .all: .all
        case .user(let user): .user(OpaqueID(user).detached())
        }
    }
}

extension EventHub.Channel {
    fileprivate var name: ByteBuffer {
        switch self {
        case .all: ByteBuffer(string: "*")
        case .user(let user): user.withBytes { ByteBuffer(bytes: $0) }
        }
    }
}

extension ByteBuffer {
    /// - Parameter channel: nil where there was none.
    fileprivate mutating func writeConfirmation(
        _ kind: String, _ channel: EventHub.Channel?, count: Int, _ version: RESPVersion
    ) {
        writePushHeader(count: 3, version: version)
        writeBulkString(kind)
        if let channel { writeBulkString(channel.name) } else { writeNull(version: version) }
        writeRESPInteger(count)
    }
}
