import CacheCore
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// GET, MGET, PUT, STAT and EXPLAIN.
extension Connection {
    /// Returns the cache of a plain GET if it is open and the names are not too long. Sets ``lastCache``, so that a hit
    /// in memory takes only that cache's lock if the connection's latest GET was for the same user.
    func cacheOfPlainGet(_ request: Request) -> UserCache? {
        let lengths = 1...limits.request.id
        guard request.isPlainGet, lengths.contains(request.withBytes(of: 2) { $0.count }) else { return nil }
        if let lastCache, request.withBytes(of: 1, { lastCache.isOf(user: $0) }) { return lastCache }
        guard lengths.contains(request.withBytes(of: 1) { $0.count }) else { return nil }
        lastCache = context.sessions.openCache(Owner(uid: peer.uid, user: request.id(at: 1)))
        return lastCache
    }

    /// Replies from memory or the kernel's page cache, or registers a waiter.
    func getPlain(_ request: Request, from cache: UserCache) {
        let imageKey = ImageKey(profile: request.id(at: 2))
        if let reply = cache.readyReply(imageKey) {
            hits.memory += 1
            return replyNow(reply)
        }
        let lookup = lookUpOnDisk(ImageQuery(imageKey: imageKey), in: cache)
        if let served = lookup.image {
            hits.disk += 1
            return replyNow(served.image.bytes.framed)
        }
        // `lastCache` may have been closed, and the user may have logged in again.
        guard context.sessions.openCache(cache.owner) === cache else { return parseAndExecute(request) }
        defer { loopAccount.charge() }
        // A waiting request must not retain the loop's whole read buffer.
        let query = ImageQuery(imageKey: imageKey.detached())
        startOrBatch(cache, query, ImageReplyFormat(), pageCacheLookup: lookup, replySlot: nil)
    }

    /// Replies to any other GET.
    func get(_ command: GetCommand) {
        if let reply = readyReply(to: command) {
            hits.memory += 1
            return replyNow(reply)
        }
        lastCache = context.sessions.openCache(owner(command.user))
        guard let lastCache else { return lookUp(command.user) { $0.get(command, from: $1, replySlot: $2) } }
        get(command, from: lastCache, replySlot: nil)
    }

    private func readyReply(to command: GetCommand) -> ByteBuffer? {
        guard command.isPlain, let lastCache, command.user.withUnsafeReadableBytes({ lastCache.isOf(user: $0) }) else {
            return nil
        }
        return lastCache.readyReply(ImageKey(profile: OpaqueID(command.profile), fitting: command.size))
    }

    /// - Parameter replySlot: reserved while the user was looked up; nil for the current request.
    private func get(_ command: GetCommand, from cache: UserCache, replySlot: ReplyQueue.ReplySlot?) {
        let imageKey = ImageKey(profile: OpaqueID(command.profile), fitting: command.size)
        let format = ImageReplyFormat(keys: command.meta ? MetaKey.allCases : nil, ifNot: command.ifNot)
        var named: DownloadTarget?
        if let url = command.url {
            do throws(CacheFailure) {
                named = try cache.target(of: imageKey, url: url)
            } catch {
                return fillSlot(replySlot, with: .error(CommandError(error)))
            }
        }
        let query = ImageQuery(imageKey: imageKey, named: named, download: command.download.ofQuery)
        startOrBatch(cache, query, format, wait: command.wait, replySlot: replySlot)
    }

    /// Starts a query, or makes a batch of it if the account's queue is full.
    private func startOrBatch(
        _ cache: UserCache, _ query: ImageQuery, _ format: ImageReplyFormat, wait: Int64? = nil,
        pageCacheLookup: DiskLookup? = nil, replySlot: ReplyQueue.ReplySlot?
    ) {
        guard !start(cache, query, format, wait: wait, pageCacheLookup: pageCacheLookup, replySlot: replySlot) else {
            return
        }
        batch = Batch(cache: cache, queries: [query], format: format, wait: wait)
    }

    /// Replies at once from memory or the page cache, or registers a waiter. Returns false if the account's queue is
    /// full and this connection has waiters in it: retry when one completes. Without any, or with a reserved reply
    /// slot, the reply is BUSY.
    /// - Parameter pageCacheLookup: of a query that has missed in memory and in the page cache already.
    private func start(
        _ cache: UserCache, _ query: ImageQuery, _ format: ImageReplyFormat, wait: Int64?,
        pageCacheLookup: DiskLookup? = nil, replySlot: ReplyQueue.ReplySlot? = nil
    ) -> Bool {
        var lookup = pageCacheLookup
        if pageCacheLookup == nil {
            var served = cache.hit(query.imageKey, url: query.named?.url)
            if served == nil {
                lookup = lookUpOnDisk(query, in: cache)
                served = lookup?.image
            }
            if let served {
                let now = context.services.time.now
                if lookup == nil { hits.memory += 1 } else { hits.disk += 1 }
                fillSlot(replySlot, with: format.reply(.success(served), epoch: cache.epoch, now: now, version))
                return true
            }
        }
        guard registration.load.enter(limit: limits.queuePerAccount) else {
            if !waiting.isEmpty && replySlot == nil { return false }
            let reason = "limits.queue-per-uid: \(limits.queuePerAccount) GETs of this account are waiting; retry later"
            fillSlot(replySlot, with: .error(CommandError(.busy, reason)))
            return true
        }
        let replySlot = replySlot ?? replies.reserve()
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        let id = cache.get(query, after: lookup) { outcome in
            loop.execute { me.value.finishWaiting(replySlot, outcome) }
        }
        let timer = loop.scheduleTask(in: .milliseconds(wait ?? cache.defaultWait)) { cache.expire(id) }
        let cost = Self.costOfWaiting + 3 * (query.imageKey.profile.count + (query.named?.url.utf8.count ?? 0))
        waitingBytes += cost
        waiting[replySlot] = PendingGet(
            cache: cache, id: id, format: format.detached(), version: version, timer: timer,
            since: eventLoop.round.began, cost: cost)
        return true
    }

    private func lookUpOnDisk(_ query: ImageQuery, in cache: UserCache) -> DiskLookup {
        defer { loopAccount.charge() }
        return cache.lookUpOnDisk(query)
    }

    private func finishWaiting(_ replySlot: ReplyQueue.ReplySlot, _ outcome: Result<ServedImage?, CacheFailure>) {
        guard let waiting = waiting.removeValue(forKey: replySlot) else { return }
        waitingBytes -= waiting.cost
        waiting.timer.cancel()
        registration.load.leave()
        let now = context.services.time.now
        let reply = waiting.format.reply(outcome, epoch: waiting.cache.epoch, now: now, waiting.version)
        fillSlotSoon(replySlot, with: reply)
        let source = Latencies.Source(outcome)
        registration.client.record(hits: source.isHit ? 1 : 0, misses: source.isHit ? 0 : 1)
        scheduler.latencies.record(source, .now() - waiting.since)
    }

    func mget(_ command: MGetCommand) {
        let header = ByteBuffer.reply { $0.writeArrayHeader(count: command.profiles.count) }
        isInsideArray = subscriptions != nil
        let queries = command.profiles.map {
            ImageQuery(
                imageKey: ImageKey(profile: OpaqueID($0), fitting: command.size), download: command.download.ofQuery)
        }
        let batch = { @Sendable cache in
            Batch(cache: cache, queries: queries[...], format: ImageReplyFormat(), wait: command.wait)
        }
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user) { connection, cache, replySlot in
                connection.batch = batch(cache)
                connection.fillSlot(replySlot, with: header)
            }
        }
        replyNow(header)
        self.batch = batch(cache)
    }

    /// Starts the next query of the batch. Returns false if an earlier one has to complete, or the peer has to read.
    func continueBatch() -> Bool {
        guard let batch, let query = batch.queries.first else { return true }
        guard findRoomForImage() else { return false }
        guard start(batch.cache, query, batch.format, wait: batch.wait) else { return false }
        self.batch?.queries.removeFirst()
        if batch.queries.count == 1 { self.batch = nil }
        return true
    }

    func stat(_ command: StatCommand) {
        guard let profile = command.profile else {
            let (owner, sessions, version) = (owner(command.user), context.sessions, version)
            return runAtBarrier {
                let status = try await sessions.status(owner)
                return .reply { reply in
                    guard let status else { return reply.writeNull(kind: .map, version: version) }
                    reply.writeStatus(status, version)
                }
            }
        }
        let imageKey = ImageKey(profile: OpaqueID(profile), fitting: command.size)
        let query = ImageQuery(imageKey: imageKey, download: .never, rendersMissing: false)
        let format = ImageReplyFormat(keys: MetaKey.stat)
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            // STAT of a user who is not logged in is null; GET would be an error.
            return lookUp(command.user, orNull: .map) { $0.startOrBatch($1, query, format, replySlot: $2) }
        }
        startOrBatch(cache, query, format, replySlot: nil)
    }

    func explain(_ command: ExplainCommand) {
        // Unlike the barrier, the load also bounds explanations of connections that were closed.
        guard registration.load.enter(limit: limits.queuePerAccount) else {
            let reason = "limits.queue-per-uid: \(limits.queuePerAccount) requests of this account wait; retry later"
            return replyNow(.error(CommandError(.busy, reason)))
        }
        let imageKey = ImageKey(profile: OpaqueID(command.profile), fitting: command.size).detached()
        let (owner, sessions, version) = (owner(command.user).detached(), context.sessions, version)
        let load = registration.load
        let replySlot = startBarrier()
        let (me, loop) = (NIOLoopBound(self, eventLoop: eventLoop), eventLoop)
        startTask {
            defer { load.leave() }
            do throws(CacheFailure) {
                try await sessions.explain(owner, imageKey) { explanation in
                    let reply = ByteBuffer.reply { $0.writeExplanation(explanation, version) }
                    loop.execute { me.value.endBarrier(replySlot, with: reply) }
                }
            } catch {
                loop.execute { me.value.endBarrier(replySlot, with: .error(CommandError(error))) }
            }
        }
    }

    func warm(_ command: WarmCommand) {
        let (sessions, owner) = (context.sessions, owner(command.user))
        runAtBarrier {
            let imageKeys = command.profiles.map { ImageKey(profile: OpaqueID($0), fitting: command.size) }
            let count = try await sessions.cache(owner).warm(imageKeys)
            return .reply { $0.writeRESPInteger(count) }
        }
    }

    func put(_ command: PutCommand) {
        // A PUT continues after its connection closes, so only the memory budget limits pending PUTs.
        if !memory.hasRoom(for: 0) { return replyNow(noRoom) }
        guard let cache = context.sessions.openCache(owner(command.user)) else {
            return lookUp(command.user, keepsBarrier: true) { $0.put(command, into: $1, replySlot: $2) }
        }
        put(command, into: cache, replySlot: startBarrier())
    }

    private func put(_ command: PutCommand, into cache: UserCache, replySlot: ReplyQueue.ReplySlot) {
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        context.services.imagePool.submit(for: peer.uid) {
            let reply: ByteBuffer
            do throws(CacheFailure) {
                let imageKey = ImageKey(profile: OpaqueID(command.profile), fitting: command.size)
                try cache.put(imageKey, command.image, timeToLive: command.ttl)
                reply = .ok
            } catch {
                reply = .error(CommandError(error))
            }
            loop.execute { me.value.endBarrier(replySlot, with: reply) }
        }
    }
}

extension DownloadChoice {
    fileprivate var ofQuery: ImageQuery.Download {
        switch self {
        case .awaited: .awaited
        case .inBackground: .inBackground
        case .never: .never
        }
    }
}

extension Request {
    func id(at index: Int) -> OpaqueID {
        withBytes(of: index) { OpaqueID(short: $0) } ?? OpaqueID(self[index])
    }
}
