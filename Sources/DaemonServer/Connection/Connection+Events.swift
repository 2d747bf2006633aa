import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The subscriptions of a connection: channels of users of its uid.
struct Subscriptions {
    /// The number of the last event before the first subscription.
    let since: UInt64
    /// Events that wait for the end of an array.
    var delayed: [ByteBuffer] = []
    var channels: Set<EventHub.Channel> = []
    /// Approximate memory in bytes.
    private(set) var cost = 0

    init(since: UInt64) { self.since = since }

    static func cost(of channel: EventHub.Channel) -> Int { 600 + 2 * channel.name.readableBytes }

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
        var subscriptions = subscriptions ?? Subscriptions(since: subscribers.lastEventNumber(of: peer.uid))
        for channel in channels where subscriptions.insert(channel) { subscribers.add(self, to: channel) }
        self.subscriptions = subscriptions
    }

    /// - Parameter targets: empty for all.
    func unsubscribe(_ targets: [UserTarget]) {
        let channels = targets.isEmpty ? Array(subscriptions?.channels ?? []) : targets.map(\.channel)
        afterReplies { [self] in
            deliverDelayedEvents()
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

    /// Sends events.
    /// - Parameter isInvalidation: whether one of them is a logout or purge, whose receipt follows. Then the connection is
    ///   closed if the socket does not take all output.
    func receive(_ messages: [ByteBuffer], isInvalidation: Bool) {
        guard subscriptions != nil else { return }
        if isInsideArray { return delay(messages, isInvalidation: isInvalidation) }
        let before = unread
        if messages.count == 1 && gathered.readableBytes == 0 && !stream.isBlocked && hasRoom {
            // The most frequent case, without a copy.
            stream.send(messages[0])
        } else {
            guard write(messages) else { return }
        }
        context.services.counters.count(.eventsSent, messages.count)
        // Without output before and after the events, the memory is unchanged.
        if before > 0 || unread > 0 { sendEvents(isInvalidation: isInvalidation) }
    }

    /// Returns false after closing the connection for lack of room.
    private func write(_ messages: [ByteBuffer]) -> Bool {
        for message in messages {
            guard hasRoomForEvent else {
                dropSubscriber()
                return false
            }
            gathered.writeImmutableBuffer(message)
        }
        return true
    }

    private var hasRoomForEvent: Bool {
        if hasRoom { return true }
        flush()
        return !isClosed && hasRoom
    }

    private func sendEvents(isInvalidation: Bool) {
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

    /// A push must not interrupt a reply.
    private func delay(_ messages: [ByteBuffer], isInvalidation: Bool) {
        let count = messages.count + (subscriptions?.delayed.count ?? 0)
        guard !isInvalidation, count <= EventInbox.maximumEvents else {
            return dropSubscriber("disconnected a subscriber: an event could not wait for the end of an array")
        }
        subscriptions?.delayed += messages
    }

    /// Sends the events that an unfinished array has delayed.
    func deliverDelayedEvents() {
        guard isInsideArray, batch == nil, replies.isEmpty else { return }
        isInsideArray = false
        guard let delayed = subscriptions?.delayed, !delayed.isEmpty else { return }
        subscriptions?.delayed = []
        receive(delayed, isInvalidation: false)
    }

    func dropSubscriber(_ reason: Logger.Message = "disconnected a subscriber that does not read its events") {
        guard !isClosed else { return }
        context.services.counters.count(.subscribersDropped)
        context.sessions.accountLog.write(
            reason, uid: peer.uid,
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
