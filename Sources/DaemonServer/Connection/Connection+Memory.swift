import CacheCore
import Logging
import NIOCore
import SocketLoops
import ThumbcacheProtocol

/// What the daemon keeps for a connection, against the budget of its account (I8): requests that are unfinished or
/// worked on, requests that wait for an image, replies that are not read.
///
/// Up to its free share a connection asks nobody. Beyond it, it takes bytes of the budget before it takes on a long
/// reply, or reads on in a long request. Where there are none, either is BUSY.
extension Connection {
    /// Bytes that count for nothing: every request but a PUT of a large image, or a PURGE of many long names, and a
    /// reply of the size that the kernel takes in one send (208 KiB, net.core.wmem_default).
    static var freeShare: Int { 256 << 10 }
    /// Bytes that a stream reads at once.
    static var readAtOnce: Int { 64 << 10 }
    /// A reply that is taken on, room or not: an error, a null, a receipt.
    private static var shortReply: Int { 4 << 10 }
    /// A request that is read, room or not, as a LOGOUT is behind replies that its peer has not read.
    private static var shortRequest: Int { 4 << 10 }
    /// A PURGE that is read, room or not: the default of limits.arguments, of 512 bytes each, is half of it.
    private static var longestPurge: Int { 1 << 20 }
    /// A request that waits for an image, without its names.
    static var costOfWaiting: Int { 1 << 10 }

    /// How many of so many bytes count.
    private static func counted(_ bytes: Int) -> Int { max(0, bytes - freeShare) }

    /// Bytes that are there.
    private var bytesInUse: Int {
        reader.readableBytes + (isAtBarrier || batch != nil ? begun : 0) + waitingBytes + unread + replies.cost
            + (subscriptions?.cost ?? 0)
    }

    // MARK: Output

    /// Whether the next command may start. Where the uid has no room, short replies are bounded like long ones.
    var hasRoom: Bool {
        let output = unread + replies.cost
        return output < limits.output && (output < 2 * Self.freeShare || memory.hasRoom(for: 1))
    }

    /// Whether the next image of an MGET may be asked for. Where there may be no room for it the peer has to read
    /// first: so who reads gets all images that fit into half of the free share.
    func findRoomForImage() -> Bool {
        let little = Self.freeShare / 2
        if unread <= little || memory.hasRoom(for: limits.command.image) { return true }
        flush()
        return !isClosed && unread <= little
    }

    /// Whether a reply of so many bytes may be taken on. One beyond the free share lets those before it leave first.
    func makeRoom(forReply bytes: Int) -> Bool {
        // All that a hit comes to: some numbers that are added.
        if bytesInUse + bytes <= Self.freeShare || bytes <= Self.shortReply { return true }
        flush()
        // A peer that is gone takes nothing.
        guard !isClosed else { return true }
        let counted = Self.counted(bytesInUse + bytes)
        return counted <= memory.bytes || memory.change(to: counted)
    }

    // MARK: Input

    /// Has what is in use count, and reads on if there is room for what comes.
    func updateMemory() {
        guard !isClosed else { return }
        let mayRead = mayRead
        let inUse = Self.counted(bytesInUse)
        // All of an argument counts before it is read, until all of it has come: the buffer is as long.
        let whole = Self.counted(bytesInUse + reader.missingBytes)
        let isInsideFrame = mayRead && reader.isInsideFrame
        if isInsideFrame && whole > memory.bytes && !memory.change(to: whole) && !isReadWithoutRoom {
            return refuseToRead()
        }
        let counted = max(inUse, min(whole, memory.bytes))
        // Within the free share nothing that connections share is touched.
        if counted != memory.bytes { memory.set(to: counted) }
        // What nobody has looked at yet is read ahead within the free share alone.
        stream.isReading =
            isInsideFrame || mayRead && (bytesInUse < Self.freeShare || reader.readableBytes <= Self.shortRequest)
    }

    /// LOGOUT and PURGE are never BUSY, unless they are far longer than they need be.
    private var isReadWithoutRoom: Bool {
        let known = reader.readableBytes + reader.missingBytes
        return known <= Self.shortRequest || (known <= Self.longestPurge && reader.isInsideFrame(of: "PURGE"))
    }

    private func refuseToRead() {
        context.sessions.uidLog.write(
            "disconnected a peer whose uid has no memory left", uid: peer.uid,
            ["pid": "\(peer.pid)", "held": "\(memory.bytes)"], at: context.services.time.now)
        respond(noRoom)
        finish()
        work()
    }

    /// The answer to what found no room.
    var noRoom: ByteBuffer { .error(CommandError(.busy, memory.refusal)) }

    // MARK: The end

    /// Frees what was in use. A request that is worked on to its end, as a PUT is, counts until then, and all of it:
    /// the free share has gone with the connection.
    func giveBackMemory() {
        reader.clear()
        replies = ReplyQueue()
        gathered = ByteBuffer()
        memory.set(to: isAtBarrier ? begun : 0)
    }
}
