import CacheCore
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// One client's connection: reads requests, starts them in order, and sends their replies in order.
///
/// Confined to its event loop. A hit is read within ``received(_:)``, and usually sent after the loop has read its other
/// sockets. A request that waits reserves a reply slot and completes in ``finishWaiting(_:_:)`` or
/// ``endBarrier(_:with:)``.
final class Connection: StreamHandler {
    enum Phase {
        case serving
        /// The daemon is stopping: started requests complete, new ones get SHUTTINGDOWN.
        case stopping
        /// Started requests complete; further input is discarded.
        case draining
        /// All replies are queued. The output closes once the peer has read them.
        case closing
        /// The output is closed. Input is read and discarded until the peer closes.
        case lingering
        case closed
    }

    /// A GET that waits for the disk or an origin. `id` is that of its `Waiter` in the cache.
    struct PendingGet {
        let cache: UserCache
        let id: WaiterID
        let format: ImageReplyFormat
        let version: RESPVersion
        let timer: Scheduled<Void>
        let since: NIODeadline
        let cost: Int
    }

    /// The remaining queries of an MGET, or of a GET that found the queue full. They start one by one as room permits.
    struct Batch {
        let cache: UserCache
        var queries: ArraySlice<ImageQuery>
        let format: ImageReplyFormat
        /// Milliseconds; nil for the origin's timeout.
        let wait: Int64?
    }

    /// A session that ends with this connection.
    struct HeldSession: Hashable {
        let owner: Owner
        let session: OpaqueID
    }

    let context: ServerContext
    let limits: ServerLimits
    let peer: Peer
    let registration: PeerRegistry.Registration
    let stream: Stream
    let eventLoop: SocketLoop
    let scheduler: LoopScheduler
    let subscribers: LoopSubscribers
    let loopAccount: LoopAccount

    var version = RESPVersion.two
    var heldSessions: Set<HeldSession> = []
    var batch: Batch?
    /// The cache of the latest GET. May be closed; lookups in it find nothing then.
    var lastCache: UserCache?
    /// Hits from memory and from the page cache since ``recordCounts()``.
    var hits = (memory: 0, disk: 0)
    var subscriptions: Subscriptions?
    /// Whether the array of a subscriber's MGET is incomplete.
    var isInsideArray = false

    var phase = Phase.serving
    var reader: RequestReader
    var isInputClosed = false
    /// Whether the registry has evicted this connection.
    var isEvicted = false
    /// The number of tasks started, which numbers requests in the log.
    var tasks = 0
    /// Whether a running command blocks later ones.
    private(set) var isAtBarrier = false
    /// Whether all received commands are started.
    private var hasStartedAllInput = false
    /// Runs once all earlier requests have their replies.
    private var pendingAfterReplies: (() -> Void)?
    /// Whether received commands wait for the connection's next turn.
    private var hasDeferredCommands = false
    /// Whether a task is queued that sends replies and starts further commands.
    private var isRoundQueued = false
    /// Whether the connection is queued for a turn, for commands or for its stream.
    private var isEnqueued = false
    /// The service number of the last turn, which orders the account's connections.
    private var lastServed: UInt64 = 0

    var replies = ReplyQueue()
    var waiting: [ReplyQueue.ReplySlot: PendingGet] = [:] {
        didSet { registration.client.setWaiting(!waiting.isEmpty) }
    }
    /// Small replies, collected for one write.
    var gathered = ByteBuffer()
    var watchdog: Scheduled<Void>?

    /// Bytes of the request at the barrier, or of the request of ``batch``.
    var runningRequestBytes = 0
    /// Bytes of the requests in ``waiting``.
    var waitingBytes = 0
    /// The part of this connection's memory that counts against the account's budget.
    let memory: MemoryLease

    init(
        context: ServerContext, limits: ServerLimits, peer: Peer, registration: PeerRegistry.Registration,
        scheduler: LoopScheduler, subscribers: LoopSubscribers, stream: Stream, eventLoop: SocketLoop
    ) {
        self.context = context
        self.limits = limits
        self.peer = peer
        self.registration = registration
        self.scheduler = scheduler
        self.subscribers = subscribers
        self.loopAccount = scheduler.enter(registration.account)
        self.memory = context.services.budget.lease(for: peer.uid)
        self.stream = stream
        self.eventLoop = eventLoop
        self.reader = RequestReader(limits: limits.request)
    }

    var isClosed: Bool { phase == .closed }

    // MARK: Reading

    func received(_ bytes: ByteBuffer) {
        guard acceptsRequests else {
            // Reading discarded input takes time as well.
            loopAccount.startRound()
            return loopAccount.charge()
        }
        registration.client.recordInput(at: eventLoop.round.began)
        reader.append(bytes)
        hasStartedAllInput = startCommands()
        // With input left, reading may have to pause before the next read. Longer replies need their memory back soon.
        if hasStartedAllInput && reader.readableBytes == 0 && !isInsideArray && unread <= Self.maximumPostponed {
            loopAccount.postponeSend()
            stream.postponeSend()
        } else {
            sendReplies()
        }
        reader.keep()
    }

    /// The maximum output in bytes that is sent together with that of other connections.
    private static var maximumPostponed: Int { 16 << 10 }

    func sendPostponed() {
        loopAccount.endPostponedSend()
        if !isClosed { sendReplies() }
    }

    /// Starts received commands in order until one blocks the next, and sends replies.
    func processInput() {
        guard !isClosed else { return }
        hasStartedAllInput = startCommands()
        sendReplies()
    }

    /// Sends replies, and pauses or continues reading. ``flush()`` closes the connection if the peer has disconnected, so
    /// ``isClosed`` is checked afterwards.
    private func sendReplies() {
        flush()
        if isInsideArray { deliverDelayedEvents() }
        if hasStartedAllInput { closeIfOver() }
        updateMemory()
        watch()
        loopAccount.charge()
        recordCounts()
    }

    /// Publishes this round's counters. The latency of immediate replies is the round's duration so far.
    func recordCounts() {
        registration.client.record(commands: reader.count)
        guard hits != (0, 0) else { return }
        registration.client.record(hits: hits.memory + hits.disk)
        let time = eventLoop.round.elapsed
        if hits.memory > 0 { scheduler.latencies.record(.memory, time, count: hits.memory) }
        if hits.disk > 0 { scheduler.latencies.record(.disk, time, count: hits.disk) }
        hits = (0, 0)
    }

    /// Starts commands. Returns whether all received ones are started.
    private func startCommands() -> Bool {
        loopAccount.startRound()
        while true {
            guard canStart else { return false }
            guard loopAccount.mayRun || hasNothingToStart else {
                deferCommands()
                return false
            }
            loopAccount.startCommand()
            if batch != nil {
                guard continueBatch() else { return false }
                continue
            }
            guard acceptsRequests else { return true }
            do throws(ProtocolError) {
                guard let request = try reader.next() else { return true }
                if phase == .stopping { replyNow(.error(.stopping)) } else { execute(request) }
                if isAtBarrier || batch != nil { runningRequestBytes = request.byteCount }
            } catch {
                refuse(error)
            }
        }
    }

    private var acceptsRequests: Bool { phase == .serving || phase == .stopping }

    private var hasNothingToStart: Bool { batch == nil && (!acceptsRequests || reader.readableBytes == 0) }

    private func deferCommands() {
        hasDeferredCommands = true
        enqueue()
    }

    private func enqueue() {
        guard !isEnqueued else { return }
        isEnqueued = true
        scheduler.enqueue(loopAccount, lastServed: lastServed) { [self] in runTurn() }
    }

    private func runTurn() {
        isEnqueued = false
        lastServed = loopAccount.nextServiceNumber()
        let hasCommands = hasDeferredCommands
        hasDeferredCommands = false
        // Reads pending input first: a stopping connection must reply to every request that has arrived.
        stream.resume()
        if hasCommands && !isEnqueued { processInput() }
    }

    /// Whether the next command may start: no barrier is pending, and there is room for the reply.
    private var canStart: Bool {
        guard !isClosed, !isAtBarrier, !hasDeferredCommands else { return false }
        if hasRoom { return true }
        flush()
        // The flush may have closed the connection.
        return !isClosed && hasRoom
    }

    /// Whether to read more input: up to the limit on unprocessed input.
    var mayRead: Bool {
        switch phase {
        case .serving, .stopping:
            if hasDeferredCommands { return reader.readableBytes < Stream.readSize }
            return reader.readableBytes < limits.request.payloadBytes || (!isAtBarrier && hasRoom)
        case .lingering: return true
        case .draining, .closing, .closed: return false
        }
    }

    /// Replies to an invalid frame after the replies to earlier requests, and closes.
    private func refuse(_ error: ProtocolError) {
        if error.isTooLarge {
            replyNow(.error(CommandError(.tooLarge, error.message)))
        } else {
            replyNow(.error(CommandError(.err, "Protocol error: \(error.message)")))
        }
        finish()
    }

    /// Closes once all started requests have their replies. Discards further input.
    func finish() {
        phase = .draining
        unsubscribe()
        reader.clear()
    }

    // MARK: Replying

    /// Replies to the current request, with BUSY if there is no room for the reply.
    func replyNow(_ reply: Reply) {
        let reply = makeRoom(forReply: reply.readableBytes) ? reply : Reply(noRoom)
        if replies.isEmpty { enqueueOutput(reply) } else { replies.append(reply) }
    }

    func replyNow(_ reply: ByteBuffer) { replyNow(Reply(reply)) }

    /// Replies to a request that waited, and starts further commands.
    /// - Parameter replySlot: nil for the current request, which gets its reply with ``replyNow(_:)``.
    func fillSlot(_ replySlot: ReplyQueue.ReplySlot?, with reply: Reply) {
        guard let replySlot else { return replyNow(reply) }
        fill(replySlot, with: reply)
        processInput()
    }

    func fillSlot(_ replySlot: ReplyQueue.ReplySlot?, with reply: ByteBuffer) {
        fillSlot(replySlot, with: Reply(reply))
    }

    /// As ``fillSlot(_:with:)``, but usually sends the reply in the next round, together with others that this round
    /// completes.
    func fillSlotSoon(_ replySlot: ReplyQueue.ReplySlot, with reply: Reply) {
        fill(replySlot, with: reply)
        loopAccount.charge()
        guard !isRoundQueued else { return }
        isRoundQueued = true
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        eventLoop.execute {
            me.value.isRoundQueued = false
            me.value.processInput()
        }
    }

    private func fill(_ replySlot: ReplyQueue.ReplySlot, with reply: Reply) {
        guard !isClosed else { return }
        replies.fill(replySlot, with: makeRoom(forReply: reply.readableBytes) ? reply : Reply(noRoom))
        while let reply = replies.popReady() { enqueueOutput(reply) }
        if replies.isEmpty, let next = pendingAfterReplies.take() {
            isAtBarrier = false
            next()
        }
    }

    private func enqueueOutput(_ reply: Reply) {
        reply.forEachPart { part in
            guard part.readableBytes > Self.maximumCopiedPart else {
                gathered.writeImmutableBuffer(part)
                return
            }
            writeGathered()
            stream.write(part)
        }
    }

    /// The maximum size of a part of a reply that is cheaper to copy than to pass on.
    private static var maximumCopiedPart: Int { 1024 }

    func writeGathered() {
        guard gathered.readableBytes > 0 else { return }
        stream.write(gathered)
        gathered = ByteBuffer()
    }

    func flush() {
        // While the stream is blocked, small replies stay in `gathered`: a buffer for each would take far more memory.
        guard !stream.isBlocked else { return }
        writeGathered()
        stream.flush()
    }

    /// Whether the account has time left in this round; if not, queues the connection. The poller would be unfair: it
    /// reports descriptors in the same order each time, so the last ones would starve.
    func mayProceed() -> Bool {
        loopAccount.startRound()
        guard loopAccount.mayRun else {
            enqueue()
            return false
        }
        lastServed = loopAccount.nextServiceNumber()
        return true
    }

    var maySend: Bool {
        loopAccount.startRound()
        loopAccount.charge()
        return loopAccount.hasTime
    }

    /// Output bytes that the kernel has not accepted yet.
    var unread: Int { stream.unsent + gathered.readableBytes }

    /// Starts further commands once at most a quarter of `limits.output` is unsent.
    func outputMoved() {
        defer { loopAccount.charge() }
        flush()
        if phase == .closing { closeIfSent() } else if unread <= limits.output / 4 { return processInput() }
        updateMemory()
        watch()
    }

    // MARK: Waiting

    /// Reserves a reply slot and blocks later commands until ``endBarrier(_:with:)``.
    func startBarrier() -> ReplyQueue.ReplySlot {
        isAtBarrier = true
        return replies.reserve()
    }

    func endBarrier(_ replySlot: ReplyQueue.ReplySlot, with reply: ByteBuffer) {
        endBarrier()
        fillSlot(replySlot, with: reply)
    }

    func endBarrier() {
        isAtBarrier = false
        if isClosed { releaseMemory() }
    }

    /// Runs `next` once all earlier requests have their replies. Blocks later commands until then.
    func afterReplies(_ next: @escaping () -> Void) {
        if replies.isEmpty { return next() }
        isAtBarrier = true
        pendingAfterReplies = next
    }

    func cancelAfterReplies() {
        if pendingAfterReplies.take() != nil { isAtBarrier = false }
    }
}
