import CacheCore
import LinuxSupport
import NIOCore

/// Splits a byte stream into messages, however the bytes are divided into reads. For event loops; a thread that may
/// block uses ``MessageSocket``.
///
/// Fields that arrive whole are passed on without a copy. Other fields, which may contain a token, are collected in
/// memory that is wiped. The body is copied once, into the buffer that keeps it.
package struct MessageAssembler {
    package var maximumBody: Int
    /// The head and the fields of an incomplete message.
    private var collected = ByteBuffer()
    private var body: ImageBytes.Builder?
    private var missingBody = 0

    package init(maximumBody: Int) { self.maximumBody = maximumBody }

    /// - Parameter deliver: called for each complete message with its fields and its body, if any. The fields are
    ///   valid during the call only.
    /// - Throws: if the bytes are not a valid message, or `deliver` throws. The stream cannot be read any further then.
    package mutating func receive(
        _ bytes: ByteBuffer, _ deliver: (ByteBuffer, inout ImageBytes.Builder?) throws(MessageError) -> Void
    ) throws(MessageError) {
        var bytes = bytes
        while bytes.readableBytes > 0 {
            if missingBody == 0, body == nil {
                guard let fields = try readFields(&bytes) else { return }
                if missingBody == 0 {
                    try deliver(fields, &body)
                    wipeCollected()
                    continue
                }
            }
            readBody(&bytes)
            if missingBody == 0 {
                var fields = collected
                fields.moveReaderIndex(forwardBy: MessageHead.length)
                try deliver(fields, &body)
                body = nil
                wipeCollected()
            }
        }
    }

    package mutating func clear() {
        wipeCollected()
        (body, missingBody) = (nil, 0)
    }

    private mutating func wipeCollected() {
        collected.wipeReadableBytesOfAll()
        collected = ByteBuffer()
    }

    /// Returns the fields of the next message once they are complete. If it has a body, they stay in ``collected``.
    private mutating func readFields(_ bytes: inout ByteBuffer) throws(MessageError) -> ByteBuffer? {
        if collected.readableBytes == 0, let head = try MessageHead(bytes, maximumBody: maximumBody), head.body == 0,
            bytes.readableBytes >= MessageHead.length + head.fields
        {
            bytes.moveReaderIndex(forwardBy: MessageHead.length)
            return bytes.readSlice(length: head.fields)
        }
        collect(MessageHead.length, of: &bytes)
        guard let head = try MessageHead(collected, maximumBody: maximumBody) else { return nil }
        collect(MessageHead.length + head.fields, of: &bytes)
        guard collected.readableBytes == MessageHead.length + head.fields else { return nil }
        if head.body > 0 {
            missingBody = head.body
            body = ImageBytes.Builder(capacity: head.body)
        }
        return collected.getSlice(at: collected.readerIndex + MessageHead.length, length: head.fields)
    }

    /// Moves bytes to ``collected`` until it has `count` bytes or none are left.
    private mutating func collect(_ count: Int, of bytes: inout ByteBuffer) {
        guard collected.readableBytes < count,
            let part = bytes.readSlice(length: min(count - collected.readableBytes, bytes.readableBytes))
        else { return }
        collected.makeRoomWiping(for: count - collected.readableBytes)
        collected.writeImmutableBuffer(part)
    }

    private mutating func readBody(_ bytes: inout ByteBuffer) {
        guard let part = bytes.readSlice(length: min(missingBody, bytes.readableBytes)) else { return }
        body?.buffer.writeImmutableBuffer(part)
        missingBody -= part.readableBytes
    }
}
