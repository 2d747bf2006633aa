import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Hits within the event loop. The cache that a connection keeps from its latest GET must have no visible effect.
@Suite(.timeLimit(.minutes(5))) struct HitTests {
    private func put(_ user: String, _ profile: String, _ label: String, on client: TestClient) async throws {
        let arguments = ["PUT", user, profile].map { ByteBuffer(string: $0) } + [SampleImage.png(label)]
        #expect(try await client.call(arguments) == .ok)
    }

    /// The source of the hit.
    enum Source: CaseIterable {
        case memory, pageCache
    }

    /// A daemon without origins.
    private func withDaemon(
        _ source: Source, threads: Int = 1, _ body: @Sendable (TestDaemon) async throws -> Void
    ) async throws {
        try await TestDaemon.run {
            $0.threads = threads
            $0.settings.origins = [:]
            if source == .pageCache { $0.memory = 0 }
        } _: { daemon in
            daemon.store.isInPageCache = source == .pageCache
            try await body(daemon)
        }
    }

    /// A plain GET uses the fast path; a GET with an option uses the general one.
    @Test(arguments: [[], ["SIZE", "64"], ["CACHED"], ["META"]], Source.allCases)
    func `I3: hits end with a PURGE, and return images put after it`(
        _ options: [String], _ source: Source
    ) async throws {
        try await withDaemon(source) { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect()
            let size = options.first == "SIZE" ? options : []
            let get = ["GET", "alice", "bob"] + options
            func store(_ label: String) async throws {
                let words = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) } + [SampleImage.png(label)]
                #expect(try await other.call(words + size.map { ByteBuffer(string: $0) }) == .ok)
            }
            func found() async throws -> Value? {
                let reply = try await client.call(get.map { ByteBuffer(string: $0) })
                return options == ["META"] ? reply["image"] : reply
            }
            try await store("old")
            for _ in 0..<3 { #expect(try await found() == image("old")) }
            #expect(try await other.call("PURGE", "alice")["users"] == .integer(1))
            #expect(try await client.call(get.map { ByteBuffer(string: $0) }) == .null)
            try await store("new")
            for _ in 0..<3 { #expect(try await found() == image("new")) }
        }
    }

    @Test(arguments: Source.allCases)
    func `I2: hits end with a LOGOUT, and the next LOGIN has an empty cache`(
        _ source: Source
    ) async throws {
        try await withDaemon(source) { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect()
            try await put("alice", "bob", "bob", on: client)
            for _ in 0..<3 { #expect(try await client.call("GET", "alice", "bob") == image("bob")) }
            #expect(try await other.call("LOGOUT", "alice")["users"] == .integer(1))
            #expect(try await client.call("GET", "alice", "bob").code == "NOLOGIN")
            #expect(try await other.call("LOGIN", "alice") == .ok)
            #expect(try await client.call("GET", "alice", "bob") == .null)
        }
    }

    @Test(arguments: Source.allCases)
    func `I1: users whose names share a prefix are distinguished`(_ source: Source) async throws {
        try await withDaemon(source) { daemon in
            let client = try await daemon.connect()
            let long = String(repeating: "a", count: 31)
            let users = ["a", "ab", "abc", "b", "A", long, long + "a", long + "b", String(long.dropLast()) + "b"]
            for user in users {
                #expect(try await client.call("LOGIN", user) == .ok)
                try await put(user, "bob", user, on: client)
            }
            for _ in 0..<2 {
                for user in users + users.reversed() {
                    #expect(try await client.call("GET", user, "bob") == image(user))
                }
            }
        }
    }

    @Test func `an image in the page cache is served without another thread`() async throws {
        try await TestDaemon.run {
            $0.memory = 0
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await put("alice", "bob", "bob", on: client)
            daemon.store.isInPageCache = true
            #expect(try await client.call("GET", "alice", "bob") == image("bob"))
            #expect(try await client.call("GET", "alice", "bob", "META")["source"] == bulk("disk"))
            #expect(try await client.call("STAT", "alice", "bob")["length"] == .integer(128))
            #expect(daemon.store.calls(.read) == 0)
        }
    }

    @Test func `I3, I7: a lookup before a PURGE does not affect a PUT after it`() async throws {
        try await withDaemon(.pageCache, threads: 2) { daemon in
            // Connections go to the loops in rotation: the first loop, which is blocked below, has the first and the
            // third.
            let client = try await daemon.connectWithAlice()
            let others = [try await daemon.connect(), try await daemon.connect(), try await daemon.connect()]
            for other in others { #expect(try await other.call("PING") == .simpleString("PONG")) }
            // The caches before and after the PURGE are equal except for their identity: each gets one PUT.
            try await put("alice", "carol", "carol", on: client)
            #expect(try await client.call("GET", "alice", "bob") == .null)
            let (looking, purging) = (daemon.store.hold(.cachedReadEnded), daemon.store.hold(.commitPurge))
            async let answer = client.call("GET", "alice", "bob")
            await looking.reached()
            async let receipt = others[0].call("PURGE", "alice")
            await purging.reached()
            daemon.store.release(.commitPurge)
            // Waits for the end of the purge. Its receipt waits for the blocked loop as well.
            try await put("alice", "bob", "bob", on: others[2])
            daemon.store.release(.cachedReadEnded)
            #expect(try await answer == image("bob"))
            #expect(try await receipt["users"] == .integer(1))
        }
    }

    @Test func `a missing image is looked up once`() async throws {
        try await withDaemon(.pageCache) { daemon in
            let client = try await daemon.connectWithAlice()
            // The connection keeps the cache of its latest GET.
            #expect(try await client.call("GET", "alice", "bob") == .null)
            let lookups = daemon.store.calls(.readCached)
            #expect(try await client.call("GET", "alice", "carol") == .null)
            #expect(daemon.store.calls(.readCached) == lookups + 1 && daemon.store.calls(.read) == 0)
        }
    }

    @Test func `an image that is not in the page cache is read by the pool`() async throws {
        try await TestDaemon.run {
            $0.memory = 0
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await put("alice", "bob", "bob", on: client)
            #expect(try await client.call("GET", "alice", "bob") == image("bob"))
            #expect(daemon.store.calls(.read) == 1)
        }
    }

    @Test(arguments: Source.allCases)
    func `F23: invalid short requests get errors, also right after a hit`(_ source: Source) async throws {
        try await withDaemon(source) { daemon in
            let client = try await daemon.connectWithAlice()
            try await put("alice", "bob", "bob", on: client)
            #expect(try await client.call("GET", "alice", "bob") == image("bob"))
            let lookups = daemon.store.calls(.readCached)
            #expect(try await client.call("GET", "alice", "").code == "ERR")
            let long = String(repeating: "b", count: 513)
            #expect(
                try await client.call("GET", "alice", long).code == "ERR" && daemon.store.calls(.readCached) == lookups)
            #expect(try await client.call("GET", "", "bob").code == "ERR")
            #expect(try await client.call("GET", "*", "bob").code == "ERR")
            #expect(try await client.call("GET", long, "bob").code == "ERR")
            #expect(try await client.call("GOT", "alice", "bob").code == "ERR")
            #expect(try await client.call("get", "alice", "bob") == image("bob"))
        }
    }
}
