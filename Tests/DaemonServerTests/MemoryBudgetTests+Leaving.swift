import CacheFakes
import NIOCore
import RESP
import Testing
import ThumbnailCache

@testable import DaemonServer

/// What becomes of a connection's memory when it ends, and where it can be seen.
extension MemoryBudgetTests {
    @Test(arguments: ["half-close", "close", "malformed", "drain", "server"])
    func `F19, I8: what an unfinished request held is given back, whichever way it ends`(_ way: String) async throws {
        try await run { daemon in
            _ = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
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
    func `F17, F19, I8: what an unread reply held is given back, whichever way it ends`(_ way: String) async throws {
        try await run(stall: way == "stall" ? 1_000 : Self.long) { daemon in
            let owner = try await daemon.connectWithAlice()
            try await owner.send(put("bob"))
            #expect(try await owner.reply() == .ok)
            let memory = try memory(daemon)
            let client = try await daemon.connect(reads: false)
            client.sendWithoutWaiting(TestClient.request(["GET", "alice", "bob"]))
            // By the stall it may be over before anybody has looked.
            if way != "stall" { try await eventually { memory.bytes > 0 } }
            if way == "close" { try await client.close() }
            if way == "server" { daemon.server.close() }
            let left = way == "server" ? 0 : 1
            try await eventually { daemon.registry.statistics.connections == left && memory.bytes == 0 }
        }
    }

    @Test func `F19, I8: who waits in line and goes leaves the line`() async throws {
        try await run { daemon in
            _ = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            memory.add(Self.budget)
            let client = try await daemon.connect()
            client.sendWithoutWaiting(put("bob"))
            try await eventually { memory.waiting == 1 }
            try await client.close()
            try await eventually { memory.waiting == 0 && memory.bytes == Self.budget }
        }
    }

    @Test func `F19, I8: a PUT whose peer is gone counts until it is written, and has no place`() async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let gate = daemon.store.hold(.seal)
            let client = try await daemon.connect()
            try await client.send(put("bob"))
            await gate.reached()
            try await client.close()
            try await owner.close()
            try await eventually { daemon.registry.statistics.connections == 0 }
            // Also for those who come after.
            let next = try await daemon.connect()
            #expect(try await next.call("PING") == .simpleString("PONG"))
            let memory = try memory(daemon)
            #expect(memory.bytes >= Self.large)
            daemon.store.release(.seal)
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test(arguments: ["PUT", "GET", "LOGIN"])
    func `F19, I8: a command whose peer goes while a user is looked for gives everything back`(_ word: String)
        async throws
    {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
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
            try await eventually { memory.bytes == 0 }
            #expect(try await owner.call("PING") == .simpleString("PONG"))
        }
    }

    @Test func `INFO tells a uid what it holds, and an admin what all do`() async throws {
        try await run { daemon in
            _ = try await daemon.connect().call("PING")
            _ = try await daemon.connect(as: Self.other).call("PING")
            try memory(daemon).add(7)
            try memory(daemon, of: 1001).add(4)
            let own = daemon.registry.lines(for: TestDaemon.somebody).map { "\($0.name)=\($0.value)" }
            #expect(own == ["connected_clients=1", "held_bytes=7", "waiting_for_memory=0"])
            let all = daemon.registry.lines(for: TestDaemon.admin).map { "\($0.name)=\($0.value)" }
            #expect(all.suffix(2) == ["held_bytes=11", "waiting_for_memory=0"])
        }
    }
}
