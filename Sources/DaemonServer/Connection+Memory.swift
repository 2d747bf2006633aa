import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol
import ThumbnailCache

/// What the daemon holds for a connection, and the room for it among all connections of its uid (I8).
///
/// Up to its free share a connection asks nobody: then all that is done here is to add up numbers of its own. Beyond it, it takes room of
/// its uid's ``PeerMemory`` before it reads on, and before it takes on a long reply; it gives it back when what it holds has gone. Where
/// there is no room it waits in line: is not read, or starts nothing more.
extension Connection {
    /// Room that this connection waits for.
    struct Claim {
        let id: UInt64
        /// For the reply to the first image of the batch; otherwise for the rest of a frame.
        let isForReply: Bool
        let patience: Scheduled<Void>
    }

    /// Bytes that a stream reads at once.
    private static var readAtOnce: Int { 64 << 10 }
    /// A reply that is taken on, room or not: an error, a null, a receipt. There is one for each command that has started.
    private static var shortReply: Int { 4 << 10 }
    /// Output with which commands start, room or not: else a little of it, beside a lot of input, would hold up what ends the input.
    private static var littleOutput: Int { 64 << 10 }

    /// Bytes that are held for the peer: input that is not yet worked on, the requests that are being worked on and hold up others,
    /// and output that the peer has not taken.
    private var heldBytes: Int {
        reader.readableBytes + (isHeldUp || batch != nil ? begun : 0) + unread + replies.cost
    }

    private var memory: PeerMemory { place.load.memory }

    /// How much of so many bytes counts.
    private func counted(_ bytes: Int) -> Int {
        min(max(0, bytes - PeerMemory.share), limits.memoryPerUID)
    }

    /// Whether so many bytes may be held by what has been taken. That of a connection which holds little is nothing.
    private func fits(_ bytes: Int) -> Bool {
        bytes <= PeerMemory.share &+ charged
    }

    /// Takes what is missing for so many bytes to be held; false if there is no room.
    private func reserve(_ bytes: Int, passingLine: Bool = false) -> Bool {
        let missing = counted(bytes) - charged
        if missing <= 0 { return true }
        guard memory.take(missing, limit: limits.memoryPerUID, passingLine: passingLine) else { return false }
        charged += missing
        return true
    }

    /// Brings what is taken to so many bytes.
    private func charge(_ bytes: Int) {
        if bytes > charged { memory.add(bytes - charged) }
        if bytes < charged { memory.give(charged - bytes) }
        charged = bytes
    }

    // MARK: Output

    /// Whether a command may start by what is known without sending or asking.
    var hasRoom: Bool {
        let output = unread + replies.cost
        return output < limits.output && (output <= Self.littleOutput || fits(heldBytes + Self.shortReply))
    }

    /// Whether a command may start, now that what could be sent has been.
    func findRoom() -> Bool {
        hasRoom || (unread + replies.cost < limits.output && reserve(heldBytes + Self.shortReply))
    }

    /// Whether a reply of so many bytes may be taken on.
    ///
    /// A hit comes by here. Within the free share, as its reply is that leaves in one send, it meets a handful of additions; one
    /// beyond that has had the chance to leave before anything is counted.
    func hasRoom(forReply bytes: Int) -> Bool {
        if fits(heldBytes + bytes) { return true }
        flush()
        // A peer that is gone takes nothing.
        return phase == .closed || bytes <= Self.shortReply || reserve(heldBytes + bytes)
    }

    /// Holds back what comes next until there is room for the reply to the first image of the batch.
    /// - Parameter bytes: of that reply.
    func awaitRoom(forReply bytes: Int) {
        guard phase != .closed, claim == nil, let batch else { return }
        claim(heldBytes + bytes, isForReply: true, patience: batch.patience ?? batch.cache.patience)
    }

    // MARK: Input

    /// Makes what is taken fit what is held, and reads on if there is room for more. At the end of most requests nothing is held, nothing
    /// was taken, and nothing that connections share is touched.
    func settle() {
        guard phase != .closed else { return }
        let held = heldBytes
        let mayRead = mayRead
        if held + max(Self.readAtOnce, reader.missingBytes) <= PeerMemory.share && charged == 0 && claim == nil {
            stream.isReading = mayRead
        } else {
            settle(held, mayRead: mayRead)
        }
    }

    private func settle(_ held: Int, mayRead: Bool) {
        // Once an argument has been declared there is room for all of it and for what is behind it, or none of it is read: connections
        // that each had a part of theirs, and no room for the rest, would wait for each other.
        let wanted = held + reader.missingBytes + 2 * Self.readAtOnce
        let isInside = reader.isInsideFrame
        let isReading =
            mayRead
            && (fits(held + max(Self.readAtOnce, reader.missingBytes))
                || reserve(wanted, passingLine: isInside && charged > 0))
        charge(max(counted(held), isReading ? min(charged, counted(wanted)) : 0))
        if isReading || !mayRead { leaveLine(forReply: false) }
        // Otherwise it is looked at again when what stands in the way has gone.
        if mayRead && !isReading && isInside && claim == nil && isIdle {
            claim(wanted, isForReply: false, patience: 2 * limits.stall)
        }
        stream.isReading = isReading
    }

    /// Whether nothing is under way that would look at the input again when it ends.
    private var isIdle: Bool { !isHeldUp && !isResting && batch == nil && hasRoom }

    // MARK: Waiting in line

    /// - Parameters:
    ///   - bytes: that are to be held then.
    ///   - patience: milliseconds.
    private func claim(_ bytes: Int, isForReply: Bool, patience: Int64) {
        let missing = counted(bytes) - charged
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        let id = memory.wait(for: missing, limit: limits.memoryPerUID, isFirst: !isForReply && charged > 0) { id in
            loop.execute { me.value.granted(id, missing) }
        }
        let timer = loop.assumeIsolated().scheduleTask(in: .milliseconds(patience)) { [weak self] in
            if let self { self.ranOutOfPatience(id) }
        }
        claim = Claim(id: id, isForReply: isForReply, patience: timer)
    }

    private func granted(_ id: UInt64, _ bytes: Int) {
        guard phase != .closed else { return memory.give(bytes) }
        charged += bytes
        if claim?.id == id {
            claim?.patience.cancel()
            claim = nil
        }
        // Also gives back what was granted too late.
        work()
    }

    private func leaveLine(forReply: Bool) {
        guard let claim, claim.isForReply == forReply else { return }
        claim.patience.cancel()
        self.claim = nil
        _ = memory.leave(claim.id)
    }

    private func ranOutOfPatience(_ id: UInt64) {
        guard let claim, claim.id == id, phase != .closed else { return }
        if claim.isForReply {
            leaveLine(forReply: true)
            _ = batch?.queries.popFirst()
            if batch?.queries.isEmpty == true { batch = nil }
            respond(noRoom)
        } else {
            // Never BUSY for a PURGE, however long its list is: it waits on. A LOGOUT fits into the free share.
            if reader.isInsideFrame(of: "PURGE") { return }
            leaveLine(forReply: false)
            dispatcher.log.info(
                "disconnected a peer whose uid has no memory left",
                metadata: ["uid": "\(peer.uid)", "pid": "\(peer.pid)", "held": "\(memory.bytes)"])
            respond(noRoom)
            finish()
        }
        work()
    }

    /// The answer to what found no room in time.
    var noRoom: ByteBuffer {
        .error(
            CommandError(
                .busy,
                "connections of uid \(peer.uid) hold \(memory.bytes) bytes of unfinished requests and unread replies (limit "
                    + "memory-per-uid, \(limits.memoryPerUID)): finish or read those, or try again"))
    }

    // MARK: The end

    /// Frees what was held. What a PUT writes stays, or the list of a PURGE, and with it the connection's place: else somebody who comes,
    /// puts and goes could have any number of images wait for the disk.
    func letGo() {
        reader.clear()
        replies = ReplyQueue()
        gathered = ByteBuffer()
        leaveLine(forReply: true)
        leaveLine(forReply: false)
        charge(keepsPlace ? counted(begun) : 0)
        if !keepsPlace { dispatcher.registry.leave(place.id) }
    }
}
