import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import RESP
import Testing
import ThumbnailCache

@testable import DaemonServer

/// How much memory the connections of one uid can have the daemon hold: `memory-per-uid` (I8, F16, F17, F18, F20).
@Suite(.timeLimit(.minutes(5))) struct MemoryBudgetTests {
    static let long: Int64 = 600_000
    static let budget = 2 << 20
    static let large = 700 << 10
    static let other = Peer(uid: 1001, pid: 1, isAdmin: false)

    /// A daemon whose budget four large images fill.
    func run(
        stall: Int64 = long, _ configure: (inout TestDaemon.Setup) -> Void = { _ in },
        _ body: (TestDaemon) async throws -> Void
    ) async throws {
        try await TestDaemon.run(
            {
                $0.limits.memoryPerUID = Self.budget
                $0.limits.input = Self.budget
                $0.limits.output = Self.budget
                $0.limits.image = Self.large
                $0.limits.stall = stall
                configure(&$0)
            }, body)
    }

    func put(_ profile: String, size: Int = large) -> ByteBuffer {
        var bytes = ByteBuffer()
        bytes.writeRequest(
            ["PUT", "alice", profile].map { ByteBuffer(string: $0) } + [SampleImage.png(profile, size: size)])
        return bytes
    }

    /// A PUT of a large image without its last bytes.
    func unfinishedPut() throws -> ByteBuffer {
        let whole = put("bob")
        return try #require(whole.getSlice(at: 0, length: whole.readableBytes - 1_000))
    }

    func memory(_ daemon: TestDaemon, of uid: UInt32 = 1000) throws -> PeerMemory {
        try #require(daemon.registry.load(of: uid)).memory
    }

    /// Small requests of somebody whose uid holds all that it may, and another uid's large ones.
    func expectOthersToBeServed(_ daemon: TestDaemon) async throws {
        let client = try await daemon.connect()
        #expect(try await client.call("PING") == .simpleString("PONG"))
        #expect(try await client.call("LOGIN", "carol") == .ok)
        let words = ["PUT", "carol", "small"].map { ByteBuffer(string: $0) }
        #expect(try await client.call(words + [SampleImage.png("small", size: 100_000)]) == .ok)
        #expect(try await client.call("GET", "carol", "small") == image("small", size: 100_000))
        #expect(try await client.call("PURGE", "carol", "1", "small")["images"] == .integer(1))
        #expect(try await client.call("LOGOUT", "carol")["users"] == .integer(1))
        let admin = try await daemon.connect(as: TestDaemon.admin)
        #expect(try await admin.call("LOGOUT", "*", "UID", "1000")["users"] == .integer(1))
        let other = try await daemon.connectWithAlice(as: Self.other)
        try await other.send(put("bob"))
        #expect(try await other.reply() == .ok)
        #expect(try await other.call("GET", "alice", "bob") == image("bob", size: Self.large))
        try await other.close()
    }

    // MARK: Input

    @Test func `I8, F18, F20, F53: unfinished requests of a uid take no more than its budget, and only its own`()
        async throws
    {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            var clients: [TestClient] = []
            for _ in 0..<16 {
                let client = try await daemon.connect()
                client.sendWithoutWaiting(try unfinishedPut())
                clients.append(client)
            }
            // Each takes room for all of its image or for nothing of it.
            try await eventually { memory.waiting == 12 }
            #expect(memory.bytes <= Self.budget)
            #expect(memory.bytes > 3 * (Self.large - HeldMemory.share))
            try await expectOthersToBeServed(daemon)
            #expect(memory.waiting == 12 && memory.bytes <= Self.budget)
            #expect(try await owner.call("PING") == .simpleString("PONG"))
            // Those who hold it end, some by themselves, some by going: then the others have their turn.
            for client in clients {
                try await client.close()
                #expect(memory.bytes <= Self.budget)
            }
            try await eventually { memory.bytes == 0 && memory.waiting == 0 }
        }
    }

    @Test(arguments: [1, 3])
    func `I8: more large PUTs at once than fit are all done, one after another, however many loops there are`(
        _ threads: Int
    ) async throws {
        try await run {
            $0.threads = threads
        } _: { daemon in
            _ = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            var clients: [TestClient] = []
            for number in 0..<16 {
                let client = try await daemon.connect()
                // Two in a row: the second is read ahead as far as there is room.
                var bytes = put("bob\(number)")
                bytes.writeImmutableBuffer(put("again\(number)"))
                client.sendWithoutWaiting(bytes)
                clients.append(client)
            }
            for client in clients { #expect(try await client.replies(2) == [.ok, .ok]) }
            try await eventually { memory.bytes == 0 && memory.waiting == 0 }
        }
    }

    @Test func `F18, I8: unfinished requests are ended by the stall, and what waited for them goes on`() async throws {
        try await run(stall: 2_000) { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            var unfinished: [TestClient] = []
            for _ in 1...4 { unfinished.append(try await daemon.connect()) }
            // Most of it has been read when all of it is sent. The four have then taken what there is.
            for client in unfinished { try await client.send(try unfinishedPut()) }
            owner.sendWithoutWaiting(put("bob"))
            #expect(try await owner.reply() == .ok)
            for client in unfinished { #expect(try await client.rest() == "") }
            #expect(try await owner.call("GET", "alice", "bob") == image("bob", size: Self.large))
            try await eventually { memory.bytes == 0 && memory.waiting == 0 }
        }
    }

    @Test func `I8: a request that found no room in time is told BUSY, and its connection is closed`() async throws {
        try await run(stall: 100) { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            memory.add(Self.budget)
            client.sendWithoutWaiting(put("bob"))
            let rest = try await client.rest()
            #expect(
                rest.hasPrefix("-BUSY connections of uid 1000 hold 2097152 bytes of unfinished requests and unread"))
            #expect(rest.hasSuffix("(limit memory-per-uid, 2097152): finish or read those, or try again\r\n"))
            #expect(memory.waiting == 0 && memory.bytes == Self.budget)
        }
    }

    @Test func `F16, I8: a PUT is BUSY while more is held than may be, as by PUTs whose peers have left`() async throws
    {
        try await run { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            memory.add(Self.budget + 1)
            client.sendWithoutWaiting(put("bob", size: 1_000))
            #expect(try await client.reply().code == "BUSY")
            memory.give(1)
            client.sendWithoutWaiting(put("bob", size: 1_000))
            #expect(try await client.reply() == .ok)
        }
    }

    @Test func `F18, I8: a frame whose room went to a reply claims all of it anew`() async throws {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            let client = try await daemon.connect(reads: false)
            client.sendWithoutWaiting(TestClient.request(["GET", "alice", "carol"]))
            await daemon.fetcher.started(1)
            client.sendWithoutWaiting(try #require(put("bob").getSlice(at: 0, length: 64 << 10)))
            try await eventually { memory.bytes > 0 }
            memory.add(Self.budget - memory.bytes)
            let isGranted = NIOLockedValueBox(false)
            _ = memory.wait(for: 400 << 10, limit: Self.budget, isFirst: false) { _ in
                isGranted.withLockedValue { $0 = true }
            }
            daemon.fetcher.downloads[0].end(
                SampleImage.downloaded("carol", size: 300 << 10, framing: TestDaemon.framing))
            try await eventually { isGranted.withLockedValue { $0 } && memory.waiting == 1 }
            #expect(memory.bytes <= Self.budget)
            #expect(try await owner.call("PING") == .simpleString("PONG"))
        }
    }

    private func purge(_ count: Int) -> ByteBuffer {
        let profiles = (0..<count).map { "\($0)" + String(repeating: "x", count: 500) }
        return TestClient.request(["purge", "alice", "\(count)"] + profiles)
    }

    @Test func `F53, I8: a PURGE is read on without room when it has waited, and is never BUSY`() async throws {
        try await run(stall: 2_000) {
            $0.limits.arguments = 2_000
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            memory.add(Self.budget)
            client.sendWithoutWaiting(purge(1_000))
            #expect(try await client.reply()["users"] == .integer(1))
            try await eventually { memory.waiting == 0 && memory.bytes == Self.budget }
        }
    }

    @Test(arguments: [1_600, 3_000])
    func `F18, I8: PURGEs that are never finished end, and give back what they hold`(_ count: Int) async throws {
        try await run(stall: 200) {
            $0.limits.arguments = 4_000
        } _: { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = try memory(daemon)
            let whole = purge(count)
            let unfinished = try #require(whole.getSlice(at: 0, length: whole.readableBytes - 10))
            var clients: [TestClient] = []
            for _ in 0..<13 { clients.append(try await daemon.connect()) }
            for client in clients { client.sendWithoutWaiting(unfinished) }
            for client in clients {
                let rest = try await client.rest()
                #expect(rest == "" || (rest.hasPrefix("-BUSY ") && count > 2_000))
            }
            try await eventually { memory.bytes == 0 && memory.waiting == 0 }
            #expect(try await owner.call("PING") == .simpleString("PONG"))
        }
    }
}
