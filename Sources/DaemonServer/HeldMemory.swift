/// What one connection holds in memory for its peer, and what of it counts among all of its uid (I8). Values alone.
struct HeldMemory {
    /// Bytes that a connection may hold and that count for nothing: every request but a PUT of a large image, or a PURGE of a list of
    /// many long names, and a reply of the size that the kernel takes in one send (208 KiB, net.core.wmem_default).
    static var share: Int { 256 << 10 }
    /// Bytes of a frame that is read whatever else is held, as a LOGOUT is behind replies that its peer has not read.
    static var smallFrame: Int { 4 << 10 }
    /// Bytes that a stream reads at once.
    static var readAtOnce: Int { 64 << 10 }

    /// Bytes of input that are not worked on yet. Inside a frame they are all of that frame.
    var input = 0
    /// Bytes that the peer is known to owe of an argument.
    var missing = 0
    var isInsideFrame = false
    /// Bytes of requests that are being worked on and hold up others, and of output that the peer has not taken.
    var other = 0
    /// Bytes that count already.
    var charged = 0

    /// How many of so many bytes count.
    static func counted(_ bytes: Int) -> Int { max(0, bytes - share) }

    /// Bytes that are to count for what is held.
    var counted: Int { Self.counted(input + other) }
    /// The same when all that is known of the frame has come.
    var countedWhole: Int { Self.counted(input + other + max(missing, 1)) }
    /// The same while the peer is read: behind an argument comes what stands behind it.
    var countedReading: Int { Self.counted(input + other + missing + Self.readAtOnce) }
    /// Bytes that are to count by what is held, and by what was taken to read the rest of a frame.
    var settled: Int { isInsideFrame ? min(max(charged, counted), countedReading) : counted }

    /// Bytes to take before a reply of so many is taken on.
    func toTake(forReply bytes: Int) -> Int { max(0, Self.counted(input + other + bytes) - charged) }
    /// Bytes to take before the peer is read on, unless it ``isReadFreely``: for all of an argument or for none of it. Connections
    /// that each had a part of theirs, and no room for the rest, would wait for each other.
    var toTakeForReading: Int { max(0, countedReading - charged) }

    /// Whether the peer is read without asking. What comes with the end of a frame counts when it has come.
    var isReadFreely: Bool { countedWhole <= charged || input + missing <= Self.smallFrame }
    /// Whether others may wait for the end of the frame that the peer is in the middle of.
    var isInsideLongFrame: Bool { isInsideFrame && input > Self.share }
}
