import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// Room for what the daemon holds for a connection, among all connections of its uid (I8). How much that is says ``HeldMemory``.
///
/// Up to its free share a connection asks nobody. Beyond it, it takes room of its uid's ``PeerMemory`` before it takes on a long reply,
/// which is BUSY where there is none; and before it reads on, which waits in line. What is held no more is given back at once.
extension Connection {
    /// The frame that has found no room, and is not waited for much longer.
    struct Patience {
        /// Frames before it.
        let frame: Int
        let timer: Scheduled<Void>
        var isOver = false
    }

    /// A reply that is taken on, room or not: an error, a null, a receipt.
    private static var shortReply: Int { 4 << 10 }
    /// A PURGE that is read on, room or not, when it has waited: the default of limits.arguments, of 512 bytes each, is half of it.
    private static var longestPurge: Int { 1 << 20 }

    private var memory: PeerMemory { place.load.memory }

    private var memoryHeld: HeldMemory {
        HeldMemory(
            input: reader.readableBytes, missing: reader.missingBytes, isInsideFrame: reader.isInsideFrame,
            other: heldBesideInput, charged: charged)
    }

    private var heldBesideInput: Int { (isHeldUp || batch != nil ? begun : 0) + unread + replies.cost }

    private func take(_ bytes: Int) -> Bool {
        if bytes == 0 { return true }
        guard memory.take(bytes, limit: limits.memoryPerUID) else { return false }
        charged += bytes
        return true
    }

    /// Brings what counts to so many bytes, room or not.
    private func charge(_ bytes: Int) {
        if bytes > charged { memory.add(bytes - charged) }
        if bytes < charged { memory.give(charged - bytes) }
        charged = bytes
    }

    /// Whether what is held for the uid is beyond its limit, as it may come to be by what is counted and not asked for.
    var isOverLimit: Bool { memory.bytes > limits.memoryPerUID }

    // MARK: Output

    /// Whether the next command may start. Where the uid has no room, short replies that nobody reads are bounded like long ones.
    var hasRoom: Bool {
        let output = unread + replies.cost
        return output < limits.output && (output < 2 * HeldMemory.share || memory.bytes < limits.memoryPerUID)
    }

    /// Whether the next image of an MGET may be asked for. Where there may be no room for it the peer has to read first: so who reads
    /// gets all images that fit into half of the free share.
    func findRoomForImage() -> Bool {
        let little = HeldMemory.share / 2
        if unread <= little || memory.bytes + limits.image <= limits.memoryPerUID { return true }
        flush()
        return phase != .closed && unread <= little
    }

    /// Whether a reply of so many bytes may be taken on. One that does not fit into the free share lets those before it leave first.
    func makeRoom(forReply bytes: Int) -> Bool {
        // All that a hit comes to: two numbers that are added.
        let fits = HeldMemory.counted(reader.readableBytes + heldBesideInput + bytes) <= charged
        if fits || bytes <= Self.shortReply { return true }
        flush()
        // A peer that is gone takes nothing.
        return phase == .closed || take(memoryHeld.toTake(forReply: bytes))
    }

    // MARK: Input

    /// Has what is held count, and reads on if there is room for what comes. Within the free share nothing that connections share is
    /// touched.
    func settle() {
        guard phase != .closed else { return }
        var held = memoryHeld
        if held.settled != charged {
            charge(held.settled)
            held = memoryHeld
        }
        let mayRead = mayRead
        let isReading = mayRead && (held.isReadFreely || isLatePurge(held) || takeForFrame(held))
        if !isReading {
            // What was taken for the frame goes back: it is claimed anew, and whole.
            charge(memoryHeld.counted)
            held = memoryHeld
        }
        if held.isInsideFrame && mayRead && !isReading { wait(held) } else { leaveLine() }
        stream.isReading = isReading
    }

    /// Takes room for the rest of a frame. Input that nobody has looked at yet is read ahead within the free share alone.
    private func takeForFrame(_ held: HeldMemory) -> Bool {
        guard held.isInsideFrame else { return false }
        let bytes = held.toTakeForReading
        if bytes == 0 { return true }
        let isTaken =
            held.isInsideLongFrame
            ? memory.take(bytes, limit: limits.memoryPerUID)
            : memory.takeInTurn(bytes, limit: limits.memoryPerUID, claim: claim)
        if isTaken { charged += bytes }
        return isTaken
    }

    /// A PURGE is never BUSY, unless it is far longer than it need be.
    private func isLatePurge(_ held: HeldMemory) -> Bool {
        patience?.frame == reader.count && patience?.isOver == true && held.input + held.missing <= Self.longestPurge
            && reader.isInsideFrame(of: "PURGE")
    }

    // MARK: Waiting in line

    /// A frame waits in line for room, for the time of its patience in all, however often it has to.
    private func wait(_ held: HeldMemory) {
        if patience?.frame != reader.count { beginPatience() }
        if patience?.isOver == true { return giveUp() }
        guard claim == nil else { return }
        let bytes = held.toTakeForReading
        let me = NIOLoopBound(self, eventLoop: eventLoop)
        let loop = eventLoop
        claim = memory.wait(for: bytes, limit: limits.memoryPerUID, isFirst: held.isInsideLongFrame) { id in
            loop.execute { me.value.granted(id, bytes) }
        }
    }

    private func granted(_ id: UInt64, _ bytes: Int) {
        guard phase != .closed else { return memory.give(bytes) }
        charged += bytes
        if claim == id {
            claim = nil
            // Who has waited is read on, whatever replies have come meanwhile.
            charge(max(charged, memoryHeld.countedWhole))
        }
        // Also gives back what was granted too late.
        work()
    }

    private func leaveLine() {
        guard let claim else { return }
        self.claim = nil
        memory.leave(claim)
    }

    private func beginPatience() {
        patience?.timer.cancel()
        let frame = reader.count
        let timer = eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(2 * limits.stall)) { [weak self] in
            guard let self, self.patience?.frame == frame, self.reader.count == frame else { return }
            self.patience?.isOver = true
            self.work()
        }
        patience = Patience(frame: frame, timer: timer)
    }

    private func giveUp() {
        leaveLine()
        dispatcher.log.info(
            "disconnected a peer whose uid has no memory left",
            metadata: ["uid": "\(peer.uid)", "pid": "\(peer.pid)", "held": "\(memory.bytes)"])
        respond(noRoom)
        finish()
        work()
    }

    /// The answer to what found no room.
    var noRoom: ByteBuffer {
        .error(
            CommandError(
                .busy,
                "connections of uid \(peer.uid) hold \(memory.bytes) bytes of unfinished requests and unread replies (limit "
                    + "memory-per-uid, \(limits.memoryPerUID)): finish or read those, or try again"))
    }

    // MARK: The end

    /// Frees what was held. A request that is worked on to its end, as a PUT is, counts until then, and all of it: the free share has gone
    /// with the connection's place.
    func letGo() {
        reader.clear()
        replies = ReplyQueue()
        gathered = ByteBuffer()
        leaveLine()
        patience?.timer.cancel()
        charge(isHeldUp ? begun : 0)
    }
}
