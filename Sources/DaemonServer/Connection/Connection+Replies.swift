import CacheCore
import DequeModule
import NIOCore
import ThumbcacheProtocol

// How what the domain answers looks on the wire. Pure: everything goes into the buffer handed in.

extension CommandError {
    /// How a failure of the cache reads on the wire.
    init(_ failure: CacheFailure) {
        switch failure {
        case .notLoggedIn: self.init(.noLogin, "this user is not logged in: LOGIN comes first")
        case .cancelled: self.init(.cancelled, "the user was logged out or purged while this request waited")
        case .invalid(let reason): self.init(.err, reason)
        case .denied(let reason): self.init(.denied, reason)
        case .timedOut(let reason): self.init(.timeout, reason)
        case .origin(let reason), .forbidden(let reason): self.init(.origin, reason)
        case .unauthorized(let reason): self.init(.unauthorized, reason)
        case .badImage(let reason): self.init(.badImage, reason)
        case .tooLarge(let reason): self.init(.tooLarge, reason)
        case .busy(let reason): self.init(.busy, reason)
        case .noSpace(let reason): self.init(.noSpace, reason)
        case .inputOutput(let reason): self.init(.ioErr, reason)
        case .shuttingDown: self = .stopping
        }
    }

    static let stopping = CommandError(.shuttingDown, "the daemon is stopping: connect again in a moment")

    static let subscribed = CommandError(
        .err,
        "this connection is subscribed: it takes SUBSCRIBE, UNSUBSCRIBE, PING, QUIT and RESET, and the other commands "
            + "if HELLO 3 came first")

    /// An error thrown by what runs a command.
    init(_ error: any Error) {
        switch error {
        case let error as CommandError: self = error
        case let failure as CacheFailure: self.init(failure)
        default: self.init(.ioErr, "\(error)")
        }
    }
}

extension ByteBuffer {
    static func error(_ error: CommandError) -> ByteBuffer {
        reply { $0.writeRESPError(code: error.code.rawValue, message: error.message) }
    }

    static var ok: ByteBuffer { reply { $0.writeSimpleString("OK") } }

    mutating func writeReceipt(_ receipt: Receipt, _ version: RESPVersion) {
        writeMapHeader(count: ReceiptKey.allCases.count, version: version)
        for key in ReceiptKey.allCases {
            writeBulkString(key.rawValue)
            switch key {
            case .users: writeRESPInteger(receipt.users)
            case .images: writeInteger(receipt.usage?.images, version)
            case .bytes: writeInteger(receipt.usage?.bytes, version)
            case .cancelled: writeRESPInteger(receipt.cancelled)
            case .sessions: writeRESPInteger(receipt.sessions)
            case .epoch: writeRESPInteger(Int(receipt.epoch))
            }
        }
    }

    mutating func writeStatus(_ status: UserSessions.Status, _ version: RESPVersion) {
        writeMapHeader(count: StatKey.allCases.count, version: version)
        for key in StatKey.allCases {
            writeBulkString(key.rawValue)
            switch key {
            case .images: writeInteger(status.usage?.images, version)
            case .bytes: writeInteger(status.usage?.bytes, version)
            case .sessions: writeRESPInteger(status.sessions)
            case .origin:
                if let origin = status.origin { writeBulkString(origin) } else { writeNull(version: version) }
            case .loggedInAt: writeRESPInteger(Int(status.loggedInAt))
            case .epoch: writeRESPInteger(Int(status.epoch))
            }
        }
    }

    /// META, or with `keys` that leave the image out, STAT of a profile.
    mutating func writeMeta(
        _ served: ServedImage, keys: [MetaKey], epoch: UInt64, now: Int64, _ version: RESPVersion
    ) {
        let record = served.image.record
        writeMapHeader(count: keys.count, version: version)
        for key in keys {
            writeBulkString(key.rawValue)
            switch key {
            case .image: writeImmutableBuffer(served.image.bytes.framed)
            case .digest: writeBulkString(record.digest.hex)
            case .type: writeBulkString(record.shape.kind.mediaType)
            case .length: writeRESPInteger(served.image.bytes.count)
            case .width: writeRESPInteger(Int(record.shape.width))
            case .height: writeRESPInteger(Int(record.shape.height))
            case .age: writeRESPInteger(Int(record.freshness.age(at: now)))
            case .ttl: writeInteger(record.freshness.timeToLive(at: now).map { Int($0) }, version)
            case .state: writeBulkString(record.freshness.isFresh(at: now) ? "fresh" : "stale")
            case .source: writeBulkString(served.source.rawValue)
            case .epoch: writeRESPInteger(Int(epoch))
            case .rendered:
                if let source = record.madeFrom { writeBulkString(source.hex) } else { writeNull(version: version) }
            }
        }
    }

    private mutating func writeInteger(_ value: Int?, _ version: RESPVersion) {
        if let value { writeRESPInteger(value) } else { writeNull(version: version) }
    }
}

/// What a request for an image wants to see of it.
struct ImageReplyShape: Sendable {
    /// Keys of a map; nil for the image alone.
    var keys: [MetaKey]?
    /// A digest with which the answer is UNCHANGED: 64 lower-case hexadecimal digits.
    var ifNot: ByteBuffer?

    /// The same, to be kept beyond the request it came with.
    func detached() -> ImageReplyShape {
        ImageReplyShape(keys: keys, ifNot: ifNot.map { ByteBuffer(bytes: $0.readableBytesView) })
    }

    /// - Parameter epoch: of the cache that answers.
    func reply(_ outcome: GetOutcome, epoch: UInt64, now: Int64, _ version: RESPVersion) -> ByteBuffer {
        switch outcome {
        case .failure(let failure):
            return .error(CommandError(failure))
        case .success(nil):
            return .reply { $0.writeNull(kind: keys == nil ? .bulk : .map, version: version) }
        case .success(let served?):
            if let ifNot, ifNot.readableBytesView.elementsEqual(served.image.record.digest.hex.utf8) {
                return .reply { $0.writeSimpleString("UNCHANGED") }
            }
            guard let keys else { return served.image.bytes.framed }
            return .reply { $0.writeMeta(served, keys: keys, epoch: epoch, now: now, version) }
        }
    }
}

/// Replies of one connection in the order of their requests. What is ready before its turn waits here.
struct ReplyQueue {
    /// Names a reply that is still to come.
    struct ReplySlot: Hashable, Sendable {
        fileprivate let number: UInt64
    }

    private var replies: Deque<ByteBuffer?> = []
    /// Number of the reply at the front.
    private var front: UInt64 = 0
    /// Bytes of replies that are ready and wait for their turn.
    private var readyBytes = 0

    /// Whether every request so far has been answered.
    var isEmpty: Bool { replies.isEmpty }
    /// Bytes of memory that the queue takes up, about. Thousands of short replies may wait for a long one: so an entry,
    /// and the buffer around its bytes, count too.
    var cost: Int { readyBytes + replies.count * 128 }

    /// Adds an entry for a reply that comes later.
    mutating func reserve() -> ReplySlot {
        replies.append(nil)
        return ReplySlot(number: front + UInt64(replies.count) - 1)
    }

    /// Adds a reply that is ready but has others before it.
    mutating func append(_ reply: ByteBuffer) {
        replies.append(reply)
        readyBytes += reply.readableBytes
    }

    /// Fills an entry that was reserved. A second answer to the same ticket is not taken.
    mutating func fill(_ replySlot: ReplySlot, with reply: ByteBuffer) {
        guard replySlot.number >= front else { return }
        let index = Int(replySlot.number - front)
        guard replies.indices.contains(index), replies[index] == nil else { return }
        replies[index] = reply
        readyBytes += reply.readableBytes
    }

    /// The reply whose turn it is, if it is ready.
    mutating func popReady() -> ByteBuffer? {
        guard let first = replies.first, let reply = first else { return nil }
        replies.removeFirst()
        front += 1
        readyBytes -= reply.readableBytes
        return reply
    }
}
