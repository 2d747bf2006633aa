import CacheCore
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// GET, MGET, PUT and STAT.
extension Connection {
    /// The cache that a plain GET asks, if it is known and what is asked for has a name that may be asked for; the one
    /// that this connection asked last from here on. It is open, or there is nothing in it any more.
    func cacheOfPlainGet(_ request: Request) -> UserCache? {
        let lengths = 1...limits.command.id
        guard request.isPlainGet, lengths.contains(request.withBytes(of: 2) { $0.count }) else { return nil }
        if let lastCache, request.withBytes(of: 1, { lastCache.isOf(user: $0) }) { return lastCache }
        guard lengths.contains(request.withBytes(of: 1) { $0.count }) else { return nil }
        lastCache = context.sessions.openCache(Owner(uid: peer.uid, user: request.id(at: 1)))
        return lastCache
    }

    /// - Parameter lookup: at the disk, behind one in memory, where it was a plain GET.
    func get(_ command: GetCommand, after lookup: DiskLookup?) {
        if lookup == nil, let reply = readyReply(to: command) {
            hits.memory += 1
            return respond(reply)
        }
        lastCache = context.sessions.openCache(owner(command.user))
        guard let lastCache else {
            return lookUp(command.user) { $0.get(command, from: $1, after: nil, replySlot: $2) }
        }
        get(command, from: lastCache, after: lookup, replySlot: nil)
    }

    /// The reply with an image in memory to a request with options, such as SIZE, that it has all the same.
    private func readyReply(to command: GetCommand) -> ByteBuffer? {
        guard command.isPlain, let lastCache, command.user.withUnsafeReadableBytes({ lastCache.isOf(user: $0) }) else {
            return nil
        }
        return lastCache.readyReply(command.imageKey(of: command.profile))
    }

    /// - Parameter ticket: of the reply, where it was reserved while the user was looked up.
    private func get(
        _ command: GetCommand, from cache: UserCache, after lookup: DiskLookup?, replySlot: ReplyQueue.ReplySlot?
    ) {
        let imageKey = command.imageKey(of: command.profile)
        let shape = ImageReplyShape(keys: command.meta ? MetaKey.allCases : nil, ifNot: command.ifNot)
        var named: DownloadTarget?
        if let url = command.url {
            do throws(CacheFailure) {
                named = try cache.target(of: imageKey, url: url)
            } catch {
                return reply(replySlot, .error(CommandError(error)))
            }
        }
        let query = ImageQuery(imageKey: imageKey, named: named, download: command.download.ofQuery, largerWillDo: true)
        ask(cache, query, shape, wait: command.wait, after: lookup, replySlot: replySlot)
    }

    func mget(_ command: MGetCommand) {
        let header = ByteBuffer.reply { $0.writeArrayHeader(count: command.profiles.count) }
        isInsideArray = subscriptions != nil
        let queries = command.profiles.map {
            ImageQuery(imageKey: command.imageKey(of: $0), download: command.download.ofQuery, largerWillDo: true)
        }
        let batch = { @Sendable cache in
            Batch(cache: cache, queries: queries[...], shape: ImageReplyShape(), wait: command.wait)
        }
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user) { connection, cache, replySlot in
                connection.batch = batch(cache)
                connection.answer(replySlot, header)
            }
        }
        respond(header)
        self.batch = batch(cache)
    }

    /// Asks for the next image of a batch. False when another has to be answered first, or the peer has to read.
    func continueBatch() -> Bool {
        guard let batch, let query = batch.queries.first else { return true }
        guard findRoomForImage() else { return false }
        guard tryAsk(batch.cache, query, batch.shape, wait: batch.wait) else { return false }
        self.batch?.queries.removeFirst()
        if batch.queries.count == 1 { self.batch = nil }
        return true
    }

    func stat(_ command: StatCommand) {
        guard let profile = command.profile else {
            let (owner, sessions, version) = (owner(command.user), context.sessions, version)
            return lifecycle {
                let status = try await sessions.status(owner)
                return .reply { reply in
                    guard let status else { return reply.writeNull(kind: .map, version: version) }
                    reply.writeStatus(status, version)
                }
            }
        }
        let query = ImageQuery(imageKey: command.imageKey(of: profile), download: .never, rendersMissing: false)
        let shape = ImageReplyShape(keys: MetaKey.stat)
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            // There is nothing of who is not logged in: STAT is null where GET would be an error.
            return lookUp(command.user, orNull: .map) { $0.ask($1, query, shape, replySlot: $2) }
        }
        ask(cache, query, shape, replySlot: nil)
    }

    /// Answers at once from memory or page cache; anything else waits, if need be for another to be answered first.
    private func ask(
        _ cache: UserCache, _ query: ImageQuery, _ shape: ImageReplyShape, wait: Int64? = nil,
        after lookup: DiskLookup? = nil, replySlot: ReplyQueue.ReplySlot?
    ) {
        guard !tryAsk(cache, query, shape, wait: wait, after: lookup, replySlot: replySlot) else { return }
        batch = Batch(cache: cache, queries: [query], shape: shape, wait: wait)
    }

    /// False when the queue of this uid is full: with others of this connection in it, the request is to be tried again
    /// when one of them is answered. With none it is BUSY, as is one whose reply is reserved already.
    private func tryAsk(
        _ cache: UserCache, _ query: ImageQuery, _ shape: ImageReplyShape, wait: Int64?,
        after earlier: DiskLookup? = nil, replySlot: ReplyQueue.ReplySlot? = nil
    ) -> Bool {
        var lookup = earlier
        if earlier == nil {
            var served = cache.hit(query.imageKey, url: query.named?.url)
            if served == nil {
                lookup = lookAtDisk(query, in: cache)
                served = lookup?.image
            }
            if let served {
                let now = context.services.time.now
                if lookup == nil { hits.memory += 1 } else { hits.disk += 1 }
                reply(replySlot, shape.reply(.success(served), epoch: cache.epoch, now: now, version))
                return true
            }
        }
        guard registration.load.enter(limit: limits.queuePerUID) else {
            if !waiting.isEmpty && replySlot == nil { return false }
            let reason =
                "\(limits.queuePerUID) requests of uid \(peer.uid) wait already (limit queue-per-uid): try again"
            reply(replySlot, .error(CommandError(.busy, reason)))
            return true
        }
        let replySlot = replySlot ?? replies.reserve()
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        let id = cache.get(query, after: lookup) { outcome in
            loop.execute { me.value.fulfil(replySlot, outcome) }
        }
        let timer = loop.scheduleTask(in: .milliseconds(wait ?? cache.defaultWait)) { cache.expire(id) }
        let cost = Self.costOfWaiting + 3 * (query.imageKey.profile.count + (query.named?.url.utf8.count ?? 0))
        waitingBytes += cost
        waiting[replySlot] = Waiting(
            cache: cache, id: id, shape: shape.detached(), version: version, timer: timer,
            since: eventLoop.round.began, cost: cost)
        return true
    }

    /// Looks at the disk without waiting for it.
    func lookAtDisk(_ query: ImageQuery, in cache: UserCache) -> DiskLookup {
        defer { share.charge() }
        return cache.lookAtDisk(query)
    }

    func warm(_ command: WarmCommand) {
        let (sessions, owner) = (context.sessions, owner(command.user))
        lifecycle {
            let imageKeys = command.profiles.map { command.imageKey(of: $0) }
            let count = try await sessions.cache(owner).warm(imageKeys)
            return .reply { $0.writeRESPInteger(count) }
        }
    }

    func put(_ command: PutCommand) {
        // Those whose peers have left count against the budget, and against no limit on connections.
        if !memory.hasRoom(for: 0) { return respond(noRoom) }
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user, keepsBarrier: true) { $0.put(command, into: $1, replySlot: $2) }
        }
        put(command, into: cache, replySlot: startBarrier())
    }

    private func put(_ command: PutCommand, into cache: UserCache, replySlot: ReplyQueue.ReplySlot) {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        context.services.disk.submit(for: peer.uid) {
            let reply: ByteBuffer
            do throws(CacheFailure) {
                let imageKey = ImageKey(profile: OpaqueID(command.profile), size: command.size)
                try cache.put(imageKey, command.image, timeToLive: command.ttl)
                reply = .ok
            } catch {
                reply = .error(CommandError(error))
            }
            loop.execute { me.value.endBarrier(replySlot, with: reply) }
        }
    }
}

extension SizedCommand {
    fileprivate func imageKey(of profile: ByteBuffer) -> ImageKey {
        let style = RenditionStyle(fit: sizing.fit.ofStyle, format: sizing.format.ofStyle)
        return ImageKey(profile: OpaqueID(profile), size: sizing.size, style: style)
    }
}

extension PictureFit {
    fileprivate var ofStyle: RenditionStyle.Fit {
        switch self {
        case .cover: .cover
        case .contain: .contain
        }
    }
}

extension PictureFormat {
    fileprivate var ofStyle: RenditionStyle.Format {
        switch self {
        case .source: .source
        case .png: .png
        case .jpeg: .jpeg
        case .webp: .webp
        }
    }
}

extension DownloadChoice {
    fileprivate var ofQuery: ImageQuery.Download {
        switch self {
        case .awaited: .awaited
        case .behind: .behind
        case .never: .never
        }
    }
}

extension Request {
    /// An argument as an id, for a look-up.
    func id(at index: Int) -> OpaqueID {
        withBytes(of: index) { OpaqueID(short: $0) } ?? OpaqueID(self[index])
    }
}
