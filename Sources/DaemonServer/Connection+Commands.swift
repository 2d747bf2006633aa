import Logging
import NIOCore
import RESP
import ThumbcacheProtocol
import ThumbnailCache

// What each command does. The way of a hit is `execute`, `get`, `respond`.

extension Connection {
    func execute(_ request: Request) {
        if let reply = readyReply(to: request) { return respond(reply) }
        let command: Command
        do throws(CommandError) {
            command = try Command(request, limits: limits.command)
        } catch {
            return respond(.error(error))
        }
        switch command {
        case .get(let get): self.get(get)
        case .mget(let mget): self.mget(mget)
        case .put(let put): self.put(put)
        case .stat(let stat): self.stat(stat)
        case .login(let login): logIn(login)
        case .logout(let logout): logOut(logout)
        case .purge(let purge): lifecycle { .receipt(try await $0.purge(purge, peer: $1)) }
        case .users: lifecycle { .users(try await $0.sessions.users(of: $1.uid)) }
        case .hello(let hello): self.hello(hello)
        case .ping(nil): respond(.reply { $0.writeSimpleString(ReplyWord.pong) })
        case .ping(let message?), .echo(let message): respond(.reply { $0.writeBulkString(message) })
        case .quit:
            respond(.ok)
            finish()
        case .reset:
            version = .two
            name = ByteBuffer()
            respond(.reply { $0.writeSimpleString(ReplyWord.reset) })
        case .select(0): respond(.ok)
        case .select(let index):
            respond(.error(CommandError(.err, "SELECT \(index): there is one database, 0")))
        case .client(let client): self.client(client)
        case .command(let query):
            respond(.reply { dispatcher.commands.writeCommandReply(query, version: version, into: &$0) })
        case .info(let sections):
            let text = dispatcher.info.text(sections, for: peer)
            respond(.reply { $0.writeVerbatimString(text, version: version) })
        }
    }

    // MARK: Images

    private func get(_ command: GetCommand) {
        if let reply = readyReply(to: command) { return respond(reply) }
        guard let cache = dispatcher.sessions.openCache(owner(command.user)) else {
            lastCache = nil
            return lookUp(command.user) { $0.get(command, from: $1, ticket: $2) }
        }
        lastCache = cache
        get(command, from: cache, ticket: nil)
    }

    /// The whole way of most hits: `GET user profile` of the user whom this connection asked about last, of an image in
    /// memory. No lock is taken but that user's. Anything else is nil, also what is wrong, and goes the way that can tell.
    ///
    /// Reading such a request as a ``Command`` first takes 1,000 instructions more, of 13,000 that a hit takes in all.
    private func readyReply(to request: Request) -> ByteBuffer? {
        guard request.isPlainGet, let lastCache, request.withBytes(of: 1, { lastCache.isOf(user: $0) }) else {
            return nil
        }
        return lastCache.readyReply(Slot(profile: OpaqueID(request[2])))
    }

    /// The same for a request with options, such as SIZE.
    private func readyReply(to command: GetCommand) -> ByteBuffer? {
        guard command.isPlain, let lastCache, command.user.withUnsafeReadableBytes({ lastCache.isOf(user: $0) }) else {
            return nil
        }
        return lastCache.readyReply(Slot(profile: OpaqueID(command.profile), size: command.size))
    }

    /// - Parameter ticket: the place of the reply, where one was taken while the user was looked up.
    private func get(_ command: GetCommand, from cache: UserCache, ticket: ReplyQueue.Ticket?) {
        let slot = Slot(profile: OpaqueID(command.profile), size: command.size)
        let shape = ImageReplyShape(keys: command.meta ? MetaKey.allCases : nil, ifNot: command.ifNot)
        var named: DownloadTarget?
        if let url = command.url {
            do throws(CacheFailure) {
                named = try cache.target(of: slot, url: url)
            } catch {
                return reply(ticket, .error(CommandError(error)))
            }
        }
        let query = ImageQuery(slot: slot, named: named, cachedOnly: command.cachedOnly)
        ask(cache, query, shape, patience: command.wait, ticket: ticket)
    }

    private func mget(_ command: MGetCommand) {
        guard let cache = dispatcher.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user) { connection, cache, ticket in
                connection.batch = Batch(command, from: cache)
                connection.answer(ticket, .reply { $0.writeArrayHeader(count: command.profiles.count) })
            }
        }
        respond(.reply { $0.writeArrayHeader(count: command.profiles.count) })
        batch = Batch(command, from: cache)
    }

    /// Asks for the next image of a batch. False when it has to wait for a place.
    func continueBatch() -> Bool {
        guard let batch, let query = batch.queries.first else { return true }
        guard tryAsk(batch.cache, query, batch.shape, patience: batch.patience) else { return false }
        self.batch?.queries.removeFirst()
        if batch.queries.count == 1 { self.batch = nil }
        return true
    }

    private func stat(_ command: StatCommand) {
        guard let profile = command.profile else { return statUser(command.user) }
        let query = ImageQuery(
            slot: Slot(profile: OpaqueID(profile), size: command.size), cachedOnly: true)
        let shape = ImageReplyShape(keys: MetaKey.stat)
        guard let cache = dispatcher.sessions.openCache(owner(command.user)) else {
            // What is not logged in holds nothing: STAT is null where GET would be an error.
            return lookUp(command.user, orNull: .map) { $0.ask($1, query, shape, patience: nil, ticket: $2) }
        }
        ask(cache, query, shape, patience: nil, ticket: nil)
    }

    private func statUser(_ user: ByteBuffer) {
        let owner = self.owner(user)
        lifecycle { dispatcher, _ in .status(try await dispatcher.sessions.status(owner)) }
    }

    /// Answers at once what memory holds; anything else waits, if need be for a place first.
    private func ask(
        _ cache: UserCache, _ query: ImageQuery, _ shape: ImageReplyShape, patience: Int64?,
        ticket: ReplyQueue.Ticket?
    ) {
        guard !tryAsk(cache, query, shape, patience: patience, ticket: ticket) else { return }
        batch = Batch(cache: cache, queries: [query], shape: shape, patience: patience)
    }

    /// False when the queue of this uid is full: with others of this connection in it, the request is to be tried again when
    /// one of them is answered. With none it is BUSY, as is one that has a place among the replies already.
    private func tryAsk(
        _ cache: UserCache, _ query: ImageQuery, _ shape: ImageReplyShape, patience: Int64?,
        ticket: ReplyQueue.Ticket? = nil
    ) -> Bool {
        if let served = cache.hit(query.slot, url: query.named?.url) {
            reply(ticket, shape.reply(.success(served), epoch: cache.epoch, now: dispatcher.time.now, version))
            return true
        }
        if let served = cache.glance(query) {
            reply(ticket, shape.reply(.success(served), epoch: cache.epoch, now: dispatcher.time.now, version))
            return true
        }
        guard place.load.enter(limit: limits.queuePerUID) else {
            if isWaiting && ticket == nil { return false }
            let reason =
                "\(limits.queuePerUID) requests of uid \(peer.uid) wait already (limit queue-per-uid): try again"
            reply(ticket, .error(CommandError(.busy, reason)))
            return true
        }
        let ticket = ticket ?? reserve()
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        let id = cache.get(query) { outcome in
            loop.execute { me.value.fulfil(ticket, outcome) }
        }
        let timer = loop.scheduleTask(in: .milliseconds(patience ?? cache.patience)) { cache.expire(id) }
        wait(ticket, for: Waiting(cache: cache, id: id, shape: shape.detached(), version: version, timer: timer))
        return true
    }

    private func put(_ command: PutCommand) {
        guard let cache = dispatcher.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user, thenLettingPass: false) { $0.put(command, into: $1, ticket: $2) }
        }
        put(command, into: cache, ticket: holdUp())
    }

    private func put(_ command: PutCommand, into cache: UserCache, ticket: ReplyQueue.Ticket) {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        dispatcher.disk.submit {
            let reply: ByteBuffer
            do throws(CacheFailure) {
                let slot = Slot(profile: OpaqueID(command.profile), size: command.size)
                try cache.put(slot, command.image, timeToLive: command.ttl)
                reply = .ok
            } catch {
                reply = .error(CommandError(error))
            }
            loop.execute { me.value.resume(ticket, with: reply) }
        }
    }

    private func reply(_ ticket: ReplyQueue.Ticket?, _ reply: ByteBuffer) {
        if let ticket { answer(ticket, reply) } else { respond(reply) }
    }

    // MARK: Users

    private func owner(_ user: ByteBuffer) -> Owner {
        Owner(uid: peer.uid, user: OpaqueID(user))
    }

    /// Finds a user that is not known to be open: on disk, or behind the log-out or purge that is under way.
    ///
    /// - Parameters:
    ///   - kind: the null that answers for a user who is not logged in; an error if nil.
    ///   - thenLettingPass: whether later commands may start once the user is found.
    private func lookUp(
        _ user: ByteBuffer, orNull kind: NullKind? = nil, thenLettingPass: Bool = true,
        then: @escaping @Sendable (Connection, UserCache, ReplyQueue.Ticket) -> Void
    ) {
        let ticket = holdUp()
        let owner = self.owner(user)
        let sessions = dispatcher.sessions
        run {
            try await sessions.cache(owner)
        } then: { connection, result in
            switch result {
            case .success(let cache):
                guard !connection.isClosed else { return }
                if thenLettingPass { connection.letOthersPass() }
                then(connection, cache, ticket)
                connection.carryOn()
            case .failure(CacheFailure.notLoggedIn) where kind != nil:
                let version = connection.version
                connection.resume(ticket, with: .reply { $0.writeNull(kind: kind ?? .bulk, version: version) })
            case .failure(let error):
                connection.resume(ticket, with: .error(CommandError(error)))
            }
        }
    }

    private func logIn(_ command: LoginCommand) {
        let session = HeldSession(owner: owner(command.user).detached(), session: command.sessionID.detached())
        if command.hold, held.count >= Self.heldSessions, !held.contains(session) {
            let reason = "this connection holds \(Self.heldSessions) sessions: log one out, or use another connection"
            return respond(.error(CommandError(.busy, reason)))
        }
        let ticket = holdUp()
        let (dispatcher, peer, id) = (dispatcher, peer, place.id)
        run {
            try await dispatcher.logIn(command, peer: peer, connection: id)
        } then: { connection, result in
            if case .failure(let error) = result { return connection.resume(ticket, with: .error(CommandError(error))) }
            if command.hold {
                if connection.isClosed {
                    // The peer went while it was being logged in: nothing else will ever end this session.
                    connection.release(session)
                } else {
                    connection.held.insert(session)
                }
            }
            connection.resume(ticket, with: .ok)
        }
    }

    /// Sessions that one connection may hold.
    private static var heldSessions: Int { 1024 }

    private func logOut(_ command: LogoutCommand) {
        let uid = command.uid ?? peer.uid
        lifecycle {
            .receipt(try await $0.logOut(command, peer: $1))
        } then: { connection, result in
            guard case .success = result else { return }
            // What has ended need not be ended again.
            connection.held = connection.held.filter { !command.ends($0.session, of: $0.owner, uid: uid) }
        }
    }

    /// Ends a session that this connection held.
    func release(_ held: HeldSession) {
        let (logout, log, id) = (dispatcher.logout, dispatcher.log, place.id)
        Task {
            do throws(CacheFailure) {
                try await logout.release(held.owner, session: held.session, connection: id)
            } catch {
                // What could not be made durable is closed and tried again by the service; it has logged why.
                log.debug("a held session did not end at once", metadata: ["uid": "\(held.owner.uid)"])
            }
        }
    }

    /// What a command that runs elsewhere answers.
    enum LifecycleReply: Sendable {
        case receipt(Receipt)
        case users([OpaqueID])
        case status(UserSessions.Status?)
    }

    /// Runs a command to its end before the next one starts.
    private func lifecycle(
        _ work: @escaping @Sendable (Dispatcher, Peer) async throws -> LifecycleReply,
        then: @escaping @Sendable (Connection, Result<LifecycleReply, any Error>) -> Void = { _, _ in }
    ) {
        let ticket = holdUp()
        let (dispatcher, peer) = (dispatcher, peer)
        run {
            let reply = try await work(dispatcher, peer)
            try await dispatcher.settleLoops()
            return reply
        } then: { connection, result in
            then(connection, result)
            connection.resume(ticket, with: connection.render(result))
        }
    }

    private func render(_ result: Result<LifecycleReply, any Error>) -> ByteBuffer {
        .reply { buffer in
            switch result {
            case .success(.receipt(let receipt)): buffer.writeReceipt(receipt, version)
            case .success(.users(let users)):
                buffer.writeArrayHeader(count: users.count)
                for user in users { buffer.writeBulkString(user.bytes) }
            case .success(.status(let status?)): buffer.writeStatus(status, version)
            case .success(.status(nil)): buffer.writeNull(kind: .map, version: version)
            case .failure(let error): buffer.writeError(CommandError(error))
            }
        }
    }

    // MARK: The connection itself

    private func hello(_ command: HelloCommand) {
        if command.hasAuth {
            let reason = "AUTH is not needed: the kernel says that you are uid \(peer.uid)"
            return respond(.error(CommandError(.err, reason)))
        }
        if let wanted = command.version {
            guard let version = RESPVersion(rawValue: wanted) else {
                return respond(
                    .error(CommandError(.noProto, "unsupported protocol version \(wanted): 2 and 3 are spoken")))
            }
            self.version = version
        }
        if let name = command.name { self.name = ByteBuffer(bytes: name.readableBytesView) }
        respond(
            .reply { buffer in
                buffer.writeMapHeader(count: HelloKey.allCases.count, version: version)
                for key in HelloKey.allCases {
                    buffer.writeBulkString(key.rawValue)
                    switch key {
                    case .server: buffer.writeBulkString("thumbcached")
                    case .version: buffer.writeBulkString(dispatcher.version)
                    case .proto: buffer.writeRESPInteger(version.rawValue)
                    case .id: buffer.writeRESPInteger(Int(place.id))
                    case .mode: buffer.writeBulkString("standalone")
                    case .role: buffer.writeBulkString("master")
                    case .modules: buffer.writeArrayHeader(count: 0)
                    }
                }
            })
    }

    private func client(_ command: ClientCommand) {
        switch command {
        case .id: respond(.reply { $0.writeRESPInteger(Int(place.id)) })
        case .getName where name.readableBytes == 0: respond(.reply { $0.writeNull(version: version) })
        case .getName: respond(.reply { $0.writeBulkString(name) })
        case .setName(let name):
            self.name = ByteBuffer(bytes: name.readableBytesView)
            respond(.ok)
        // What client libraries say of themselves; CLIENT LIST is where it will be seen.
        case .setInfo: respond(.ok)
        }
    }
}

extension Connection.Batch {
    init(_ command: MGetCommand, from cache: UserCache) {
        let queries = command.profiles.map {
            ImageQuery(slot: Slot(profile: OpaqueID($0), size: command.size), cachedOnly: command.cachedOnly)
        }
        self.init(cache: cache, queries: queries[...], shape: .plain, patience: command.wait)
    }
}

extension LogoutCommand {
    /// - Parameter uid: whose sessions the command is about.
    fileprivate func ends(_ session: OpaqueID, of owner: Owner, uid: UInt32) -> Bool {
        let isUser =
            switch target {
            case .all: true
            case .user(let user): owner.user.bytes == user
            }
        return owner.uid == uid && isUser && (self.session.map { $0 == session.bytes } ?? true)
    }
}
