import CacheFakes
import NIOCore
import RESP
import Testing
import ThumbnailCache

@testable import DaemonServer

/// What becomes of a connection's memory when it ends, and where it can be seen.
extension MemoryBudgetTests {
    @Test(arguments: ["half-close", "close", "malformed", "drain", "server"])
    func `F19, I8: what a connection held is given back, whichever way it ends`(_ way: String) async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            try await owner.send(put("bob"))
            #expect(try await owner.reply() == .ok)
            let memory = try memory(daemon)
            let client = try await daemon.connect()
            var bytes = try unfinishedPut()
            if way == "malformed" {
                bytes = ByteBuffer(string: "*4\r\n$3\r\nPUT\r\n$5\r\nalice\r\n$3\r\nbob\r\n$\(Self.large)\r\n")
            }
            client.sendWithoutWaiting(bytes)
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

    @Test func `F19, I8: a PUT whose peer is gone keeps its memory and its place until it is written`() async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            let gate = daemon.store.hold(.seal)
            let client = try await daemon.connect()
            try await client.send(put("bob"))
            await gate.reached()
            let held = memory.bytes
            #expect(held >= Self.large - PeerMemory.share)
            try await client.close()
            // Behind it on its loop.
            for _ in 0..<3 { #expect(try await owner.call("PING") == .simpleString("PONG")) }
            #expect(memory.bytes >= Self.large - PeerMemory.share)
            #expect(daemon.registry.statistics.connections == 2)
            daemon.store.release(.seal)
            try await eventually { memory.bytes == 0 && daemon.registry.statistics.connections == 1 }
        }
    }

    @Test func `F19, I8: a PURGE whose peer is gone keeps its place until it is done`() async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let gate = daemon.store.hold(.commitPurge)
            let client = try await daemon.connect()
            try await client.send("PURGE", "alice")
            await gate.reached()
            try await client.close()
            for _ in 0..<3 { #expect(try await owner.call("PING") == .simpleString("PONG")) }
            #expect(daemon.registry.statistics.connections == 2)
            daemon.store.release(.commitPurge)
            try await eventually { daemon.registry.statistics.connections == 1 }
        }
    }

    @Test func `F19, I8: a PUT for a user who cannot be found gives its place back`() async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let gate = daemon.store.hold(.load)
            let client = try await daemon.connect()
            var bytes = ByteBuffer()
            bytes.writeRequest(["PUT", "nobody", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png("bob")])
            try await client.send(bytes)
            await gate.reached()
            try await client.close()
            #expect(try await owner.call("PING") == .simpleString("PONG"))
            #expect(daemon.registry.statistics.connections == 2)
            daemon.store.release(.load)
            try await eventually { daemon.registry.statistics.connections == 1 }
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
