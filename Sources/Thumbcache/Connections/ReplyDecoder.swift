import NIOCore
import RESP

/// Bytes of the daemon's to replies.
struct ReplyDecoder: ByteToMessageDecoder {
    typealias InboundOut = Value

    /// In bytes.
    var longestReply = 1 << 30

    mutating func decode(context: ChannelHandlerContext, buffer: inout ByteBuffer) throws -> DecodingState {
        guard let value = try buffer.readReply(limit: longestReply) else { return .needMoreData }
        context.fireChannelRead(wrapInboundOut(value))
        return .continue
    }

    /// What the daemon left unfinished when it closed is no reply: whoever waits for it gets `connectionLost`.
    mutating func decodeLast(
        context: ChannelHandlerContext, buffer: inout ByteBuffer, seenEOF: Bool
    ) throws -> DecodingState {
        let state = try decode(context: context, buffer: &buffer)
        if state == .needMoreData { buffer.clear() }
        return state
    }
}
