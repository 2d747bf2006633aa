import DequeModule
import NIOCore

/// The replies of one connection in the order of their requests. Replies that are ready early wait here.
struct ReplyQueue {
    struct ReplySlot: Hashable, Sendable {
        fileprivate let number: UInt64
    }

    private var replies: Deque<ByteBuffer?> = []
    private var front: UInt64 = 0
    private var readyBytes = 0

    var isEmpty: Bool { replies.isEmpty }
    /// Approximate memory in bytes. Includes the overhead per entry, since thousands of short replies may wait.
    var cost: Int { readyBytes + replies.count * 128 }

    mutating func reserve() -> ReplySlot {
        replies.append(nil)
        return ReplySlot(number: front + UInt64(replies.count) - 1)
    }

    mutating func append(_ reply: ByteBuffer) {
        replies.append(reply)
        readyBytes += reply.readableBytes
    }

    /// Fills a reserved slot. A second reply to the same slot is ignored.
    mutating func fill(_ replySlot: ReplySlot, with reply: ByteBuffer) {
        guard replySlot.number >= front else { return }
        let index = Int(replySlot.number - front)
        guard replies.indices.contains(index), replies[index] == nil else { return }
        replies[index] = reply
        readyBytes += reply.readableBytes
    }

    mutating func popReady() -> ByteBuffer? {
        guard let first = replies.first, let reply = first else { return nil }
        replies.removeFirst()
        front += 1
        readyBytes -= reply.readableBytes
        return reply
    }
}
