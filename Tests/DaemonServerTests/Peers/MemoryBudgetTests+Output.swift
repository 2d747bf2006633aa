import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Memory of unread replies.
extension MemoryBudgetTests {
    /// A client of alice, who has an image of `size` bytes.
    func connectWithImage(_ daemon: TestDaemon, size: Int = large) async throws -> TestClient {
        let client = try await daemon.connectWithAlice()
        try await client.send(put("bob", size: size))
        #expect(try await client.reply() == .ok)
        // The memory of the PUT is released by then.
        try await pass(client)
        return client
    }

    /// Waits until the loop has read all earlier input.
    private func pass(_ client: TestClient) async throws {
        for _ in 0..<3 { #expect(try await client.call("PING") == .simpleString("PONG")) }
    }

    @Test func `I8, F17, F20: unread replies of a uid over its budget are BUSY at once`()
        async throws
    {
        try await run { daemon in
            let owner = try await connectWithImage(daemon)
            let memory = memory(daemon)
            var clients: [TestClient] = []
            for number in 0..<16 {
                let client = try await daemon.connect(reads: false)
                // The replies share the image, with META as well.
                let words = ["GET", "alice", "bob"] + (number.isMultiple(of: 2) ? [] : ["META"])
                try await client.pipeline([words, ["PING"]])
                clients.append(client)
            }
            try await pass(owner)
            #expect(memory.bytes <= Self.budget && memory.bytes > Self.budget / 2)
            try await expectOthersToBeServed(daemon)
            #expect(memory.bytes <= Self.budget)
            var busy = 0
            for client in clients {
                try await client.startReading()
                let reply = try await client.reply()
                if reply.code == nil { continue }
                #expect(reply.code == "BUSY")
                busy += 1
            }
            #expect(busy > 0 && busy <= 12)
            for client in clients { #expect(try await client.reply() == .simpleString("PONG")) }
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test(arguments: [["GET", "alice", "bob"], ["MGET", "alice", "1", "bob"], ["GET", "alice", "bob", "META"]])
    func `F53, I8: a large reply without budget is BUSY, and the LOGOUT after it succeeds`(
        _ words: [String]
    )
        async throws
    {
        try await run { daemon in
            let client = try await connectWithImage(daemon)
            let memory = memory(daemon)
            memory.add(Self.budget)
            try await client.pipeline([words, ["LOGOUT", "alice"]])
            let reply = try await client.reply()
            #expect((reply.elements?.first ?? reply).code == "BUSY")
            #expect(try await client.reply()["users"] == .integer(1))
            #expect(try await client.call("PING") == .simpleString("PONG"))
            #expect(memory.bytes <= Self.budget)
        }
    }

    @Test func `I8: BUSY names the limit, and a retry succeeds once there is room`() async throws {
        try await run { daemon in
            let client = try await connectWithImage(daemon)
            let memory = memory(daemon)
            memory.add(Self.budget)
            let busy = try await client.wire("GET", "alice", "bob")
            #expect(busy.hasPrefix("-BUSY limits.memory-per-uid (2097152 bytes): account "))
            memory.release(Self.budget)
            #expect(try await client.call("GET", "alice", "bob") == image("bob", size: Self.large))
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test func `F53, I8: a LOGOUT after a large unread reply succeeds`() async throws {
        try await run { daemon in
            let owner = try await connectWithImage(daemon)
            let memory = memory(daemon)
            let client = try await daemon.connect(reads: false)
            try await client.send("GET", "alice", "bob")
            try await eventually { memory.bytes > 0 }
            memory.add(Self.budget)
            try await client.send("LOGOUT", "alice")
            try await eventually { try await owner.call("USERS") == .array([]) }
        }
    }

    @Test func `I8: without budget, a client that reads gets all images within the free share`() async throws {
        try await run { daemon in
            let client = try await connectWithImage(daemon, size: 100_000)
            let memory = memory(daemon)
            memory.add(2 * Self.budget)
            let profiles = Array(repeating: "bob", count: 10)
            try await client.send(TestClient.request(["MGET", "alice", "10"] + profiles))
            #expect(
                try await client.reply().elements
                    == Array(repeating: image("bob", size: 100_000), count: profiles.count))
            #expect(memory.bytes == 2 * Self.budget)
        }
    }

    @Test func `F17, I8: short unread replies are bounded, and none is lost`() async throws {
        try await run {
            $0.limits.output = 16 << 20
        } _: { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            memory.add(Self.budget)
            let client = try await daemon.connect(reads: false)
            let count = 2_000
            let text = String(repeating: "y", count: 2_000)
            for _ in 0..<count { client.sendWithoutWaiting(TestClient.request(["ECHO", text])) }
            try await eventually { memory.bytes > Self.budget }
            for _ in 0..<10 { try await pass(owner) }
            // Twice the free share, one of which does not count, and the input read ahead.
            #expect(memory.bytes < Self.budget + 2 * Connection.freeShare)
            memory.release(Self.budget)
            try await client.startReading()
            for _ in 0..<count { #expect(try await client.reply() == bulk(text)) }
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test func `I8: a download that completes without budget is BUSY, and stored`() async throws {
        try await run { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            try await client.pipeline([["GET", "alice", "bob"], ["GET", "alice", "carol"]])
            await daemon.fetcher.started(2)
            memory.add(Self.budget)
            daemon.finish("bob", size: Self.large)
            daemon.finish("carol")
            #expect(try await client.reply().code == "BUSY")
            #expect(try await client.reply() == image("carol"))
            memory.release(Self.budget)
            #expect(try await client.call("GET", "alice", "bob") == image("bob", size: Self.large))
            #expect(daemon.fetcher.downloads.count == 2)
        }
    }

    @Test func `I8: hits within the free share do not count`() async throws {
        try await run { daemon in
            let owner = try await connectWithImage(daemon, size: 8_000)
            let memory = memory(daemon)
            let hit = image("bob", size: 8_000)
            let client = try await daemon.connect(reads: false)
            // About 400 KiB, half of which fits into the socket buffer.
            try await client.pipeline(Array(repeating: ["GET", "alice", "bob"], count: 50))
            try await pass(owner)
            #expect(memory.bytes == 0)
            // Without budget, and without memory that could be released.
            memory.add(2 * Self.budget)
            try await client.startReading()
            #expect(try await client.replies(50) == Array(repeating: hit, count: 50))
            try await client.pipeline(Array(repeating: ["GET", "alice", "bob"], count: 20))
            #expect(try await client.replies(20) == Array(repeating: hit, count: 20))
            #expect(memory.bytes == 2 * Self.budget)
        }
    }
}
