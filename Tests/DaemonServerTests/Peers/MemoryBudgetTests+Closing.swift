import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Release of a connection's memory when it closes.
extension MemoryBudgetTests {
    @Test(arguments: ["half-close", "close", "malformed", "drain", "server"])
    func `F19, I8: an unfinished request releases its memory, however it ends`(_ way: String) async throws {
        try await run { daemon in
            _ = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            let client = try await daemon.connect()
            let whole = put("bob")
            client.sendWithoutWaiting(
                way == "malformed" ? try #require(whole.getSlice(at: 0, length: 100)) : try unfinishedPut())
            try await eventually { memory.bytes > 0 }
            switch way {
            case "half-close": try await client.halfClose()
            case "malformed": client.sendWithoutWaiting(ByteBuffer(repeating: UInt8(ascii: "x"), count: Self.large + 2))
            case "drain": try await daemon.server.drain(grace: .zero)
            case "server": daemon.server.close()
            default: try await client.close()
            }
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test(arguments: ["close", "server", "stall"])
    func `F17, F19, I8: an unread reply releases its memory, however it ends`(_ way: String) async throws {
        try await run(stall: way == "stall" ? 1_000 : Self.long) { daemon in
            _ = try await connectWithImage(daemon)
            let memory = memory(daemon)
            let client = try await daemon.connect(reads: false)
            client.sendWithoutWaiting(TestClient.request(["GET", "alice", "bob"]))
            // The stall may close it before the check.
            if way != "stall" { try await eventually { memory.bytes > 0 } }
            if way == "close" { try await client.close() }
            if way == "server" { daemon.server.close() }
            let left = way == "server" ? 0 : 1
            try await eventually { daemon.registry.statistics.connections == left && memory.bytes == 0 }
        }
    }

    @Test func `F19, I8: a PUT of a closed connection counts until it is written`() async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            let gate = daemon.store.hold(.seal)
            let client = try await daemon.connect()
            try await client.send(put("bob"))
            await gate.reached()
            try await client.close()
            try await owner.close()
            try await eventually { daemon.registry.statistics.connections == 0 }
            // Also for later connections.
            let next = try await daemon.connect()
            #expect(try await next.call("PING") == .simpleString("PONG"))
            #expect(memory.bytes >= Self.large)
            daemon.store.release(.seal)
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test(arguments: ["PUT", "GET", "LOGIN"])
    func `F19, I8: a command whose peer closes during the lookup releases its memory`(_ word: String)
        async throws
    {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            let gate = daemon.store.hold(.load)
            let client = try await daemon.connect()
            var words = [word, "carol"].map { ByteBuffer(string: $0) }
            if word != "LOGIN" { words.append(ByteBuffer(string: "bob")) }
            if word == "PUT" { words.append(SampleImage.png("bob")) }
            try await client.send(words)
            await gate.reached()
            try await client.close()
            try await eventually { daemon.registry.statistics.connections == 1 }
            #expect(memory.bytes > 0)
            daemon.store.release(.load)
            if word == "LOGIN" {
                try await eventually { daemon.isOpen("carol") }
                #expect(try await owner.call("LOGOUT", "carol")["users"] == .integer(1))
            }
            try await eventually { memory.bytes == 0 }
            #expect(try await owner.call("PING") == .simpleString("PONG"))
        }
    }
}
