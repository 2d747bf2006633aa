import DequeModule
import NIOCore

/// Replies of one connection in the order of their requests. What is ready before its turn waits here.
struct ReplyQueue {
    /// Names a reply that is still to come.
    struct Ticket: Hashable, Sendable {
        fileprivate let number: UInt64
    }

    private var replies: Deque<ByteBuffer?> = []
    /// Number of the reply at the front.
    private var front: UInt64 = 0
    /// Bytes of replies that are ready and wait for their turn.
    private var readyBytes = 0

    /// Whether every request so far has been answered.
    var isEmpty: Bool { replies.isEmpty }
    /// Bytes of memory that the queue takes up, about. Thousands of short replies may wait for a long one: so an entry,
    /// and the buffer around its bytes, count too.
    var cost: Int { readyBytes + replies.count * 128 }

    /// Adds an entry for a reply that comes later.
    mutating func reserve() -> Ticket {
        replies.append(nil)
        return Ticket(number: front + UInt64(replies.count) - 1)
    }

    /// Adds a reply that is ready but has others before it.
    mutating func append(_ reply: ByteBuffer) {
        replies.append(reply)
        readyBytes += reply.readableBytes
    }

    /// Fills an entry that was reserved. A second answer to the same ticket is not taken.
    mutating func fill(_ ticket: Ticket, with reply: ByteBuffer) {
        guard ticket.number >= front else { return }
        let index = Int(ticket.number - front)
        guard replies.indices.contains(index), replies[index] == nil else { return }
        replies[index] = reply
        readyBytes += reply.readableBytes
    }

    /// The reply whose turn it is, if it is ready.
    mutating func popReady() -> ByteBuffer? {
        guard let first = replies.first, let reply = first else { return nil }
        replies.removeFirst()
        front += 1
        readyBytes -= reply.readableBytes
        return reply
    }
}
