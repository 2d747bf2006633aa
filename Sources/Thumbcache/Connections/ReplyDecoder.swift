import NIOCore
import ThumbcacheProtocol

/// Bytes of the daemon's to replies.
struct ReplyDecoder: NIOSingleStepByteToMessageDecoder {
    typealias InboundOut = Value

    /// In bytes.
    let longestReply: Int

    mutating func decode(buffer: inout ByteBuffer) throws -> Value? {
        let value = try buffer.readReply(limit: longestReply)
        // The storage is the reply's now, and goes with it: a connection that is idle would keep the last picture.
        if buffer.readableBytes == 0 { buffer = ByteBuffer() }
        return value
    }

    /// What is left is no whole reply: all that was whole has been decoded.
    mutating func decodeLast(buffer: inout ByteBuffer, seenEOF: Bool) -> Value? { nil }
}
