import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

/// The request that each method sends, and how it decodes the reply.
@Suite(.timeLimit(.minutes(4))) struct CommandTests {
    /// Runs a command against one reply. Returns the request and the result.
    private func exchange<Success: Sendable>(
        _ reply: String, _ command: @escaping @Sendable (ThumbcacheClient) async throws -> Success
    ) async throws -> (request: [String], result: Result<Success, any Error>) {
        nonisolated(unsafe) var exchanged: (request: [String], result: Result<Success, any Error>)?
        try await withClient { client, daemon in
            let call = Task { try await command(client) }
            let peer = try await daemon.accept()
            let request = try await peer.next()
            peer.send(reply)
            exchanged = (request, await call.result)
        }
        return try #require(exchanged)
    }

    @Test func `LOGIN`() async throws {
        let plain = try await exchange("+OK\r\n") { try await $0.logIn("alice") }
        #expect(plain.request == ["LOGIN", "alice"])
        try plain.result.get()
        let full = try await exchange("+OK\r\n") {
            try await $0.logIn("alice", session: "s", origin: "o", token: "t", refreshToken: "r")
        }
        #expect(full.request == ["LOGIN", "alice", "SESSION", "s", "ORIGIN", "o", "TOKEN", "t", "REFRESH", "r"])
    }

    @Test func `LOGOUT and PURGE, with their receipt`() async throws {
        let commands: [([String], @Sendable (ThumbcacheClient) async throws -> Receipt)] = [
            (["LOGOUT", "alice"], { try await $0.logOut("alice") }),
            (["LOGOUT", "alice", "SESSION", "s", "UID", "7"], { try await $0.logOut("alice", session: "s", uid: 7) }),
            (["LOGOUT", "*"], { try await $0.logOutAll() }),
            (["LOGOUT", "*", "UID", "7"], { try await $0.logOutAll(uid: 7) }),
            (["PURGE", "alice"], { try await $0.purge("alice") }),
            (
                ["PURGE", "alice", "2", "UID", "b", "UID", "7"],
                { try await $0.purge("alice", profiles: ["UID", "b"], uid: 7) }
            ),
            (["PURGE", "*"], { try await $0.purgeAll() }),
            (["LOGOUT", "alice", "UID", "*"], { try await $0.logOutInEveryUID("alice") }),
            (
                ["LOGOUT", "alice", "SESSION", "s", "UID", "*"],
                { try await $0.logOutInEveryUID("alice", session: "s") }
            ),
            (["LOGOUT", "*", "UID", "*"], { try await $0.logOutAllUsers() }),
            (["PURGE", "alice", "UID", "*"], { try await $0.purgeInEveryUID("alice") }),
            (["PURGE", "alice", "1", "b", "UID", "*"], { try await $0.purgeInEveryUID("alice", profiles: ["b"]) }),
            (["PURGE", "*", "UID", "*"], { try await $0.purgeAllUsers() }),
        ]
        for (expected, command) in commands {
            let (request, result) = try await exchange(Wire.receipt, command)
            #expect(request == expected)
            let receipt = try result.get()
            #expect((receipt.users, receipt.images, receipt.bytes) == (1, 2, nil))
            #expect((receipt.cancelled, receipt.sessions, receipt.epoch) == (3, 0, 9))
        }
    }

    @Test func `GET`() async throws {
        let (request, result) = try await exchange(Wire.image("img", ttl: ":-5", state: "stale")) {
            try await $0.get("alice", "bob", size: 64, url: "https://a/b", wait: .milliseconds(1_500))
        }
        #expect(
            request == ["GET", "alice", "bob", "SIZE", "64", "URL", "https://a/b", "WAIT", "1500", "META"])
        let image = try #require(try result.get())
        #expect(image.text == "img")
        #expect(image.status.digest == "d-img")
        #expect((image.status.type, image.status.length) == ("image/png", 3))
        #expect((image.status.width, image.status.height) == (2, 3))
        #expect((image.status.age, image.status.timeToLive) == (.seconds(4), .seconds(-5)))
        #expect((image.status.state, image.status.source, image.status.epoch) == (.stale, .disk, 1))
        let missing = try await exchange("_\r\n") { try await $0.get("alice", "bob", policy: .cachedOnly) }
        #expect(missing.request == ["GET", "alice", "bob", "CACHED", "META"])
        #expect(try missing.result.get() == nil)
        let background = try await exchange("_\r\n") { try await $0.get("alice", "bob", policy: .inBackground) }
        #expect(background.request == ["GET", "alice", "bob", "NOWAIT", "META"])
    }

    @Test func `GET with the caller's digest`() async throws {
        for (reply, expected) in [
            ("+UNCHANGED\r\n", ImageLookup.unchanged), ("_\r\n", .none),
        ] {
            let (request, result) = try await exchange(reply) { try await $0.get("alice", "bob", unless: "abc") }
            #expect(request == ["GET", "alice", "bob", "META", "IFNOT", "abc"])
            #expect(try result.get() == expected)
        }
        let (_, other) = try await exchange(Wire.image("img")) { try await $0.get("alice", "bob", unless: "abc") }
        guard case .image(let image) = try other.get() else { return #expect(Bool(false)) }
        #expect(image.text == "img")
    }

    @Test func `MGET`() async throws {
        let (request, result) = try await exchange("*3\r\n$3\r\nimg\r\n_\r\n-TIMEOUT too slow\r\n") {
            try await $0.mget("alice", ["bob", "carol", "SIZE"], size: 64)
        }
        #expect(request == ["MGET", "alice", "3", "bob", "carol", "SIZE", "SIZE", "64"])
        #expect(
            try result.get() == [
                .success(ByteBuffer(string: "img")), .success(nil),
                .failure(.server(.timeout, message: "too slow")),
            ])
    }

    @Test func `PUT, WARM and STAT`() async throws {
        let put = try await exchange("+OK\r\n") {
            try await $0.put("alice", "bob", ByteBuffer(string: "\r\n\0"), size: 64, timeToLive: .seconds(60))
        }
        #expect(put.request == ["PUT", "alice", "bob", "\r\n\0", "SIZE", "64", "TTL", "60"])
        let warm = try await exchange(":2\r\n") { try await $0.warm("alice", ["bob", "carol"], size: 64) }
        #expect(warm.request == ["WARM", "alice", "2", "bob", "carol", "SIZE", "64"])
        #expect(try warm.result.get() == 2)
        let user =
            "%6\r\n+images\r\n_\r\n+bytes\r\n:5\r\n+sessions\r\n:1\r\n+origin\r\n_\r\n"
            + "+logged-in-at\r\n:17\r\n+epoch\r\n:3\r\n"
        let stat = try await exchange(user) { try await $0.stat("alice") }
        #expect(stat.request == ["STAT", "alice"])
        let status = try #require(try stat.result.get())
        #expect((status.images, status.bytes, status.sessions, status.origin) == (nil, 5, 1, nil))
        #expect((status.loggedInAt, status.epoch) == (17, 3))
        #expect(try await exchange("_\r\n") { try await $0.stat("alice") }.result.get() == nil)
        let profile = try await exchange(Wire.image("img")) { try await $0.stat("alice", "bob", size: 64) }
        #expect(profile.request == ["STAT", "alice", "bob", "SIZE", "64"])
        #expect(try profile.result.get()?.length == 3)
    }

    @Test func `EXPLAIN, with a source`() async throws {
        func explained(_ action: String, _ size: String, _ source: String) -> String {
            "%13\r\n+action\r\n+\(action)\r\n+error\r\n_\r\n+held\r\n+disk\r\n+from\r\n+put\r\n+age\r\n:4\r\n"
                + "+ttl\r\n_\r\n+state\r\n+fresh\r\n+origin\r\n+default\r\n+upstreams\r\n*1\r\n%4\r\n"
                + "+host\r\n+https://a.test\r\n+state\r\n+suspended\r\n+age\r\n_\r\n+retry-in\r\n:3\r\n"
                + "+retry-in\r\n_\r\n+waiting\r\n:2\r\n+size\r\n\(size)\r\n+source\r\n\(source)"
        }
        let reply = explained("render", ":64", explained("new", "_", "_\r\n"))
        let (request, result) = try await exchange(reply) { try await $0.explain("alice", "bob", size: 64) }
        #expect(request == ["EXPLAIN", "alice", "bob", "SIZE", "64"])
        let explanation = try result.get()
        #expect(explanation.action == .render && explanation.size == 64 && explanation.waiting == 2)
        #expect(explanation.held?.place == "disk" && explanation.held?.age == .seconds(4))
        #expect(explanation.upstreams.map(\.state) == [.suspended])
        #expect(explanation.upstreams.map(\.retryIn) == [.seconds(3)])
        let source = try #require(explanation.source)
        #expect(source.action == nil && source.size == nil && source.source == nil)
    }

    @Test func `USERS, INFO, METRICS and PING`() async throws {
        let users = try await exchange("*2\r\n$5\r\nalice\r\n$1\r\nx\r\n") { try await $0.users() }
        #expect(try users.result.get() == ["alice", "x"])
        let info = try await exchange("$3\r\na:1\r\n") { try await $0.info(["server"]) }
        #expect(info.request == ["INFO", "server"])
        #expect(try info.result.get() == "a:1")
        let metrics = try await exchange("=7\r\ntxt:a 1\r\n") { try await $0.metrics() }
        #expect(metrics.request == ["METRICS"])
        #expect(try metrics.result.get() == "a 1")
        let ping = try await exchange("+PONG\r\n") { try await $0.ping() }
        try ping.result.get()
    }

    @Test(arguments: [
        "+nonsense\r\n", "%0\r\n", ":1\r\n", "*1\r\n+x\r\n", "%1\r\n+users\r\n+many\r\n",
        "%2\r\n+image\r\n_\r\n+digest\r\n:1\r\n",
    ])
    func `an unexpected reply throws`(reply: String) async throws {
        let commands: [@Sendable (ThumbcacheClient) async throws -> Void] = [
            { try await $0.logIn("alice") }, { _ = try await $0.logOut("alice") },
            { _ = try await $0.get("alice", "bob") },
            { _ = try await $0.mget("alice", ["bob", "carol"]) }, { _ = try await $0.stat("alice") },
            { _ = try await $0.explain("alice", "bob") },
            { try await $0.ping() },
        ]
        for command in commands {
            let (_, result) = try await exchange(reply, command)
            #expect(throws: ThumbcacheError.self) { try result.get() }
        }
    }

    @Test func `a user named '*' is rejected`() async throws {
        let client = ThumbcacheClient(path: "/nonexistent")
        let failures = [
            await error { () async throws(ThumbcacheError) in try await client.logOut("*") },
            await error { () async throws(ThumbcacheError) in try await client.purge("*") },
            await error { () async throws(ThumbcacheError) in try await client.logIn("*") },
            await error { () async throws(ThumbcacheError) in try await client.get("*", "bob") },
        ]
        for failure in failures {
            #expect(failure == .invalidRequest("'*' is not a valid user; use the methods for all users"))
        }
    }

    @Test func `a purge of an empty list of profiles is rejected`() async throws {
        let client = ThumbcacheClient(path: "/nonexistent")
        let failures = [
            await error { () async throws(ThumbcacheError) in try await client.purge("alice", profiles: []) },
            await error { () async throws(ThumbcacheError) in try await client.purgeInEveryUID("alice", profiles: []) },
        ]
        let reason = "the list of profiles is empty; name profiles, or pass nil to purge all"
        for failure in failures { #expect(failure == .invalidRequest(reason)) }
    }
}
