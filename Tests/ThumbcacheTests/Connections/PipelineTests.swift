import Testing

@testable @_spi(Wire) import Thumbcache

@Suite(.timeLimit(.minutes(4))) struct PipelineTests {
    @Test func `many tasks share one connection, and each gets its own reply`() async throws {
        try await withClient { client, daemon in
            try await withThrowingTaskGroup(of: (Int, Int?).self) { group in
                for number in 0..<20 {
                    group.addTask { (number, try await client.stat("alice", "\(number)")?.length) }
                }
                let peer = try await daemon.accept()
                for _ in 0..<20 {
                    let request = try await peer.next()
                    let image = String(repeating: "x", count: try #require(Int(request[2])))
                    peer.send(Wire.image(image))
                }
                for try await (number, length) in group { #expect(length == number) }
            }
        }
    }

    @Test func `a cancelled task does not affect other replies of the connection`() async throws {
        try await withClient { client, daemon in
            let cancelled = Task { try await client.info() }
            let peer = try await daemon.accept()
            #expect(try await peer.next() == ["INFO"])
            let waiting = Task { try await client.users() }
            #expect(try await peer.next() == ["USERS"])
            cancelled.cancel()
            await #expect(throws: ThumbcacheError.cancelled) { try await cancelled.value }
            peer.send("+another caller's reply\r\n*1\r\n+alice\r\n")
            #expect(try await waiting.value == ["alice"])
        }
    }

    @Test func `requests in flight are bounded, including those of cancelled tasks`() async throws {
        try await withClient {
            $0.maximumPipelined = 2
        } _: { client, daemon in
            let tasks = (0..<2).map { _ in Task { try await client.ping() } }
            let peer = try await daemon.accept()
            for _ in 0..<2 { #expect(try await peer.next() == ["PING"]) }
            for task in tasks {
                task.cancel()
                _ = await task.result
            }
            let third = Task { try await client.users() }
            // On a connection of its own; after its reply, the third request would have arrived.
            let other = Task { try await client.get("alice", "bob") }
            let otherPeer = try await daemon.accept()
            _ = try await otherPeer.next()
            otherPeer.send("_\r\n")
            _ = try await other.value
            #expect(peer.unread == 0)
            peer.send("+PONG\r\n")
            #expect(try await peer.next() == ["USERS"])
            peer.send("+PONG\r\n*0\r\n")
            #expect(try await third.value == [])
        }
    }

    @Test func `permits are granted in order, and not to cancelled tasks`() async throws {
        let permits = Permits(1)
        try await permits.acquire()
        let cancelled = Task { try await permits.acquire() }
        cancelled.cancel()
        await #expect(throws: ThumbcacheError.cancelled) { try await cancelled.value }
        let order = Mailbox<String>()
        let next = Task {
            try await permits.acquire()
            order.put("acquired")
        }
        order.put("released")
        permits.release()
        try await next.value
        #expect(try await order.next() == "released")
        #expect(try await order.next() == "acquired")
        permits.release()
        try await permits.acquire()
    }
}
