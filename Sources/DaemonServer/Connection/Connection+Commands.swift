import CacheCore
import LinuxSupport
import NIOCore
import ThumbcacheProtocol

// What each command does. The way of a hit is `execute`, `respond`.

extension Connection {
    /// `GET user profile` of an image that memory or the kernel's page cache holds goes no further than this function.
    /// In memory it takes no lock but the user's, if it is whom this connection asked last. Anything else, also what is
    /// wrong, goes on as a ``Command``; to make one first would take a hit 1,000 instructions more, a fifth of all.
    func execute(_ request: Request) {
        guard !takesEventsOnly, let cache = cacheOfPlainGet(request) else { return execute(request, after: nil) }
        let imageKey = ImageKey(profile: request.id(at: 2))
        if let reply = cache.readyReply(imageKey) {
            hits.memory += 1
            return respond(reply)
        }
        let lookup = lookAtDisk(ImageQuery(imageKey: imageKey), in: cache)
        if let served = lookup.image {
            hits.disk += 1
            return respond(served.image.bytes.framed)
        }
        execute(request, after: lookup)
    }

    private func execute(_ request: Request, after lookup: DiskLookup?) {
        defer { share.charge() }
        let command: Command
        // What waits somewhere had better not keep the loop's whole buffer.
        let kept = request.detached()
        do throws(CommandError) {
            command = try Command(kept, limits: limits.command)
            if takesEventsOnly && !command.isTakenBySubscribers { throw .subscribed }
        } catch {
            // Of a LOGIN, it may be. What was detached is a copy.
            request.wipe()
            kept.wipe()
            return respond(.error(error))
        }
        switch command {
        case .get(let get): self.get(get, after: lookup)
        case .mget(let mget): self.mget(mget)
        case .put(let put): self.put(put)
        case .warm(let warm): self.warm(warm)
        case .stat(let stat): self.stat(stat)
        case .login(let login):
            logIn(login)
            request.wipe()
            kept.wipe()
        case .logout(let logout): logOut(logout)
        case .purge(let purge): self.purge(purge)
        case .users: users()
        case .subscribe(let targets): subscribe(targets)
        case .unsubscribe(let targets): unsubscribe(targets)
        case .hello(let hello): self.hello(hello)
        case .ping(let message) where takesEventsOnly:
            respond(
                .reply { buffer in
                    buffer.writeArrayHeader(count: 2)
                    buffer.writeBulkString("pong")
                    buffer.writeBulkString(message ?? ByteBuffer())
                })
        case .ping(nil): respond(.reply { $0.writeSimpleString("PONG") })
        case .ping(let message?), .echo(let message): respond(.reply { $0.writeBulkString(message) })
        case .quit:
            respond(.ok)
            finish()
        case .reset:
            unsubscribe()
            version = .two
            registration.client.name("")
            respond(.reply { $0.writeSimpleString("RESET") })
        case .select: respond(.ok)
        case .client(let client): self.client(client)
        case .command(let query): respond(context.commands.reply(to: query, version: version))
        case .info(let sections): info(sections)
        case .metrics: metrics()
        }
    }

    private func info(_ sections: [String]) {
        // This request, and those that came with it, too.
        recordCounts()
        let beforehand = context.info.beforehand(sections)
        guard !beforehand.isEmpty else { return respond(infoReply(sections)) }
        let replySlot = startBarrier()
        run {
            for find in beforehand { await find() }
        } then: { connection, _ in
            defer { connection.share.charge() }
            connection.endBarrier(replySlot, with: connection.infoReply(sections))
        }
    }

    private func infoReply(_ sections: [String]) -> ByteBuffer {
        let text = context.info.text(sections, for: peer) {
            context.sessions.figures(of: peer.isObserver ? nil : peer.uid)
        }
        let version = version
        return .reply { $0.writeVerbatimString(text, version: version) }
    }

    /// For observers: it has figures of everybody.
    private func metrics() {
        guard peer.isObserver else {
            let reason =
                "METRICS: you are uid \(peer.uid), and only admins and observers may ask for it (access.observers)"
            return respond(.error(CommandError(.denied, reason)))
        }
        let (metrics, version) = (context.metrics, version)
        lifecycle {
            let text = await metrics.text()
            return .reply { $0.writeVerbatimString(text, version: version) }
        }
    }

    // MARK: The connection itself

    private func hello(_ command: HelloCommand) {
        if command.hasAuth {
            let reason = "AUTH is not needed: the kernel says that you are uid \(peer.uid)"
            return respond(.error(CommandError(.err, reason)))
        }
        if let version = command.version.flatMap(RESPVersion.init) {
            if version != self.version && subscriptions != nil {
                let reason = "HELLO \(version.rawValue): this connection is subscribed; UNSUBSCRIBE first"
                return respond(.error(CommandError(.err, reason)))
            }
            self.version = version
        }
        if let name = command.name { registration.client.name(String(buffer: name)) }
        respond(
            .reply { buffer in
                buffer.writeMapHeader(count: HelloKey.allCases.count, version: version)
                for key in HelloKey.allCases {
                    buffer.writeBulkString(key.rawValue)
                    switch key {
                    case .server: buffer.writeBulkString("thumbcached")
                    case .version: buffer.writeBulkString(Version.current)
                    case .proto: buffer.writeRESPInteger(version.rawValue)
                    case .id: buffer.writeRESPInteger(Int(registration.client.id))
                    case .mode: buffer.writeBulkString("standalone")
                    case .role: buffer.writeBulkString("master")
                    case .modules: buffer.writeArrayHeader(count: 0)
                    }
                }
            })
    }

    private func client(_ command: ClientCommand) {
        switch command {
        case .id: respond(.reply { $0.writeRESPInteger(Int(registration.client.id)) })
        case .list:
            let text = context.registry.list(for: peer, now: .now())
            respond(.reply { $0.writeVerbatimString(text, version: version) })
        case .getName:
            let name = registration.client.labels.name
            respond(.reply { name.isEmpty ? $0.writeNull(version: version) : $0.writeBulkString(name) })
        case .setName(let name):
            registration.client.name(String(buffer: name))
            respond(.ok)
        case .setInfo(let key, let value):
            registration.client.label(key, String(buffer: value))
            respond(.ok)
        case .capabilities: respond(.ok)
        }
    }

    // MARK: Users

    func owner(_ user: ByteBuffer) -> Owner {
        Owner(uid: peer.uid, user: OpaqueID(user))
    }

    /// Finds a user that is not known to be open: on disk, or behind the log-out or purge that is under way.
    ///
    /// - Parameters:
    ///   - kind: the null that answers for a user who is not logged in; an error if nil.
    ///   - keepsBarrier: whether later commands wait on once the user is found.
    func lookUp(
        _ user: ByteBuffer, orNull kind: NullKind? = nil, keepsBarrier: Bool = false,
        then: @escaping @Sendable (Connection, UserCache, ReplyQueue.ReplySlot) -> Void
    ) {
        let replySlot = startBarrier()
        let owner = self.owner(user)
        let sessions = context.sessions
        run {
            try await sessions.cache(owner)
        } then: { connection, result in
            switch result {
            case .success(let cache):
                guard !connection.isClosed else { return connection.endBarrier() }
                if !keepsBarrier { connection.endBarrier() }
                then(connection, cache, replySlot)
                connection.work()
            case .failure(CacheFailure.notLoggedIn) where kind != nil:
                let version = connection.version
                connection.endBarrier(replySlot, with: .reply { $0.writeNull(kind: kind ?? .bulk, version: version) })
            case .failure(let error):
                connection.endBarrier(replySlot, with: .error(CommandError(error)))
            }
        }
    }
}

/// What a connection has received and not yet worked on, and the requests it amounts to.
struct RequestReader {
    private var decoder: RequestDecoder
    /// What the decoder reads. The requests it gives share this storage.
    private(set) var front = ByteBuffer()
    /// What came after it. No request has a share in it, so adding to it never copies what is there.
    private(set) var behind = ByteBuffer()
    /// What came last was lent, and one of the two may still stand on it.
    private var isLent = false
    /// Requests given so far.
    private(set) var count = 0

    init(limits: RequestLimits) {
        decoder = RequestDecoder(limits: limits)
    }

    /// Bytes received that belong to no request given so far.
    var readableBytes: Int { front.readableBytes + behind.readableBytes }

    /// Whether the peer owes the rest of a frame. False as long as there are bytes that nobody has looked at.
    var isInsideFrame: Bool { decoder.isInsideFrame && behind.readableBytes == 0 }

    /// Bytes that the peer is known to owe, of the argument it is in the middle of. 0 if unknown.
    var missingBytes: Int { front.readableBytes == 0 ? 0 : max(0, decoder.missingBytes - behind.readableBytes) }

    /// Whether the peer owes the rest of a frame of that command.
    /// - Parameter command: in upper case.
    func isInsideFrame(of command: String) -> Bool {
        guard isInsideFrame else { return false }
        // The line that counts the arguments has been taken; a length has one way to be written.
        let start = "$\(command.utf8.count)\r\n\(command)\r\n".utf8
        let isSmall = { (byte: UInt8) in UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte }
        return front.readableBytesView.prefix(start.count).map { isSmall($0) ? $0 & 0xDF : $0 }.elementsEqual(start)
    }

    /// - Parameter bytes: lent until ``keep()``.
    mutating func append(_ bytes: ByteBuffer) {
        isLent = true
        if behind.readableBytes == 0 { behind = bytes } else { behind.writeImmutableBuffer(bytes) }
    }

    /// Makes its own what is left of the bytes that were lent, lest a few of them keep a large buffer.
    mutating func keep() {
        guard isLent else { return }
        isLent = false
        front.keepReadableBytes(and: decoder.missingBytes)
        behind.keepReadableBytes(and: 0)
    }

    /// The next request; nil when more bytes are needed. It keeps all that came with it: detach what is to stay.
    mutating func next() throws(ProtocolError) -> Request? {
        // What the decoder has read to the end it need not look at again.
        if front.readableBytes > 0, let request = try take() { return request }
        guard behind.readableBytes > 0 else { return nil }
        moveUp()
        return try take()
    }

    /// Forgets what has come, and wipes it: it may be half of a LOGIN. No request given has a share in these bytes.
    mutating func clear() {
        front.wipeReadableBytesOfAll()
        behind.wipeReadableBytesOfAll()
        front = ByteBuffer()
        behind = ByteBuffer()
    }

    private mutating func take() throws(ProtocolError) -> Request? {
        guard let request = try decoder.next(&front) else { return nil }
        count &+= 1
        // An idle connection holds no memory.
        if front.readableBytes == 0 { front = ByteBuffer() }
        return request
    }

    private mutating func moveUp() {
        if front.readableBytes == 0 {
            front = behind
        } else {
            // Else the buffer of a stream that is always inside a frame would grow for ever.
            front.discardReadBytes()
            // Room for the whole of a large argument at once, else the buffer would be copied at every doubling.
            front.makeRoom(for: max(decoder.missingBytes, behind.readableBytes))
            front.writeImmutableBuffer(behind)
            behind.wipe()
        }
        behind = ByteBuffer()
    }
}

extension ByteBuffer {
    /// Moves the bytes to a buffer of their size, unless they, with so many that are to come, make up most of theirs.
    fileprivate mutating func keepReadableBytes(and missing: Int) {
        guard storageCapacity > 0, readableBytes + missing < storageCapacity / 2 else { return }
        move(to: ByteBuffer(bytes: readableBytesView))
    }

    /// Not by realloc(3), which leaves what it moves where it was.
    fileprivate mutating func makeRoom(for count: Int) {
        guard writableBytes < count else { return }
        var larger = ByteBufferAllocator().buffer(capacity: readableBytes + count)
        larger.writeImmutableBuffer(self)
        move(to: larger)
    }

    private mutating func move(to other: ByteBuffer) {
        wipe()
        self = other
    }
}
