import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// The memory of a connection: unfinished and running requests, requests that wait for an image, and unread replies.
///
/// It counts against its account's budget (I8), except a free share. Beyond it, a long reply or the rest of a long
/// request needs a reservation; without one, the request is BUSY.
extension Connection {
    /// Bytes that do not count. Covers any request except a PUT of a large image and a PURGE of many long names, and a
    /// reply that fits into one send (208 KiB, net.core.wmem_default).
    static var freeShare: Int { 256 << 10 }
    /// A reply up to this size needs no reservation: an error, a null, a receipt.
    private static var maximumUnreservedReply: Int { 4 << 10 }
    /// A request up to this size needs no reservation, such as a LOGOUT after unread replies.
    private static var maximumUnreservedRequest: Int { 4 << 10 }
    /// A PURGE up to this size needs no reservation: twice the default of limits.arguments with 512 bytes each.
    private static var maximumUnreservedPurge: Int { 1 << 20 }
    /// The memory of a request that waits for an image, without its names.
    static var costOfWaiting: Int { 1 << 10 }

    private static func counted(_ bytes: Int) -> Int { max(0, bytes - freeShare) }

    private var bytesInUse: Int {
        reader.readableBytes + (isAtBarrier || batch != nil ? runningRequestBytes : 0) + waitingBytes + unread
            + replies.cost + (subscriptions?.cost ?? 0)
    }

    /// Whether there is room for the next command's reply. If the account's budget is used up, output must be below
    /// twice the free share.
    var hasRoom: Bool {
        let output = unread + replies.cost
        return output < limits.output && (output < 2 * Self.freeShare || memory.hasRoom(for: 1))
    }

    /// Whether the next query of an MGET may start. If the account's budget is used up, unread output must be at most
    /// half of the free share, so that a client that reads its replies gets all its images.
    func findRoomForImage() -> Bool {
        let little = Self.freeShare / 2
        if unread <= little || memory.hasRoom(for: limits.request.image) { return true }
        flush()
        return !isClosed && unread <= little
    }

    /// Reserves memory for a reply. Flushes earlier replies first if there is no budget, or if they exceed the free
    /// share. Returns false without budget.
    func makeRoom(forReply bytes: Int) -> Bool {
        // A hit ends here, after a few additions.
        if bytesInUse + bytes <= Self.freeShare || bytes <= Self.maximumUnreservedReply { return true }
        if unread + bytes <= Self.freeShare, reserve(bytes) { return true }
        flush()
        // A closed connection sends nothing.
        return isClosed || reserve(bytes)
    }

    private func reserve(_ bytes: Int) -> Bool {
        let counted = Self.counted(bytesInUse + bytes)
        return counted <= memory.bytes || memory.change(to: counted)
    }

    /// Updates the reservation, and continues or pauses reading.
    func updateMemory() {
        guard !isClosed else { return }
        let mayRead = mayRead
        let inUse = Self.counted(bytesInUse)
        // A whole argument counts before it is read, since the buffer is reserved at once.
        let whole = Self.counted(bytesInUse + reader.missingBytes)
        let isInsideFrame = mayRead && reader.isInsideFrame
        if isInsideFrame && whole > memory.bytes && !memory.change(to: whole) && !isReadWithoutRoom {
            return refuseToRead()
        }
        let counted = max(inUse, min(whole, memory.bytes))
        // Within the free share no shared state is accessed.
        if counted != memory.bytes { memory.set(to: counted) }
        // Unprocessed input is read ahead within the free share only.
        stream.isReading =
            isInsideFrame
            || mayRead && (bytesInUse < Self.freeShare || reader.readableBytes <= Self.maximumUnreservedRequest)
    }

    /// Whether the request is read without budget: LOGOUT and PURGE are never BUSY, unless unusually long.
    private var isReadWithoutRoom: Bool {
        let known = reader.readableBytes + reader.missingBytes
        return known <= Self.maximumUnreservedRequest
            || (known <= Self.maximumUnreservedPurge && reader.isInsideFrame(of: "PURGE"))
    }

    private func refuseToRead() {
        context.sessions.accountLog.write(
            "disconnected a peer whose account has no memory left", uid: peer.uid,
            ["pid": "\(peer.pid)", "held": "\(memory.bytes)"], at: context.services.time.now)
        replyNow(noRoom)
        finish()
        processInput()
    }

    var noRoom: ByteBuffer { .error(CommandError(.busy, memory.refusal)) }

    /// Releases the memory. A running request, such as a PUT, counts in full until it ends.
    func releaseMemory() {
        reader.clear()
        replies = ReplyQueue()
        gathered = ByteBuffer()
        memory.set(to: isAtBarrier ? runningRequestBytes : 0)
    }
}
