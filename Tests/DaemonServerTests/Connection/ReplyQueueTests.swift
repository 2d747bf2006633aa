import NIOCore
import Testing

@testable import DaemonServer

@Suite struct ReplyQueueTests {
    private func popAll(_ queue: inout ReplyQueue) -> [String] {
        var popped: [String] = []
        while let reply = queue.popReady() { reply.forEachPart { popped.append(String(buffer: $0)) } }
        return popped
    }

    @Test func `replies leave in the order of their requests`() {
        var queue = ReplyQueue()
        let first = queue.reserve()
        queue.append(Reply(ByteBuffer(string: "second")))
        let third = queue.reserve()
        queue.fill(third, with: Reply(ByteBuffer(string: "third")))
        #expect(popAll(&queue) == [])
        queue.fill(first, with: Reply(ByteBuffer(string: "first")))
        #expect(popAll(&queue) == ["first", "second", "third"])
        #expect(queue.isEmpty)
    }

    @Test func `a reply slot is filled once`() {
        var queue = ReplyQueue()
        let first = queue.reserve()
        let second = queue.reserve()
        queue.fill(second, with: Reply(ByteBuffer(string: "two")))
        queue.fill(second, with: Reply(ByteBuffer(string: "again")))
        queue.fill(first, with: Reply(ByteBuffer(string: "one")))
        #expect(popAll(&queue) == ["one", "two"])
        queue.fill(first, with: Reply(ByteBuffer(string: "late")))
        _ = queue.reserve()
        queue.fill(first, with: Reply(ByteBuffer(string: "late")))
        queue.fill(second, with: Reply(ByteBuffer(string: "late")))
        #expect(popAll(&queue) == [])
        #expect(!queue.isEmpty)
    }
}
