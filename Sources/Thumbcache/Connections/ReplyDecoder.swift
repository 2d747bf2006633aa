import NIOCore
import ThumbcacheProtocol

struct ReplyDecoder: NIOSingleStepByteToMessageDecoder {
    typealias InboundOut = Value

    /// In bytes.
    let longestReply: Int

    mutating func decode(buffer: inout ByteBuffer) throws -> Value? {
        let value = try buffer.readReply(limit: longestReply)
        // Releases the storage, so that an idle connection does not keep the last image.
        if buffer.readableBytes == 0 { buffer = ByteBuffer() }
        return value
    }

    /// The remaining bytes are an incomplete reply.
    mutating func decodeLast(buffer: inout ByteBuffer, seenEOF: Bool) -> Value? { nil }
}
