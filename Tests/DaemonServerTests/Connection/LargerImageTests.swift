import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// A size that nobody has: the nearest larger image that is held stands in for it.
@Suite(.timeLimit(.minutes(5))) struct LargerImageTests {
    private func put(_ size: Int?, ttl: Int? = nil, on client: TestClient) async throws {
        var arguments = ["PUT", "alice", "bob"].map { ByteBuffer(string: $0) }
        let side = UInt32(size ?? 3_000)
        arguments.append(SampleImage.png(size.map(String.init) ?? "whole", width: side, height: side))
        if let size { arguments += ["SIZE", "\(size)"].map { ByteBuffer(string: $0) } }
        if let ttl { arguments += ["TTL", "\(ttl)"].map { ByteBuffer(string: $0) } }
        #expect(try await client.call(arguments) == .ok)
    }

    /// The label of the image that a GET of that size gives.
    private func get(_ size: Int, _ options: String..., on client: TestClient) async throws -> String? {
        let request = ["GET", "alice", "bob", "SIZE", "\(size)"] + options
        let reply = try await client.call(request.map { ByteBuffer(string: $0) })
        guard case .bulk(let bytes) = reply else { return reply == .null ? nil : "\(reply)" }
        return SampleImage.label(of: bytes)
    }

    @Test(arguments: [64 << 20, 0])
    func `without an origin the next larger one is served, else the one of no size, and never a smaller one`(
        memory: Int
    ) async throws {
        try await TestDaemon.run {
            $0.settings.origins = [:]
            $0.memory = memory
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            for size in [200, 32, 96] { try await put(size, on: client) }
            for (asked, served) in [(16, "32"), (32, "32"), (33, "96"), (96, "96"), (97, "200"), (201, nil)] {
                #expect(try await get(asked, on: client) == served, "\(asked)")
                #expect(try await get(asked, "CACHED", on: client) == served, "\(asked)")
            }
            // Who names no size wants that one.
            #expect(try await client.call("GET", "alice", "bob") == .null)
            try await put(nil, on: client)
            for (asked, served) in [(16, "32"), (200, "200"), (201, "whole"), (4_096, "whole")] {
                #expect(try await get(asked, on: client) == served, "\(asked)")
            }
            #expect(try await client.call("GET", "alice", "carol", "SIZE", "64") == .null)
        }
    }

    @Test func `META and IFNOT speak of the image that is served, STAT of what is held under that size`()
        async throws
    {
        try await TestDaemon.run {
            $0.settings.origins = [:]
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await put(96, on: client)
            let meta = try await client.call("GET", "alice", "bob", "SIZE", "64", "META")
            #expect(meta["width"] == .integer(96))
            #expect(meta["height"] == .integer(96))
            #expect(meta["source"] == bulk("memory"))
            let digest = SampleImage.digest(of: SampleImage.png("96", width: 96, height: 96)).hex
            #expect(meta["digest"] == bulk(digest))
            #expect(
                try await client.call("GET", "alice", "bob", "SIZE", "64", "IFNOT", digest)
                    == .simpleString("UNCHANGED"))
            #expect(try await client.call("STAT", "alice", "bob", "SIZE", "64") == .null)
            let batch = try await client.call("MGET", "alice", "2", "bob", "carol", "SIZE", "64")
            #expect(batch == .array([.bulk(SampleImage.png("96", width: 96, height: 96)), .null]))
        }
    }

    @Test func `I3: after a purge of the profile there is none, and I7: a PUT of the size itself takes its place`()
        async throws
    {
        try await TestDaemon.run {
            $0.settings.origins = [:]
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await put(96, on: client)
            #expect(try await get(64, on: client) == "96")
            try await put(64, on: client)
            #expect(try await get(64, on: client) == "64")
            _ = try await client.call("PURGE", "alice", "1", "bob")
            #expect(try await get(64, on: client) == nil)
            try await put(96, on: client)
            #expect(try await get(64, on: client) == "96")
            _ = try await client.call("PURGE", "alice")
            #expect(try await get(64, on: client) == nil)
        }
    }

    @Test func `what stands in is fresh, and where it is not the next one is looked at`() async throws {
        try await TestDaemon.run {
            $0.settings.origins = [:]
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            try await put(96, ttl: 60, on: client)
            try await put(200, ttl: 120, on: client)
            #expect(try await get(64, on: client) == "96")
            daemon.time.now += 60
            #expect(try await get(64, on: client) == "200")
            #expect(try await get(64, "CACHED", on: client) == "200")
            daemon.time.now += 60
            #expect(try await get(64, on: client) == nil)
        }
    }

    @Test func `with an origin it is asked first, and the larger one served where it has none`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            daemon.fetcher.answer = { download in
                download.target.url.hasSuffix("/96")
                    ? SampleImage.downloaded("96", framing: TestDaemon.framing) : .missing(ResponseHeaders())
            }
            #expect(try await get(64, on: client) == nil)
            #expect(try await get(96, on: client) == "96")
            // Nobody has asked for it since: with CACHED nobody is asked, so it is not known that there is none.
            #expect(try await get(80, "CACHED", on: client) == nil)
            #expect(try await get(80, on: client) == "96")
            #expect(try await get(64, on: client) == "96")
            let asked = daemon.fetcher.downloads.count
            // The origin's word is remembered.
            for _ in 0..<3 {
                #expect(try await get(80, on: client) == "96")
                #expect(try await get(80, "CACHED", on: client) == "96")
            }
            #expect(daemon.fetcher.downloads.count == asked)
            // A URL is asked for what is there, and for nothing else.
            let url = "https://other.test/x"
            #expect(try await get(80, "URL", url, on: client) == nil)
            daemon.fetcher.answer = { _ in .failed(.origin("HTTP status 503")) }
            #expect(try await client.call("GET", "alice", "bob", "SIZE", "70").code == "ORIGIN")
        }
    }
}
