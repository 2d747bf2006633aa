import CacheCore
import NIOCore
import ThumbcacheProtocol

// Encoding of the domain's results as replies.

extension CommandError {
    init(_ failure: CacheFailure) {
        switch failure {
        case .notLoggedIn: self.init(.noLogin, "\(failure)")
        case .cancelled: self.init(.cancelled, "\(failure)")
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

    static let stopping = CommandError(.shuttingDown, "the daemon is stopping; reconnect in a moment")

    static let subscribed = CommandError(
        .err,
        "a subscribed RESP2 connection accepts only SUBSCRIBE, UNSUBSCRIBE, PING, QUIT and RESET; send HELLO 3 before "
            + "SUBSCRIBE to use other commands")

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

    mutating func writeExplanation(_ explanation: Explanation, _ version: RESPVersion) {
        let held = explanation.held
        writeMapHeader(count: ExplainKey.allCases.count, version: version)
        for key in ExplainKey.allCases {
            writeBulkString(key.rawValue)
            switch key {
            case .action: writeBulkString(explanation.action.rawValue)
            case .error:
                let error = explanation.failure.map { CommandError($0) }
                writeText(error.map { "\($0.code.rawValue) \($0.message)" }, version)
            case .held: writeText(held?.place.rawValue, version)
            case .from: writeText(held.map { $0.host ?? ServedImage.Source.put.rawValue }, version)
            case .age: writeInteger(held.map { Int($0.age) }, version)
            case .ttl: writeInteger(held?.timeToLive.map { Int($0) }, version)
            case .state: writeText(held.map { $0.isFresh ? "fresh" : "stale" }, version)
            case .origin: writeText(explanation.origin, version)
            case .upstreams:
                writeArrayHeader(count: explanation.upstreams.count)
                for upstream in explanation.upstreams { writeUpstream(upstream, version) }
            case .retryIn: writeInteger(explanation.retryIn.map { Int($0) }, version)
            case .waiting: writeInteger(explanation.waiting, version)
            case .size: writeInteger(explanation.size == 0 ? nil : Int(explanation.size), version)
            case .source:
                if let source = explanation.source.first {
                    writeExplanation(source, version)
                } else {
                    writeNull(kind: .map, version: version)
                }
            }
        }
    }

    private mutating func writeUpstream(_ upstream: Explanation.Upstream, _ version: RESPVersion) {
        writeMapHeader(count: UpstreamKey.allCases.count, version: version)
        for key in UpstreamKey.allCases {
            writeBulkString(key.rawValue)
            switch key {
            case .host: writeBulkString(upstream.host)
            case .state: writeBulkString(upstream.state.rawValue)
            case .age: writeInteger(upstream.age.map { Int($0) }, version)
            case .retryIn: writeInteger(upstream.retryIn.map { Int($0) }, version)
            }
        }
    }

    private mutating func writeText(_ text: String?, _ version: RESPVersion) {
        if let text { writeBulkString(text) } else { writeNull(version: version) }
    }

    fileprivate mutating func writeInteger(_ value: Int?, _ version: RESPVersion) {
        if let value { writeRESPInteger(value) } else { writeNull(version: version) }
    }
}

extension Reply {
    /// The map of META, or with keys without `image`, of STAT.
    static func meta(
        _ served: ServedImage, keys: [MetaKey], epoch: UInt64, now: Int64, _ version: RESPVersion
    ) -> Reply {
        let record = served.image.record
        // With an image, it is the first key.
        var bytes = ByteBufferAllocator().buffer(capacity: keys.first == .image ? 32 : 512)
        var first: ByteBuffer?
        bytes.writeMapHeader(count: keys.count, version: version)
        for key in keys {
            bytes.writeBulkString(key.rawValue)
            switch key {
            case .image:
                first = bytes
                bytes = ByteBufferAllocator().buffer(capacity: 512)
            case .digest: bytes.writeBulkString(record.digest.hex)
            case .type: bytes.writeBulkString(record.shape.kind.mediaType)
            case .length: bytes.writeRESPInteger(served.image.bytes.count)
            case .width: bytes.writeRESPInteger(Int(record.shape.width))
            case .height: bytes.writeRESPInteger(Int(record.shape.height))
            case .age: bytes.writeRESPInteger(Int(record.freshness.age(at: now)))
            case .ttl: bytes.writeInteger(record.freshness.timeToLive(at: now).map { Int($0) }, version)
            case .state: bytes.writeBulkString(record.freshness.isFresh(at: now) ? "fresh" : "stale")
            case .source: bytes.writeBulkString(served.source.rawValue)
            case .epoch: bytes.writeRESPInteger(Int(epoch))
            case .rendered:
                if let source = record.renderedFrom {
                    bytes.writeBulkString(source.hex)
                } else {
                    bytes.writeNull(version: version)
                }
            }
        }
        guard let first else { return Reply(bytes) }
        return Reply(first, image: served.image.bytes.framed, rest: bytes)
    }
}
