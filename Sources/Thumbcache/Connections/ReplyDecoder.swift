import NIOCore
import ThumbcacheProtocol

/// Splits the input of a connection into replies.
///
/// Copies only a reply that spans several reads, and at most 512 bytes or a quarter of its length after it. Other replies
/// share the storage of their read. `NIOSingleStepByteToMessageProcessor` would append each read to the unconsumed bytes,
/// and so copy most of the input.
struct ReplyDecoder {
    /// In bytes.
    let longestReply: Int
    /// The unconsumed bytes of the current read.
    private(set) var read = ByteBuffer()
    /// The beginning of a reply that earlier reads have not completed. No storage otherwise, so that an idle connection
    /// does not keep an image.
    private(set) var partial = ByteBuffer()
    /// Bytes missing in the incomplete string of ``partial``; 0 if unknown.
    private var missing = 0
    /// The minimum number of bytes after the missing ones that are appended before ``partial`` is parsed again.
    private static let step = 512

    init(longestReply: Int) { self.longestReply = longestReply }

    /// Adds a read. Before the next read, call ``next()`` until it returns nil.
    mutating func append(_ read: ByteBuffer) {
        assert(self.read.readableBytes == 0, "decode the previous read first")
        self.read = read
    }

    /// Returns the next reply; nil if more input is needed.
    /// - Throws: ``ProtocolError`` if the input is invalid. The decoder must not be used then.
    mutating func next() throws(ProtocolError) -> Value? {
        while partial.readableBytes > 0 {
            // A quarter of a long reply, so that the number of parses of a long array grows with its logarithm.
            let count = min(max(missing + Self.step, partial.readableBytes / 4), read.readableBytes)
            guard count > 0 else {
                read = ByteBuffer()
                return nil
            }
            partial.writeBytes(read.readableBytesView.prefix(count))
            read.moveReaderIndex(forwardBy: count)
            guard let value = try partial.readReply(limit: longestReply, missing: &missing) else { continue }
            // The bytes after this reply belong to the next ones.
            read.moveReaderIndex(to: read.readerIndex - partial.readableBytes)
            partial = ByteBuffer()
            return value
        }
        if let value = try read.readReply(limit: longestReply, missing: &missing) { return value }
        if read.readableBytes > 0 {
            // A declared length must not cause a large allocation before the bytes arrive.
            let room = min(missing, read.readableBytes + (64 << 10)) + Self.step
            partial = ByteBufferAllocator().buffer(capacity: read.readableBytes + room)
            partial.writeBytes(read.readableBytesView)
        }
        read = ByteBuffer()
        return nil
    }
}
