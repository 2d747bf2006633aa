import Logging
import NIOCore
import RESP
import SocketLoops
import ThumbcacheProtocol
import ThumbnailCache

/// GET, MGET, PUT and STAT.
extension Connection {
    func get(_ command: GetCommand, after lookup: DiskLookup?) {
        if lookup == nil, let reply = readyReply(to: command) { return respond(reply) }
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            lastCache = nil
            let command = command.detached()
            return lookUp(command.user) { $0.get(command, from: $1, ticket: $2) }
        }
        lastCache = cache
        get(command, from: cache, after: lookup, ticket: nil)
    }

    /// The cache that a plain GET asks, if it is known and what is asked for has a name that may be asked for. It is open, or was when it
    /// was asked last: then it holds nothing any more. It is the one that this connection asked last from here on.
    func cacheOfPlainGet(_ request: Request) -> UserCache? {
        let lengths = 1...limits.command.id
        guard request.isPlainGet, lengths.contains(request.withBytes(of: 2) { $0.count }) else { return nil }
        if let lastCache, request.withBytes(of: 1, { lastCache.isOf(user: $0) }) { return lastCache }
        guard lengths.contains(request.withBytes(of: 1) { $0.count }) else { return nil }
        lastCache = context.sessions.openCache(Owner(uid: peer.uid, user: request.id(at: 1)))
        return lastCache
    }

    /// The reply with an image in memory to a request with options, such as SIZE, that it has all the same.
    func readyReply(to command: GetCommand) -> ByteBuffer? {
        guard command.isPlain, let lastCache, command.user.withUnsafeReadableBytes({ lastCache.isOf(user: $0) }) else {
            return nil
        }
        return lastCache.readyReply(Slot(profile: OpaqueID(command.profile), size: command.size))
    }

    /// - Parameter ticket: the place of the reply, where one was taken while the user was looked up.
    func get(
        _ command: GetCommand, from cache: UserCache, after lookup: DiskLookup? = nil, ticket: ReplyQueue.Ticket?
    ) {
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
        let query = ImageQuery(slot: slot, named: named, cachedOnly: command.cachedOnly, largerWillDo: true)
        ask(cache, query, shape, patience: command.wait, after: lookup, ticket: ticket)
    }

    func mget(_ command: MGetCommand) {
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user) { connection, cache, ticket in
                connection.batch = Batch(command, from: cache)
                connection.answer(ticket, .reply { $0.writeArrayHeader(count: command.profiles.count) })
            }
        }
        respond(.reply { $0.writeArrayHeader(count: command.profiles.count) })
        batch = Batch(command, from: cache)
    }

    /// Asks for the next image of a batch. False when it has to wait for a place, or for the peer to read.
    func continueBatch() -> Bool {
        guard let batch, let query = batch.queries.first else { return true }
        guard findRoomForImage() else { return false }
        guard tryAsk(batch.cache, query, batch.shape, patience: batch.patience) else { return false }
        self.batch?.queries.removeFirst()
        if batch.queries.count == 1 { self.batch = nil }
        return true
    }

    func stat(_ command: StatCommand) {
        guard let profile = command.profile else { return statUser(command.user) }
        let query = ImageQuery(
            slot: Slot(profile: OpaqueID(profile), size: command.size), cachedOnly: true)
        let shape = ImageReplyShape(keys: MetaKey.stat)
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            // What is not logged in holds nothing: STAT is null where GET would be an error.
            return lookUp(command.user, orNull: .map) { $0.ask($1, query, shape, patience: nil, ticket: $2) }
        }
        ask(cache, query, shape, patience: nil, ticket: nil)
    }

    func statUser(_ user: ByteBuffer) {
        let owner = self.owner(user)
        lifecycle { context, _ in .status(try await context.sessions.status(owner)) }
    }

    /// Answers at once what memory or page cache holds; anything else waits, if need be for a place first.
    private func ask(
        _ cache: UserCache, _ query: ImageQuery, _ shape: ImageReplyShape, patience: Int64?,
        after lookup: DiskLookup? = nil, ticket: ReplyQueue.Ticket?
    ) {
        let isAsked =
            if let lookup {
                tryWait(for: query, in: cache, after: lookup, shape, patience: patience, ticket: ticket)
            } else {
                tryAsk(cache, query, shape, patience: patience, ticket: ticket)
            }
        guard !isAsked else { return }
        batch = Batch(cache: cache, queries: [query], shape: shape, patience: patience)
    }

    /// False when the request is to be tried again.
    private func tryAsk(
        _ cache: UserCache, _ query: ImageQuery, _ shape: ImageReplyShape, patience: Int64?,
        ticket: ReplyQueue.Ticket? = nil
    ) -> Bool {
        var lookup: DiskLookup?
        var served = cache.hit(query.slot, url: query.named?.url)
        if served == nil {
            lookup = lookAtDisk(query, in: cache)
            served = lookup?.image
        }
        if let served {
            reply(ticket, shape.reply(.success(served), epoch: cache.epoch, now: context.time.now, version))
            return true
        }
        return tryWait(for: query, in: cache, after: lookup, shape, patience: patience, ticket: ticket)
    }

    /// False when the queue of this uid is full: with others of this connection in it, the request is to be tried again when
    /// one of them is answered. With none it is BUSY, as is one that has a place among the replies already.
    private func tryWait(
        for query: ImageQuery, in cache: UserCache, after lookup: DiskLookup?, _ shape: ImageReplyShape,
        patience: Int64?,
        ticket: ReplyQueue.Ticket?
    ) -> Bool {
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
        let id = cache.get(query, after: lookup) { outcome in
            loop.execute { me.value.fulfil(ticket, outcome) }
        }
        let timer = loop.scheduleTask(in: .milliseconds(patience ?? cache.defaultWait)) { cache.expire(id) }
        let cost = Self.costOfWaiting + 3 * (query.slot.profile.count + (query.named?.url.utf8.count ?? 0))
        wait(
            ticket,
            for: Waiting(cache: cache, id: id, shape: shape.detached(), version: version, timer: timer, cost: cost))
        return true
    }

    /// Looks at the disk without waiting for it.
    func lookAtDisk(_ query: ImageQuery, in cache: UserCache) -> DiskLookup {
        defer { share.charge() }
        return cache.lookAtDisk(query)
    }

    func put(_ command: PutCommand) {
        // Those whose peers have left count, and have no place: nothing else would end their number.
        if !memory.hasRoom(for: 0) { return respond(noRoom) }
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user, thenLettingPass: false) { $0.put(command, into: $1, ticket: $2) }
        }
        put(command, into: cache, ticket: holdUp())
    }

    func put(_ command: PutCommand, into cache: UserCache, ticket: ReplyQueue.Ticket) {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        context.disk.submit(for: peer.uid) {
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

    func reply(_ ticket: ReplyQueue.Ticket?, _ reply: ByteBuffer) {
        if let ticket { answer(ticket, reply) } else { respond(reply) }
    }
}

extension Request {
    /// An argument as an id, for a look-up.
    func id(at index: Int) -> OpaqueID {
        withBytes(of: index) { OpaqueID(short: $0) } ?? OpaqueID(self[index])
    }
}

extension GetCommand {
    /// The same, apart from the buffer it was read from.
    fileprivate func detached() -> GetCommand {
        var command = self
        command.user = ByteBuffer(bytes: user.readableBytesView)
        command.profile = ByteBuffer(bytes: profile.readableBytesView)
        return command
    }
}

extension Connection.Batch {
    init(_ command: MGetCommand, from cache: UserCache) {
        let queries = command.profiles.map {
            ImageQuery(
                slot: Slot(profile: OpaqueID($0), size: command.size), cachedOnly: command.cachedOnly,
                largerWillDo: true)
        }
        self.init(cache: cache, queries: queries[...], shape: .plain, patience: command.wait)
    }
}
