import LinuxSupport
import NIOCore
import ThumbnailCache

/// Makes messages of the bytes of a stream, whatever pieces they come in.
///
/// Fields that came whole are lent where they lie; others, which may hold a token, are collected in memory that is
/// wiped. A body goes straight to where it is to stay.
package struct MessageAssembler {
    /// Bytes of one message's fields. A URL has 2 KiB, a token 64 KiB, and the figures of an origin some hundred bytes.
    private static let longestFields = 1 << 20

    /// Bytes of one message's body.
    package var longestBody: Int
    /// The head and the fields of a message, of which a part came before the rest.
    private var held = ByteBuffer()
    private var body: ImageBytes.Builder?
    private var bodyMissing = 0

    package init(longestBody: Int) { self.longestBody = longestBody }

    /// - Parameter take: is lent each message: its fields, and its body, if it has one.
    /// - Throws: where this is no message, or one that is longer than may be. Nothing that follows has a meaning then.
    package mutating func receive(
        _ bytes: ByteBuffer, _ take: (ByteBuffer, inout ImageBytes.Builder?) throws(MessageError) -> Void
    ) throws(MessageError) {
        var bytes = bytes
        while bytes.readableBytes > 0 {
            if bodyMissing == 0, body == nil {
                guard let fields = try takeFields(&bytes) else { return }
                if bodyMissing == 0 {
                    try take(fields, &body)
                    letGo()
                    continue
                }
            }
            takeBody(&bytes)
            if bodyMissing == 0 {
                var fields = held
                fields.moveReaderIndex(forwardBy: MessageWriter.headLength)
                try take(fields, &body)
                body = nil
                letGo()
            }
        }
    }

    /// Bytes that are missing of the message that it is in the middle of, as far as it can tell.
    package var missing: Int {
        get throws(MessageError) {
            guard let head = try head(of: held) else { return MessageWriter.headLength - held.readableBytes }
            return MessageWriter.headLength + head.fields - held.readableBytes + bodyMissing
        }
    }

    /// Forgets what it has of a message that never came to its end.
    package mutating func clear() {
        letGo()
        (body, bodyMissing) = (nil, 0)
    }

    /// Nobody looks at the fields any more that were lent.
    private mutating func letGo() {
        held.wipeReadableBytesOfAll()
        held = ByteBuffer()
    }

    /// The fields of the next message, once they are there. If it has a body, they stay in ``held``.
    private mutating func takeFields(_ bytes: inout ByteBuffer) throws(MessageError) -> ByteBuffer? {
        let headLength = MessageWriter.headLength
        if held.readableBytes == 0, let head = try head(of: bytes), bytes.readableBytes >= headLength + head.fields,
            head.body == 0
        {
            bytes.moveReaderIndex(forwardBy: headLength)
            return bytes.readSlice(length: head.fields)
        }
        hold(headLength, of: &bytes)
        guard let head = try head(of: held) else { return nil }
        hold(headLength + head.fields, of: &bytes)
        guard held.readableBytes == headLength + head.fields else { return nil }
        if head.body > 0 {
            bodyMissing = head.body
            body = ImageBytes.Builder(capacity: head.body)
        }
        return held.getSlice(at: held.readerIndex + headLength, length: head.fields)
    }

    /// Adds to what is held until it is so many bytes, or there are no more.
    private mutating func hold(_ count: Int, of bytes: inout ByteBuffer) {
        guard held.readableBytes < count,
            let part = bytes.readSlice(length: min(count - held.readableBytes, bytes.readableBytes))
        else { return }
        held.makeRoomWiping(for: count - held.readableBytes)
        held.writeImmutableBuffer(part)
    }

    private mutating func takeBody(_ bytes: inout ByteBuffer) {
        guard let part = bytes.readSlice(length: min(bodyMissing, bytes.readableBytes)) else { return }
        body?.buffer.writeImmutableBuffer(part)
        bodyMissing -= part.readableBytes
    }

    private func head(of bytes: ByteBuffer) throws(MessageError) -> (fields: Int, body: Int)? {
        guard
            let (fields, body) = bytes.getMultipleIntegers(at: bytes.readerIndex, as: (UInt32, UInt32).self)
        else { return nil }
        guard fields <= Self.longestFields else { throw MessageError("has \(fields) bytes of fields") }
        guard body <= longestBody else { throw MessageError("has a body of \(body) bytes") }
        return (Int(fields), Int(body))
    }
}
