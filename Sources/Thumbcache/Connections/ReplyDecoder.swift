import NIOCore
import RESP

/// Bytes of the daemon's to replies.
struct ReplyDecoder: NIOSingleStepByteToMessageDecoder {
    typealias InboundOut = Value

    /// In bytes.
    let longestReply: Int

    mutating func decode(buffer: inout ByteBuffer) throws -> Value? { try buffer.readReply(limit: longestReply) }

    /// What the daemon left unfinished when it closed is no reply: whoever waits for it gets `connectionLost`.
    mutating func decodeLast(buffer: inout ByteBuffer, seenEOF: Bool) throws -> Value? {
        let value = try decode(buffer: &buffer)
        if value == nil { buffer.clear() }
        return value
    }
}
