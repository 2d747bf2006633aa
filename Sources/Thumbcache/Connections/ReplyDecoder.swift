import NIOCore
import ThumbcacheProtocol

/// Splits the input of a connection into replies.
///
/// Only a reply that arrives in several reads is copied. The others share the storage of their read.
/// `NIOSingleStepByteToMessageProcessor` appends each read to the bytes that are left, and so copies most of the input.
struct ReplyDecoder {
    /// In bytes.
    let longestReply: Int
    /// The beginning of an incomplete reply. No storage otherwise, so that an idle connection does not keep an image.
    private(set) var partial = ByteBuffer()
    /// Bytes that are added to a short partial reply at a time.
    private static let leastStep = 4 << 10

    init(longestReply: Int) { self.longestReply = longestReply }

    /// - Throws: ``ProtocolError`` of the parser or of `deliver`. The rest of the input is lost then.
    mutating func decode(_ input: ByteBuffer, _ deliver: (Value) throws(ProtocolError) -> Void) throws(ProtocolError) {
        var input = input
        while partial.readableBytes > 0 {
            let count = min(max(partial.readableBytes, Self.leastStep), input.readableBytes)
            guard count > 0 else { return }
            partial.writeBytes(input.readableBytesView.prefix(count))
            input.moveReaderIndex(forwardBy: count)
            guard let value = try partial.readReply(limit: longestReply) else { continue }
            // The bytes after this reply belong to the next ones.
            input.moveReaderIndex(to: input.readerIndex - partial.readableBytes)
            partial = ByteBuffer()
            try deliver(value)
        }
        while let value = try input.readReply(limit: longestReply) { try deliver(value) }
        guard input.readableBytes > 0 else { return }
        partial = ByteBufferAllocator().buffer(capacity: input.readableBytes + Self.leastStep)
        partial.writeBytes(input.readableBytesView)
    }
}
