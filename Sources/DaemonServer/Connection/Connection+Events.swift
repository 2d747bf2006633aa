import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The subscriptions of a connection: channels of users of its uid.
struct Subscriptions {
    let inbox: EventInbox
    var channels: Set<EventHub.Channel> = []
    /// Approximate memory in bytes.
    private(set) var cost = 0

    static func cost(of channel: EventHub.Channel) -> Int { 400 + 2 * channel.name.readableBytes }

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

/// SUBSCRIBE, UNSUBSCRIBE and events, as in Redis's Pub/Sub: messages in RESP2, pushes in RESP3.
///
/// The event of a logout or purge is sent before its receipt, so that clients can discard their copies (I3). A
/// subscriber whose output is not empty then is disconnected, and so notices that it missed an event.
extension Connection {
    /// Whether only commands about subscriptions are valid: in RESP2, other replies could not be told from messages.
    var acceptsEventsOnly: Bool { version == .two && subscriptions != nil }

    func subscribe(_ targets: [UserTarget]) {
        let channels = targets.map(\.channel)
        // After all pending replies: in RESP2 a message between them would be taken for a reply.
        afterReplies { [self] in
            var all = subscriptions?.channels ?? []
            var confirmations = ByteBuffer()
            var cost = 0
            for channel in channels {
                if all.insert(channel).inserted { cost += Subscriptions.cost(of: channel) }
                confirmations.writeConfirmation("subscribe", channel, count: all.count, version)
            }
            guard all.count <= limits.subscriptions else {
                let reason = "limits.subscriptions: this connection would have \(all.count) subscriptions, at most "
                return replyNow(.error(CommandError(.busy, reason + "\(limits.subscriptions); unsubscribe from some")))
            }
            guard makeRoom(forReply: confirmations.readableBytes + cost) else { return replyNow(noRoom) }
            // makeRoom may have closed the connection, which would then never be unsubscribed.
            guard !isClosed else { return }
            add(channels)
            replyNow(confirmations)
        }
    }

    private func add(_ channels: [EventHub.Channel]) {
        var subscriptions = subscriptions ?? Subscriptions(inbox: makeInbox())
        for channel in channels where subscriptions.insert(channel) {
            _ = context.services.events.add(subscriptions.inbox, to: channel, of: peer.uid)
        }
        self.subscriptions = subscriptions
    }

    private func makeInbox() -> EventInbox {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        return EventInbox(on: eventLoop) { urgency in me.value.deliverEvents(urgency) }
    }

    /// - Parameter targets: empty for all.
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
            replyNow(confirmations)
        }
    }

    private func leave(_ channel: EventHub.Channel) {
        // In place: copying all channels for each one would be quadratic.
        guard subscriptions?.remove(channel) == true, let inbox = subscriptions?.inbox else { return }
        context.services.events.remove(inbox, from: CollectionOfOne(channel), of: peer.uid)
        if subscriptions?.channels.isEmpty == true { subscriptions = nil }
    }

    func unsubscribe() {
        guard let all = subscriptions.take() else { return }
        context.services.events.remove(all.inbox, from: all.channels, of: peer.uid)
    }

    /// Writes queued events while the account has time left; all of them for `.atOnce`.
    private func deliverEvents(_ urgency: EventInbox.Urgency) {
        guard !isClosed, let inbox = subscriptions?.inbox else { return }
        if isInsideArray && !inbox.isOverrun {
            // A push must not interrupt a reply.
            if urgency == .atOnce { dropSubscriber() }
            return
        }
        defer { loopAccount.charge() }
        loopAccount.startRound()
        let before = unread
        // At most this many events precede a logout or purge, even if more are added meanwhile.
        for _ in 0...EventInbox.maximumEvents {
            guard urgency == .atOnce || loopAccount.mayRun else { break }
            guard hasRoomForEvent else { return dropSubscriber() }
            switch inbox.next() {
            case .close: return dropSubscriber()
            case .nothing: return sendEvents(urgency, since: before)
            case .write(let published, let isLast):
                loopAccount.startCommand()
                write(published, isLast: isLast)
                if isLast { return sendEvents(urgency, since: before) }
            }
        }
        sendEvents(urgency, since: before)
        scheduler.enqueue(loopAccount) { [self] in deliverEvents(.soon) }
    }

    /// Writes the events that an unfinished array has delayed.
    func deliverDelayedEvents() {
        guard isInsideArray, batch == nil, replies.isEmpty else { return }
        isInsideArray = false
        deliverEvents(.soon)
    }

    private var hasRoomForEvent: Bool {
        if hasRoom { return true }
        flush()
        return !isClosed && hasRoom
    }

    /// - Parameter before: the unread output before the events were written.
    private func sendEvents(_ urgency: EventInbox.Urgency, since before: Int) {
        flush()
        if unread > 0 && urgency == .atOnce {
            // Retries even if the socket was full: the peer may have read since.
            writeGathered()
            stream.flush(yieldsToOthers: false)
        }
        guard !isClosed else { return }
        if urgency == .atOnce && unread > 0 { return dropSubscriber() }
        // Without output before and after the events, the memory is unchanged.
        guard before > 0 || unread > 0 else { return }
        updateMemory()
        watch()
    }

    private func dropSubscriber() {
        guard !isClosed else { return }
        context.services.counters.count(.subscribersDropped)
        context.sessions.accountLog.write(
            "disconnected a subscriber that does not read its events", uid: peer.uid,
            ["pid": "\(peer.pid)", "unread": "\(unread)"], at: context.services.time.now)
        stream.close()
    }

    private func write(_ published: PublishedEvent, isLast: Bool) {
        context.services.counters.count(.eventsSent)
        let message = published.encoding(in: version.rawValue) { $0.message(version) }
        // Sends a single event, the most frequent case, without a copy.
        if isLast && gathered.readableBytes == 0 && !stream.isBlocked {
            stream.write(message)
        } else {
            gathered.writeImmutableBuffer(message)
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

extension UserTarget {
    /// A copy that does not retain the request.
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
    /// - Parameter channel: nil if there were no subscriptions.
    fileprivate mutating func writeConfirmation(
        _ kind: String, _ channel: EventHub.Channel?, count: Int, _ version: RESPVersion
    ) {
        writePushHeader(count: 3, version: version)
        writeBulkString(kind)
        if let channel { writeBulkString(channel.name) } else { writeNull(version: version) }
        writeRESPInteger(count)
    }
}
