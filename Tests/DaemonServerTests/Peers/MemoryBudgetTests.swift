import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Memory held for the connections of one uid: `memory-per-uid` (I8, F16, F17, F18, F20).
@Suite(.timeLimit(.minutes(5))) struct MemoryBudgetTests {
    static let long: Int64 = 600_000
    static let budget = 2 << 20
    static let large = 700 << 10
    static let other = Peer(uid: 1001, pid: 1, isAdmin: false)

    /// A daemon whose budget fits four large images.
    func run(
        stall: Int64 = long, _ configure: (inout TestDaemon.Setup) -> Void = { _ in },
        _ body: (TestDaemon) async throws -> Void
    ) async throws {
        try await TestDaemon.run(
            {
                $0.budget = MemoryBudget.Limits(perAccount: Self.budget, total: 8 * Self.budget)
                $0.limits.request.payloadBytes = Self.budget
                $0.limits.output = Self.budget
                $0.limits.request.image = Self.large
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

    /// An unfinished PUT of a large image.
    func unfinishedPut() throws -> ByteBuffer {
        let whole = put("bob")
        return try #require(whole.getSlice(at: 0, length: whole.readableBytes - 1_000))
    }

    /// The memory held for a uid, minus that of its users.
    struct Usage {
        private let budget: MemoryBudget
        private let uid: UInt32
        private let before: Int
        private let filling: MemoryLease

        init(_ budget: MemoryBudget, _ uid: UInt32) {
            self.budget = budget
            self.uid = uid
            before = budget.bytes(of: uid)
            filling = budget.lease(for: uid)
        }

        var bytes: Int { max(0, budget.bytes(of: uid) - before) }

        func add(_ bytes: Int) { filling.set(to: filling.bytes + bytes) }
        func release(_ bytes: Int) { filling.release(bytes) }
        /// Reserves the whole budget.
        func fill() { add(MemoryBudgetTests.budget - budget.bytes(of: uid)) }
    }

    func memory(_ daemon: TestDaemon, of uid: UInt32 = 1000) -> Usage { Usage(daemon.budget, uid) }

    /// Checks small requests of the uid without budget, and large ones of another uid.
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

    @Test func `I8, F18, F20, F53: unfinished requests of a uid are bounded by its budget`()
        async throws
    {
        try await run { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            var clients: [TestClient] = []
            for _ in 0..<16 {
                let client = try await daemon.connect()
                client.sendWithoutWaiting(try unfinishedPut())
                clients.append(client)
            }
            // Each reserves space for its whole image, or is refused.
            try await eventually { daemon.registry.statistics.connections == 5 }
            #expect(memory.bytes <= Self.budget)
            #expect(memory.bytes > 3 * (Self.large - Connection.freeShare))
            try await expectOthersToBeServed(daemon)
            #expect(memory.bytes <= Self.budget)
            #expect(try await owner.call("PING") == .simpleString("PONG"))
            daemon.server.close()
            try await eventually { memory.bytes == 0 }
        }
    }

    @Test(arguments: [1, 3])
    func `I8: each of too many concurrent PUTs succeeds or is BUSY, and succeeds when retried`(_ threads: Int)
        async throws
    {
        try await run {
            $0.threads = threads
        } _: { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            var clients: [TestClient] = []
            for number in 0..<16 {
                let client = try await daemon.connect()
                client.sendWithoutWaiting(put("bob\(number)"))
                clients.append(client)
            }
            for (number, client) in clients.enumerated() {
                let reply = try await client.reply()
                if reply == .ok { continue }
                #expect(reply.code == "BUSY")
                #expect(try await client.rest() == "")
                try await eventually {
                    let again = try await daemon.connect()
                    again.sendWithoutWaiting(put("bob\(number)"))
                    return try await again.reply() == .ok
                }
            }
            try await eventually { memory.bytes == 0 }
            #expect(try await owner.call("STAT", "alice")["images"] == .integer(16))
        }
    }

    @Test func `F18, I8: the stall closes unfinished requests and releases their memory`() async throws {
        try await run(stall: 2_000) { daemon in
            _ = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            var unfinished: [TestClient] = []
            for _ in 1...4 { unfinished.append(try await daemon.connect()) }
            // Most of it is read once all of it is sent. The four then use up the budget.
            for client in unfinished { try await client.send(try unfinishedPut()) }
            for client in unfinished { #expect(try await client.rest() == "") }
            try await eventually { memory.bytes == 0 }
            let again = try await daemon.connect()
            try await again.send(put("bob"))
            #expect(try await again.reply() == .ok)
            #expect(try await again.call("GET", "alice", "bob") == image("bob", size: Self.large))
        }
    }

    @Test func `I8: a request without budget is BUSY at once, and its connection closes`() async throws {
        try await run { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            memory.fill()
            let full = memory.bytes
            client.sendWithoutWaiting(put("bob"))
            #expect(
                try await client.rest()
                    == "-BUSY limits.memory-per-uid (2097152 bytes): account 1000 uses 2097152; end requests or "
                    + "sessions, or retry later\r\n")
            try await eventually { daemon.registry.statistics.connections == 0 }
            #expect(memory.bytes == full)
        }
    }

    @Test func `F16, I8: a PUT is BUSY while PUTs of closed connections exceed the budget`() async throws {
        try await run { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            memory.fill()
            memory.add(1)
            client.sendWithoutWaiting(put("bob", size: 1_000))
            #expect(try await client.reply().code == "BUSY")
            memory.release(1)
            client.sendWithoutWaiting(put("bob", size: 1_000))
            #expect(try await client.reply() == .ok)
        }
    }

    @Test func `F67: logins are BUSY without budget, logouts never`()
        async throws
    {
        try await run { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            memory.fill()
            #expect(try await client.call("LOGIN", "carol").code == "BUSY")
            #expect(try await client.call("LOGIN", "alice", "SESSION", "more", "HOLD").code == "BUSY")
            let other = try await daemon.connectWithAlice(as: Self.other)
            #expect(try await other.call("LOGIN", "carol") == .ok)
            #expect(try await client.call("LOGOUT", "alice")["users"] == .integer(1))
            #expect(try await client.call("LOGIN", "carol") == .ok)
        }
    }

    @Test func `F67: requests that wait for an image count`() async throws {
        try await run { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            let profiles = (0..<200).map { "\($0)" + String(repeating: "p", count: 500) }
            for profile in profiles { try await client.send("GET", "alice", profile) }
            await daemon.fetcher.started(profiles.count)
            #expect(memory.bytes > 200_000)
            try await client.close()
            try await eventually { memory.bytes == 0 }
        }
    }

    private func purge(_ count: Int) -> ByteBuffer {
        let profiles = (0..<count).map { "\($0)" + String(repeating: "x", count: 500) }
        return TestClient.request(["purge", "alice", "\(count)"] + profiles)
    }

    @Test func `F53, I8: a PURGE is read without budget, and is never BUSY`() async throws {
        try await run {
            $0.limits.request.arguments = 2_000
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            memory.add(Self.budget)
            client.sendWithoutWaiting(purge(1_000))
            #expect(try await client.reply()["users"] == .integer(1))
            try await eventually { memory.bytes == Self.budget }
        }
    }

    @Test(arguments: [1_600, 3_000])
    func `F18, I8: unfinished PURGEs are closed and release their memory`(_ count: Int) async throws {
        try await run(stall: 200) {
            $0.limits.request.arguments = 4_000
        } _: { daemon in
            let owner = try await daemon.connectWithAlice()
            let memory = memory(daemon)
            let whole = purge(count)
            let unfinished = try #require(whole.getSlice(at: 0, length: whole.readableBytes - 10))
            var clients: [TestClient] = []
            for _ in 0..<13 { clients.append(try await daemon.connect()) }
            for client in clients { client.sendWithoutWaiting(unfinished) }
            for client in clients {
                let rest = try await client.rest()
                #expect(rest == "" || (rest.hasPrefix("-BUSY ") && count > 2_000))
            }
            try await eventually { memory.bytes == 0 }
            #expect(try await owner.call("PING") == .simpleString("PONG"))
        }
    }
}
