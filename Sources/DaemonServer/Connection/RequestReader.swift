import LinuxSupport
import NIOCore
import ThumbcacheProtocol

/// The unprocessed input of a connection, and the decoder of its requests.
struct RequestReader {
    private var decoder: RequestDecoder
    /// The decoder's input. Returned requests share this storage.
    private(set) var decoding = ByteBuffer()
    /// Input after `decoding`. No request shares it, so appending never copies it.
    private(set) var undecoded = ByteBuffer()
    /// Whether `decoding` or `undecoded` may share the loop's read buffer.
    private var sharesLoopBuffer = false
    private(set) var count = 0

    init(limits: RequestLimits) {
        decoder = RequestDecoder(limits: limits)
    }

    /// Bytes received and not yet returned as requests.
    var readableBytes: Int { decoding.readableBytes + undecoded.readableBytes }

    /// Whether the last frame is incomplete. False while there is undecoded input.
    var isInsideFrame: Bool { decoder.isInsideFrame && undecoded.readableBytes == 0 }

    /// Bytes that are missing in the current argument; 0 if unknown.
    var missingBytes: Int { decoding.readableBytes == 0 ? 0 : max(0, decoder.missingBytes - undecoded.readableBytes) }

    /// - Parameter command: in upper case.
    func isInsideFrame(of command: String) -> Bool {
        guard isInsideFrame else { return false }
        // The decoder has consumed the array header. A length has only one valid form.
        let start = "$\(command.utf8.count)\r\n\(command)\r\n".utf8
        let isSmall = { (byte: UInt8) in UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte }
        return decoding.readableBytesView.prefix(start.count).map { isSmall($0) ? $0 & 0xDF : $0 }.elementsEqual(start)
    }

    /// - Parameter bytes: borrowed until ``keep()``.
    mutating func append(_ bytes: ByteBuffer) {
        sharesLoopBuffer = true
        if undecoded.readableBytes == 0 { undecoded = bytes } else { undecoded.writeImmutableBuffer(bytes) }
    }

    /// Copies the unread bytes so that the shared read buffer can be reused.
    mutating func keep() {
        guard sharesLoopBuffer else { return }
        sharesLoopBuffer = false
        decoding.keepReadableBytes(and: decoder.missingBytes)
        undecoded.keepReadableBytes(and: 0)
    }

    /// Nil if the next request is incomplete. A request retains the whole buffer: detach what stays.
    mutating func next() throws(ProtocolError) -> Request? {
        if decoding.readableBytes > 0, let request = try decode() { return request }
        guard undecoded.readableBytes > 0 else { return nil }
        moveToDecoding()
        return try decode()
    }

    /// Wipes and discards the input: it may be half of a LOGIN. Returned requests share the storage, but not the unread
    /// bytes, which alone are wiped.
    mutating func clear() {
        decoding.wipeReadableBytesOfAll()
        undecoded.wipeReadableBytesOfAll()
        decoding = ByteBuffer()
        undecoded = ByteBuffer()
    }

    private mutating func decode() throws(ProtocolError) -> Request? {
        guard let request = try decoder.next(&decoding) else { return nil }
        count &+= 1
        // An idle connection holds no memory.
        if decoding.readableBytes == 0 { decoding = ByteBuffer() }
        return request
    }

    private mutating func moveToDecoding() {
        if decoding.readableBytes == 0 {
            decoding = undecoded
        } else {
            // Otherwise the buffer of a stream that is always inside a frame would grow without bound.
            decoding.discardReadBytes()
            // Reserves space for a large argument at once, instead of copying the buffer at every doubling.
            decoding.makeRoom(for: max(decoder.missingBytes, undecoded.readableBytes))
            decoding.writeImmutableBuffer(undecoded)
            undecoded.wipe()
        }
        undecoded = ByteBuffer()
    }
}

extension ByteBuffer {
    /// Moves the bytes to a buffer of their size, unless they and `missing` bytes fill half of the current one.
    fileprivate mutating func keepReadableBytes(and missing: Int) {
        guard storageCapacity > 0, readableBytes + missing < storageCapacity / 2 else { return }
        move(to: ByteBuffer(bytes: readableBytesView))
    }

    /// Grows the buffer without realloc(3), which would leave unwiped bytes in freed memory.
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
