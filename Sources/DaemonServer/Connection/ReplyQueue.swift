import DequeModule
import NIOCore

/// An encoded reply. With META, the image is a separate part, so that it is sent without a copy.
struct Reply {
    private let first: ByteBuffer
    private let image: (framed: ByteBuffer, rest: ByteBuffer)?

    init(_ bytes: ByteBuffer) { (first, image) = (bytes, nil) }

    /// - Parameters:
    ///   - first: the bytes before the image.
    ///   - framed: the image as a bulk string.
    ///   - rest: the bytes after the image.
    init(_ first: ByteBuffer, image framed: ByteBuffer, rest: ByteBuffer) {
        self.first = first
        image = (framed, rest)
    }

    var readableBytes: Int {
        first.readableBytes + (image.map { $0.framed.readableBytes + $0.rest.readableBytes } ?? 0)
    }

    /// Calls `body` with each part in order.
    func forEachPart(_ body: (ByteBuffer) -> Void) {
        body(first)
        if let image {
            body(image.framed)
            body(image.rest)
        }
    }
}

/// The replies of one connection in the order of their requests. Replies that are ready early wait here.
struct ReplyQueue {
    struct ReplySlot: Hashable, Sendable {
        fileprivate let number: UInt64
    }

    private var replies: Deque<Reply?> = []
    private var front: UInt64 = 0
    private var readyBytes = 0

    var isEmpty: Bool { replies.isEmpty }
    /// Approximate memory in bytes. Includes the overhead per entry, since thousands of short replies may wait.
    var cost: Int { readyBytes + replies.count * 128 }

    mutating func reserve() -> ReplySlot {
        replies.append(nil)
        return ReplySlot(number: front + UInt64(replies.count) - 1)
    }

    mutating func append(_ reply: Reply) {
        replies.append(reply)
        readyBytes += reply.readableBytes
    }

    /// Fills a reserved slot. A second reply to the same slot is ignored.
    mutating func fill(_ replySlot: ReplySlot, with reply: Reply) {
        guard replySlot.number >= front else { return }
        let index = Int(replySlot.number - front)
        guard replies.indices.contains(index), replies[index] == nil else { return }
        replies[index] = reply
        readyBytes += reply.readableBytes
    }

    mutating func popReady() -> Reply? {
        guard let first = replies.first, let reply = first else { return nil }
        replies.removeFirst()
        front += 1
        readyBytes -= reply.readableBytes
        return reply
    }
}
