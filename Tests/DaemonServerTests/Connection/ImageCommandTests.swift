import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// Sequential GET, MGET, PUT and STAT on one connection.
@Suite(.timeLimit(.minutes(5))) struct ImageCommandTests {
    private func put(_ profile: String, _ label: String, on client: TestClient) async throws {
        let arguments = ["PUT", "alice", profile].map { ByteBuffer(string: $0) } + [SampleImage.png(label)]
        #expect(try await client.call(arguments) == .ok)
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `GET returns the bytes of PUT, and null for a miss`(_ version: RESPVersion) async throws {
        try await TestDaemon.run {
            $0.settings.origins = [:]
        } _: { daemon in
            let client = try await daemon.connectWithAlice(version)
            #expect(try await client.wire("GET", "alice", "bob") == (version == .two ? "$-1\r\n" : "_\r\n"))
            try await put("bob", "bob", on: client)
            #expect(try await client.call("GET", "alice", "bob") == image("bob"))
            #expect(try await client.call("GET", "alice", "bob", "CACHED") == image("bob"))
        }
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `META is a map with the image, and STAT the same map without it`(
        _ version: RESPVersion
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(version)
            try await put("bob", "bob", on: client)
            daemon.time.now += 7
            let digest = SampleImage.digest(of: SampleImage.png("bob")).hex
            let described: [(String, Value)] = [
                ("digest", bulk(digest)), ("type", bulk("image/png")), ("length", .integer(128)),
                ("width", .integer(16)), ("height", .integer(16)), ("age", .integer(7)), ("ttl", .null),
                ("state", bulk("fresh")), ("source", bulk("memory")), ("epoch", .integer(1 << 32 | 1)),
                ("rendered", .null),
            ]
            let meta = map([("image", image("bob"))] + described, version)
            #expect(try await client.call("GET", "alice", "bob", "META") == meta)
            #expect(try await client.call("STAT", "alice", "bob") == map(described, version))
            // The null of a map in version 2.
            let null = version == .two ? "*-1\r\n" : "_\r\n"
            #expect(try await client.wire("STAT", "alice", "carol") == null)
            #expect(try await client.wire("GET", "alice", "carol", "META", "CACHED") == null)
            #expect(
                try await client.call("GET", "alice", "bob", "META", "IFNOT", digest) == .simpleString("UNCHANGED"))
            #expect(try await client.wire("GET", "alice", "bob", "IFNOT", digest) == "+UNCHANGED\r\n")
            let other = String(repeating: "0", count: 64)
            #expect(try await client.call("GET", "alice", "bob", "IFNOT", other) == image("bob"))
        }
    }

    @Test(
        arguments: [
            ("no-store", 0, false), ("no-store, max-age=3600", 0, false), ("max-age=0", 0, true), ("no-cache", 0, true),
            ("max-age=60", 60, true),
        ] as [(String, Int, Bool)])
    func `GET and STAT agree on freshness`(
        _ control: String, ttl: Int, isKept: Bool
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            daemon.fetcher.answer = { _ in
                SampleImage.downloaded("bob", headers: ["cache-control": [control]], framing: TestDaemon.framing)
            }
            for request in [["GET", "alice", "bob", "META"], ["STAT", "alice", "bob"]] {
                let reply = try await client.call(request.map { ByteBuffer(string: $0) })
                guard request[0] == "GET" || isKept else {
                    #expect(reply == .null)
                    continue
                }
                #expect(reply["ttl"] == .integer(ttl), "\(request)")
                #expect(reply["state"] == bulk(ttl > 0 ? "fresh" : "stale"), "\(request)")
            }
        }
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `STAT of a user is a map, and null for one who is not logged in`(_ version: RESPVersion) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(version)
            try await put("bob", "bob", on: client)
            let expected: [(String, Value)] = [
                ("images", .integer(1)), ("bytes", .integer(128)), ("sessions", .integer(1)),
                ("origin", bulk("default")),
                ("logged-in-at", .integer(1_800_000_000)), ("epoch", .integer(1 << 32 | 1)),
            ]
            #expect(try await client.call("STAT", "alice") == map(expected, version))
            let null = version == .two ? "*-1\r\n" : "_\r\n"
            #expect(try await client.wire("STAT", "nobody") == null)
            #expect(try await client.wire("STAT", "nobody", "bob") == null)
        }
    }

    @Test(arguments: [RESPVersion.two, .three])
    func `EXPLAIN is a map with upstreams and source, also for a user who is not logged in`(
        _ version: RESPVersion
    ) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(version)
            try await put("bob", "bob", on: client)
            daemon.time.now += 7
            let ready: [(String, Value)] = [
                ("host", bulk("https://origin.test")), ("state", bulk("ready")), ("age", .null), ("retry-in", .null),
            ]
            func explained(_ own: KeyValuePairs<String, Value>, source: Value = .null) -> Value {
                let keys = ["action", "error", "held", "from", "age", "ttl", "state", "origin", "upstreams"]
                let entries = (keys + ["retry-in", "waiting", "size"]).map { key in
                    (key, own.first { $0.key == key }?.value ?? .null)
                }
                return map(entries + [("source", source)], version)
            }
            let upstreams = Value.array([map(ready, version)])
            let held = explained([
                "action": bulk("serve"), "held": bulk("memory"), "from": bulk("put"), "age": .integer(7),
                "state": bulk("fresh"), "origin": bulk("default"), "upstreams": upstreams,
            ])
            #expect(try await client.call("EXPLAIN", "alice", "bob") == held)
            let rendered = explained(
                ["action": bulk("serve"), "origin": bulk("default"), "upstreams": .array([]), "size": .integer(64)],
                source: held)
            #expect(try await client.call("EXPLAIN", "alice", "bob", "SIZE", "64", "FIT", "contain")["action"] != nil)
            #expect(try await client.call("EXPLAIN", "alice", "bob", "SIZE", "64") == rendered)
            let error = bulk("NOLOGIN the user is not logged in; send LOGIN first")
            let unknown = explained(["action": bulk("fail"), "error": error, "upstreams": .array([])])
            #expect(try await client.call("EXPLAIN", "nobody", "bob") == unknown)
            #expect(daemon.fetcher.downloads.isEmpty)
        }
    }

    @Test(arguments: [
        ["GET", "nobody", "bob"], ["MGET", "nobody", "1", "bob"], ["PUT", "nobody", "bob", "x"],
        ["GET", "nobody", "bob", "CACHED", "META"],
    ])
    func `I2: a request for a user who is not logged in is NOLOGIN`(_ request: [String]) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            let reply = try await client.call(request.map { ByteBuffer(string: $0) })
            #expect(reply == .error(code: "NOLOGIN", message: "the user is not logged in; send LOGIN first"))
        }
    }

    @Test func `MGET returns an image, a null or an error for each profile in order`() async throws {
        try await TestDaemon.run { daemon in
            daemon.fetcher.answer = { download in
                switch download.target.url {
                case TestDaemon.url("bob"): SampleImage.downloaded("bob", framing: TestDaemon.framing)
                case TestDaemon.url("carol"): .failed(.origin("status 500"))
                default: .missing(ResponseHeaders())
                }
            }
            let client = try await daemon.connectWithAlice()
            let reply = try await client.call("MGET", "alice", "4", "bob", "carol", "dave", "bob")
            let failed = Value.error(code: "ORIGIN", message: "status 500")
            #expect(reply == .array([image("bob"), failed, .null, image("bob")]))
        }
    }

    @Test func `NOWAIT returns the stored image, and a logout cancels its download (I3)`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            #expect(try await client.call("GET", "alice", "bob", "NOWAIT") == .null)
            #expect(try await client.call("MGET", "alice", "2", "bob", "carol", "NOWAIT") == .array([.null, .null]))
            await daemon.fetcher.started(2)
            #expect(daemon.fetcher.downloads.map(\.url) == ["bob", "carol"].map { TestDaemon.url($0) })
            daemon.finish("carol")
            try await eventually { try await client.call("GET", "alice", "carol", "CACHED") == image("carol") }
            #expect(try await client.call("LOGOUT", "alice")["cancelled"] == .integer(1))
            #expect(daemon.fetcher.downloads.map(\.isCancelled) == [true, false])
        }
    }

    @Test func `MGET downloads all images concurrently`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await client.send("MGET", "alice", "3", "bob", "carol", "dave")
            await daemon.fetcher.started(3)
            for profile in ["dave", "bob", "carol"] { daemon.finish(profile) }
            #expect(try await client.reply() == .array([image("bob"), image("carol"), image("dave")]))
        }
    }

    @Test func `a PUT of other bytes is BADIMAGE, and the connection stays usable`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            #expect(try await client.call("PUT", "alice", "bob", "no image").code == "BADIMAGE")
            #expect(try await client.call("PUT", "alice", "bob", "").code == "BADIMAGE")
            #expect(try await client.call("PING") == .simpleString("PONG"))
        }
    }

    @Test func `a URL outside allow is DENIED, one inside is downloaded`() async throws {
        try await TestDaemon.run { daemon in
            daemon.fetcher.answer = { _ in SampleImage.downloaded("elsewhere", framing: TestDaemon.framing) }
            let client = try await daemon.connectWithAlice()
            #expect(try await client.call("GET", "alice", "bob", "URL", "https://evil.test/x").code == "DENIED")
            #expect(daemon.fetcher.downloads.isEmpty)
            #expect(try await client.call("GET", "alice", "bob", "URL", "https://other.test/x") == image("elsewhere"))
            #expect(daemon.fetcher.downloads.map(\.url) == ["https://other.test/x"])
        }
    }

    static let failures: [(failure: FetchFailure, code: String)] = [
        (.timedOut("w"), "TIMEOUT"), (.origin("w"), "ORIGIN"), (.unauthorized("w"), "UNAUTHORIZED"),
        (.denied("w"), "DENIED"), (.badImage("w"), "BADIMAGE"), (.tooLarge("w"), "TOOLARGE"), (.busy("w"), "BUSY"),
        (.shuttingDown, "SHUTTINGDOWN"),
    ]

    @Test(arguments: failures)
    func `each failure of a download has its code`(_ row: (failure: FetchFailure, code: String)) async throws {
        try await TestDaemon.run { daemon in
            daemon.fetcher.answer = { _ in .failed(row.failure) }
            let client = try await daemon.connectWithAlice()
            #expect(try await client.call("GET", "alice", "bob").code == row.code)
        }
    }

    @Test(arguments: ["UID", "SIZE", "CACHED", "*", "META", "1"])
    func `F63: a profile can have the name of an option`(_ profile: String) async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await put(profile, "it", on: client)
            #expect(try await client.call("GET", "alice", profile) == image("it"))
            #expect(
                try await client.call("MGET", "alice", "2", profile, profile) == .array([image("it"), image("it")]))
            #expect(try await client.call("STAT", "alice", profile)["length"] == .integer(128))
            #expect(try await client.call("PURGE", "alice", "1", profile)["images"] == .integer(1))
            #expect(try await client.call("GET", "alice", profile, "CACHED") == .null)
        }
    }

    /// A map in the protocol version.
    private func map(_ entries: [(String, Value)], _ version: RESPVersion) -> Value {
        let values = entries.flatMap { [bulk($0.0), $0.1] }
        return version == .two ? .array(values) : .map(values)
    }
}
