import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The subscriptions of a connection: channels of users of its uid.
struct Subscriptions {
    /// Events that wait for the end of an array.
    var delayed: [ByteBuffer] = []
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
        var subscriptions = subscriptions ?? Subscriptions()
        for channel in channels where subscriptions.insert(channel) { subscribers.add(self, to: channel) }
        self.subscriptions = subscriptions
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
        guard subscriptions?.remove(channel) == true else { return }
        subscribers.remove(self, from: CollectionOfOne(channel))
        if subscriptions?.channels.isEmpty == true { subscriptions = nil }
    }

    func unsubscribe() {
        guard let all = subscriptions.take() else { return }
        subscribers.remove(self, from: all.channels)
    }

    /// Writes an event, and sends it if it is the last one or an invalidation.
    /// - Parameter isLast: whether no event follows yet.
    /// - Returns: whether ``sendEvents(isInvalidation:)`` has to be called.
    func receive(_ message: ByteBuffer, isInvalidation: Bool, isLast: Bool) -> Bool {
        // The subscription may have ended while the event waited.
        guard subscriptions != nil else { return false }
        if isInsideArray {
            delay(message, isInvalidation: isInvalidation)
            return false
        }
        guard hasRoomForEvent else {
            dropSubscriber()
            return false
        }
        context.services.counters.count(.eventsSent)
        let before = unread
        // Sends a single event, the most frequent case, without a copy.
        if isLast && gathered.readableBytes == 0 && !stream.isBlocked {
            stream.send(message)
            // Without output before and after the event, the memory is unchanged.
            if before == 0 && unread == 0 { return false }
        } else {
            gathered.writeImmutableBuffer(message)
        }
        if isInvalidation {
            sendEvents(isInvalidation: true)
            return false
        }
        defer { hasUnsentEvents = true }
        return !hasUnsentEvents
    }

    /// A push must not interrupt a reply.
    private func delay(_ message: ByteBuffer, isInvalidation: Bool) {
        guard !isInvalidation, let count = subscriptions?.delayed.count, count < EventInbox.maximumEvents else {
            return dropSubscriber()
        }
        subscriptions?.delayed.append(message)
    }

    /// Writes the events that an unfinished array has delayed.
    func deliverDelayedEvents() {
        guard isInsideArray, batch == nil, replies.isEmpty else { return }
        isInsideArray = false
        let delayed = subscriptions?.delayed ?? []
        subscriptions?.delayed = []
        for message in delayed { _ = receive(message, isInvalidation: false, isLast: false) }
        if !delayed.isEmpty { sendEvents() }
    }

    private var hasRoomForEvent: Bool {
        if hasRoom { return true }
        flush()
        return !isClosed && hasRoom
    }

    func sendEvents(isInvalidation: Bool = false) {
        hasUnsentEvents = false
        flush()
        if unread > 0 && isInvalidation {
            // Retries even if the socket was full: the peer may have read since.
            writeGathered()
            stream.flush(yieldsToOthers: false)
        }
        guard !isClosed else { return }
        if isInvalidation && unread > 0 { return dropSubscriber() }
        updateMemory()
        watch()
    }

    func dropSubscriber() {
        guard !isClosed else { return }
        context.services.counters.count(.subscribersDropped)
        context.sessions.accountLog.write(
            "disconnected a subscriber that does not read its events", uid: peer.uid,
            ["pid": "\(peer.pid)", "unread": "\(unread)"], at: context.services.time.now)
        stream.close()
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
