import LinuxSupport
import NIOCore
import RESP

/// What a connection has received and not yet worked on, and the requests it amounts to.
struct RequestReader {
    private var decoder: RequestDecoder
    /// What the decoder reads. The requests it gives share this storage.
    private var front = ByteBuffer()
    /// What came after it. No request has a share in it, so however long the peer is read ahead of the work, adding to
    /// it never copies what is there.
    private var behind = ByteBuffer()
    /// What came last was lent, and one of the two may still stand on it.
    private var isLent = false
    /// Requests given so far.
    private(set) var count = 0

    init(limits: RequestLimits) {
        decoder = RequestDecoder(limits: limits)
    }

    /// Bytes received that belong to no request given so far.
    var readableBytes: Int { front.readableBytes + behind.readableBytes }

    /// Bytes of memory for them, and for what has been given and not been discarded.
    var capacity: Int { front.capacity + behind.capacity }

    /// Bytes of the buffers that these lie in, which others may have a share in.
    var storage: Int { front.storageCapacity + behind.storageCapacity }

    /// Whether the peer owes the rest of a frame. False as long as there are bytes that nobody has looked at.
    var isInsideFrame: Bool { decoder.isInsideFrame && behind.readableBytes == 0 }

    /// Bytes that the peer is known to owe, of the argument it is in the middle of. 0 if unknown.
    var missingBytes: Int { isInsideFrame ? decoder.missingBytes : 0 }

    /// Whether the peer owes the rest of a frame of that command.
    /// - Parameter command: in upper case.
    func isInsideFrame(of command: String) -> Bool {
        guard isInsideFrame else { return false }
        // The line that counts the arguments has been taken; a length has one way to be written.
        let start = "$\(command.utf8.count)\r\n\(command)\r\n".utf8
        let isSmall = { (byte: UInt8) in UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte }
        return front.readableBytesView.prefix(start.count).map { isSmall($0) ? $0 & 0xDF : $0 }.elementsEqual(start)
    }

    /// - Parameter bytes: lent until ``keep()``.
    mutating func append(_ bytes: ByteBuffer) {
        isLent = true
        if behind.readableBytes == 0 { behind = bytes } else { behind.writeImmutableBuffer(bytes) }
    }

    /// Makes its own what is left of the bytes that were lent, lest a few of them keep a large buffer.
    mutating func keep() {
        guard isLent else { return }
        isLent = false
        front.keepReadableBytes(and: decoder.missingBytes)
        behind.keepReadableBytes(and: 0)
    }

    /// The next request; nil when more bytes are needed. It keeps all that came with it in memory: detach what is to
    /// stay.
    mutating func next() throws(ProtocolError) -> Request? {
        // What the decoder has read to the end it need not look at again.
        if front.readableBytes > 0, let request = try take() { return request }
        guard behind.readableBytes > 0 else { return nil }
        moveUp()
        return try take()
    }

    /// Forgets what has come, and wipes it: it may be the first half of a LOGIN. No request given has a share in these
    /// bytes.
    mutating func clear() {
        front.wipeReadableBytesOfAll()
        behind.wipeReadableBytesOfAll()
        front = ByteBuffer()
        behind = ByteBuffer()
    }

    private mutating func take() throws(ProtocolError) -> Request? {
        guard let request = try decoder.next(&front) else { return nil }
        count &+= 1
        // An idle connection holds no memory.
        if front.readableBytes == 0 { front = ByteBuffer() }
        return request
    }

    private mutating func moveUp() {
        if front.readableBytes == 0 {
            front = behind
        } else {
            // Else the buffer of a stream that is always inside a frame would grow for ever.
            front.discardReadBytes()
            // Room for the whole of a large argument at once, else the buffer would be copied at every doubling.
            front.makeRoom(for: max(decoder.missingBytes, behind.readableBytes))
            front.writeImmutableBuffer(behind)
            behind.wipe()
        }
        behind = ByteBuffer()
    }
}

extension ByteBuffer {
    /// Moves the bytes to a buffer of their size, unless they, with so many that are to come, make up most of theirs.
    fileprivate mutating func keepReadableBytes(and missing: Int) {
        guard storageCapacity > 0, readableBytes + missing < storageCapacity / 2 else { return }
        let own = ByteBuffer(bytes: readableBytesView)
        move(to: own)
    }

    /// Not by realloc(3), which leaves what it moves where it was.
    fileprivate mutating func makeRoom(for count: Int) {
        guard writableBytes < count else { return }
        var larger = ByteBufferAllocator().buffer(capacity: readableBytes + count)
        larger.writeImmutableBuffer(self)
        move(to: larger)
    }

    private mutating func move(to other: ByteBuffer) {
        wipe()
        self = other
    }
}
