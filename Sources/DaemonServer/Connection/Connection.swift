import CacheCore
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// One client's connection: reads requests, starts them in order, and sends their replies in order.
///
/// It lives on its event loop. A hit goes from the bytes read to the bytes sent without leaving ``work()``; what has to
/// wait reserves its reply and comes back by ``fulfil(_:_:)`` or ``endBarrier(_:with:)``. The commands themselves stand
/// in `Connection+Commands.swift`, and each group of them in a file of its own.
final class Connection: StreamHandler {
    enum Phase {
        case serving
        /// The daemon stops: what was begun is answered, and what comes besides is told SHUTTINGDOWN.
        case stopping
        /// Answers what it has begun, and looks at nothing more.
        case draining
        /// All is answered; ends its output when the peer has taken it.
        case closing
        /// The peer has been sent all, and the end. What it says until it has seen that is read and dropped.
        case lingering
        case closed
    }

    /// A GET that waits for disk or origin.
    struct Waiting {
        let cache: UserCache
        let id: WaiterID
        let shape: ImageReplyShape
        /// That of the time when the request came: a HELLO behind it is answered behind it.
        let version: RESPVersion
        let timer: Scheduled<Void>
        /// When it was read.
        let since: NIODeadline
        /// Bytes that it takes up, about.
        let cost: Int
    }

    /// What is left of an MGET, or of a GET that found the queue full: asked for one by one, as far as there is room.
    struct Batch {
        let cache: UserCache
        var queries: ArraySlice<ImageQuery>
        let shape: ImageReplyShape
        /// Milliseconds; nil for as long as the origin may take.
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
    let turns: LoopScheduler
    /// What the connections of the account may do in a round of the loop.
    let share: LoopShare

    var version = RESPVersion.two
    var heldSessions: Set<HeldSession> = []
    var batch: Batch?
    /// The cache that this connection asked last. It may have ended since: then there is nothing in it.
    var lastCache: UserCache?
    /// Images served from memory and from the page cache since the loop's time was last looked at.
    var hits = (memory: 0, disk: 0)
    /// Nil where it follows nobody.
    var subscriptions: Subscriptions?
    /// An MGET of a subscriber is not answered in full.
    var isInsideArray = false

    var phase = Phase.serving
    var reader: RequestReader
    var isInputClosed = false
    /// Another connection has come in for it.
    var isEvicted = false
    /// How many tasks were started for it: the last one's number in the log.
    var tasks = 0
    /// A command runs that later ones of this connection have to wait for.
    private(set) var isAtBarrier = false
    /// What is to be done when every request so far is answered.
    private var afterReplies: (() -> Void)?
    /// Commands are left to start, in the connection's next turn.
    private var isResting = false
    /// The connection waits for its turn, once, whether commands are left or its stream is ready.
    private var isInLine = false
    /// See ``LoopShare/serve()``.
    private var lastServed: UInt64 = 0

    var replies = ReplyQueue()
    var waiting: [ReplyQueue.ReplySlot: Waiting] = [:] {
        didSet { registration.client.waits(!waiting.isEmpty) }
    }
    /// Small replies, gathered to be written at once.
    var gathered = ByteBuffer()
    var watchdog: Scheduled<Void>?

    /// Bytes of the request at the barrier, or of that whose images are asked for one by one.
    var begun = 0
    /// Bytes of the requests in ``waiting``.
    var waitingBytes = 0
    /// What counts of all that is kept for this connection, against the budget of the account.
    let memory: MemoryLease

    init(
        context: ServerContext, limits: ServerLimits, peer: Peer, registration: PeerRegistry.Registration,
        turns: LoopScheduler, stream: Stream, eventLoop: SocketLoop
    ) {
        self.context = context
        self.limits = limits
        self.peer = peer
        self.registration = registration
        self.turns = turns
        self.share = turns.enter(registration.account)
        self.memory = context.services.budget.lease(for: peer.uid)
        self.stream = stream
        self.eventLoop = eventLoop
        self.reader = RequestReader(limits: limits.request)
    }

    var isClosed: Bool { phase == .closed }

    // MARK: Reading

    func received(_ bytes: ByteBuffer) {
        guard isListening else {
            // What is read and dropped takes its time, too.
            share.begin()
            return share.charge()
        }
        registration.client.heard(at: eventLoop.round.began)
        reader.append(bytes)
        work()
        reader.keep()
    }

    /// Starts what has come in, in order, until something must be waited for. Flushing may find that the peer is gone,
    /// and close the connection, at any point of it.
    func work() {
        guard !isClosed else { return }
        let isDone = startCommands()
        flush()
        if isInsideArray { tellEventsThatWaited() }
        if isDone { closeIfOver() }
        updateMemory()
        watch()
        share.charge()
        recordCounts()
    }

    /// Counts what there was where others see it. What was answered at once took as long as this round has by now.
    func recordCounts() {
        registration.client.asked(reader.count)
        guard hits != (0, 0) else { return }
        registration.client.served(hits: hits.memory + hits.disk)
        let time = eventLoop.round.soFar
        if hits.memory > 0 { turns.latencies.record(.memory, time, count: hits.memory) }
        if hits.disk > 0 { turns.latencies.record(.disk, time, count: hits.disk) }
        hits = (0, 0)
    }

    /// Whether all that has come in is started.
    private func startCommands() -> Bool {
        share.begin()
        while true {
            guard canStart else { return false }
            guard share.mayGoOn || hasNothingToStart else {
                rest()
                return false
            }
            share.beginCommand()
            if batch != nil {
                guard continueBatch() else { return false }
                continue
            }
            guard isListening else { return true }
            do throws(ProtocolError) {
                guard let request = try reader.next() else { return true }
                if phase == .stopping { respond(.error(.stopping)) } else { execute(request) }
                if isAtBarrier || batch != nil { begun = request.byteCount }
            } catch {
                refuse(error)
            }
        }
    }

    /// Whether requests are looked at: begun, or declined.
    private var isListening: Bool { phase == .serving || phase == .stopping }

    private var hasNothingToStart: Bool { batch == nil && (!isListening || reader.readableBytes == 0) }

    /// Leaves the remaining commands to the connection's next turn.
    private func rest() {
        isResting = true
        waitForTurn()
    }

    private func waitForTurn() {
        guard !isInLine else { return }
        isInLine = true
        share.goOnLater(lastServed: lastServed) { [self] in takeTurn() }
    }

    private func takeTurn() {
        isInLine = false
        lastServed = share.serve()
        let hasCommands = isResting
        isResting = false
        // Reads first: a connection that the daemon's stop closes after its last command has to answer all that came.
        stream.resume()
        if hasCommands && !isInLine { work() }
    }

    /// Whether the next command may start: none is in its way, and there is room for its reply.
    private var canStart: Bool {
        guard !isClosed, !isAtBarrier, !isResting else { return false }
        if hasRoom { return true }
        flush()
        // Flushing finds out that a peer is gone.
        return !isClosed && hasRoom
    }

    /// Reading goes on ahead of the work only as far as the limit on unprocessed input.
    var mayRead: Bool {
        switch phase {
        case .serving, .stopping:
            if isResting { return reader.readableBytes < Self.readAtOnce }
            return reader.readableBytes < limits.input || (!isAtBarrier && hasRoom)
        case .lingering: return true
        case .draining, .closing, .closed: return false
        }
    }

    /// A frame that breaks the protocol is answered, after what came before it, and ends the connection.
    private func refuse(_ error: ProtocolError) {
        if error.isTooLarge {
            respond(.error(CommandError(.tooLarge, error.message)))
        } else {
            respond(.error(CommandError(.err, "Protocol error: \(error.message)")))
        }
        finish()
    }

    /// Starts nothing more; closes when all that was begun is answered.
    func finish() {
        phase = .draining
        unsubscribe()
        reader.clear()
    }

    // MARK: Replying

    /// Answers the request at hand, with BUSY if there is no room for the reply.
    func respond(_ reply: ByteBuffer) {
        let reply = makeRoom(forReply: reply.readableBytes) ? reply : noRoom
        if replies.isEmpty { send(reply) } else { replies.append(reply) }
    }

    /// Answers a request that was not answered at once, and goes on.
    func answer(_ replySlot: ReplyQueue.ReplySlot, _ reply: ByteBuffer) {
        guard !isClosed else { return }
        replies.fill(replySlot, with: makeRoom(forReply: reply.readableBytes) ? reply : noRoom)
        while let reply = replies.popReady() { send(reply) }
        if replies.isEmpty, let next = afterReplies.take() {
            isAtBarrier = false
            next()
        }
        work()
    }

    /// - Parameter ticket: of a reply that was reserved; nil for the request at hand.
    func reply(_ replySlot: ReplyQueue.ReplySlot?, _ reply: ByteBuffer) {
        if let replySlot { answer(replySlot, reply) } else { respond(reply) }
    }

    private func send(_ reply: ByteBuffer) {
        guard reply.readableBytes > Self.copiedReply else {
            gathered.writeImmutableBuffer(reply)
            return
        }
        writeGathered()
        stream.write(reply)
    }

    /// Bytes up to which copying a reply is cheaper than handing on its buffer.
    private static var copiedReply: Int { 1024 }

    func writeGathered() {
        guard gathered.readableBytes > 0 else { return }
        stream.write(gathered)
        gathered = ByteBuffer()
    }

    func flush() {
        // A buffer for each small reply would take far more memory than what is in it.
        guard !stream.isBlocked else { return }
        writeGathered()
        stream.flush()
    }

    /// Where the loop has no time left for the account, the connection waits in line. To ask the poller again would not
    /// do: it names first those that it named first before, so that some would be served in each round and others in
    /// none.
    func mayProceed() -> Bool {
        share.begin()
        guard share.mayGoOn else {
            waitForTurn()
            return false
        }
        lastServed = share.serve()
        return true
    }

    /// Sending takes long, and is asked about between one piece and the next.
    var maySend: Bool {
        share.begin()
        share.charge()
        return share.hasTime
    }

    /// Bytes that the peer has yet to take.
    var unread: Int { stream.unsent + gathered.readableBytes }

    /// A peer that reads again has its next commands started when it has taken most of what there was.
    func outputMoved() {
        defer { share.charge() }
        flush()
        if phase == .closing { closeIfSent() } else if unread <= limits.output / 4 { return work() }
        updateMemory()
        watch()
    }

    // MARK: Waiting

    /// Reserves a reply and lets no later command start until ``endBarrier(_:with:)``.
    func startBarrier() -> ReplyQueue.ReplySlot {
        isAtBarrier = true
        return replies.reserve()
    }

    /// The command that the others wait for is done.
    func endBarrier(_ replySlot: ReplyQueue.ReplySlot, with reply: ByteBuffer) {
        endBarrier()
        answer(replySlot, reply)
    }

    /// The command that the others wait for is done, or has found out where it leads, and waits there on its own.
    func endBarrier() {
        isAtBarrier = false
        if isClosed { giveBackMemory() }
    }

    /// Does something when every request so far is answered. No later command starts before.
    func afterReplies(_ next: @escaping () -> Void) {
        if replies.isEmpty { return next() }
        isAtBarrier = true
        afterReplies = next
    }

    /// The peer is gone: what waited for its replies is not done.
    func forgetAfterReplies() {
        if afterReplies.take() != nil { isAtBarrier = false }
    }

    /// A GET that waited has its outcome.
    func fulfil(_ replySlot: ReplyQueue.ReplySlot, _ outcome: GetOutcome) {
        guard let waiting = waiting.removeValue(forKey: replySlot) else { return }
        waitingBytes -= waiting.cost
        waiting.timer.cancel()
        registration.load.leave()
        answer(
            replySlot,
            waiting.shape.reply(outcome, epoch: waiting.cache.epoch, now: context.services.time.now, waiting.version))
        let source = Latencies.Source(outcome)
        registration.client.served(hits: source.isHit ? 1 : 0, misses: source.isHit ? 0 : 1)
        turns.latencies.record(source, .now() - waiting.since)
    }
}
