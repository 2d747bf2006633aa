import NIOCore
import Testing

@testable import Thumbcache

extension EndToEnd.Clients {
    /// The client library with a running daemon.
    struct ThumbcacheLibraryTests {
        /// Calls the body with a running client.
        private func withClient(
            _ daemon: Daemon, _ body: (ThumbcacheClient) async throws -> Void
        ) async throws {
            let client = ThumbcacheClient(path: daemon.socket)
            let running = Task { await client.run() }
            let result: Result<Void, any Error>
            do { result = .success(try await body(client)) } catch { result = .failure(error) }
            running.cancel()
            await running.value
            try result.get()
        }

        private func testImage(_ name: String) -> ByteBuffer { ByteBuffer(bytes: TestImage.gif(name)) }

        @Test func `every command works`() async throws {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    try await client.ping()
                    #expect(try await client.stat("alice") == nil)
                    try await client.logIn("alice", session: "one")
                    #expect(try await client.users() == ["alice"])
                    try await client.put("alice", "bob", testImage("bob"), timeToLive: .seconds(600))
                    let image = try #require(try await client.get("alice", "bob"))
                    #expect(image.bytes == testImage("bob"))
                    #expect(image.status.type == "image/gif" && image.status.state == .fresh)
                    #expect(try await client.get("alice", "bob", unless: image.status.digest) == .unchanged)
                    #expect(try await client.stat("alice", "bob")?.digest == image.status.digest)
                    #expect(try await client.get("alice", "carol", policy: .cachedOnly) == nil)
                    #expect(
                        try await client.mget("alice", ["bob", "carol"]) == [.success(testImage("bob")), .success(nil)])
                    #expect(try await client.stat("alice")?.sessions == 1)
                    #expect(try await client.info(["server"]).contains("thumbcached"))
                    #expect(try await client.purge("alice", profiles: ["bob"]).images == 1)
                    #expect(try await client.logOut("alice", session: "one").sessions == 0)
                    await #expect(throws: ThumbcacheError.self) { try await client.get("alice", "bob") }
                }
            }
        }

        @Test func `100 concurrent tasks each get the requested image`() async throws {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    try await client.logIn("alice")
                    try await withThrowingTaskGroup { group in
                        for number in 0..<100 {
                            group.addTask {
                                let (profile, image) = (ThumbcacheID("\(number)"), testImage("\(number)"))
                                try await client.put("alice", profile, image)
                                #expect(try await client.get("alice", profile)?.bytes == image)
                            }
                        }
                        try await group.waitForAll()
                    }
                }
            }
        }

        @Test func `a cancelled GET cancels its download, and the client remains usable`() async throws {
            try await withMachine { machine in
                let origin = try GatedOrigin { _ in [.silence] }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                try await withClient(daemon) { client in
                    try await client.logIn("alice")
                    let waiting = Task { try await client.get("alice", "bob") }
                    try origin.waitForRequests(1)
                    waiting.cancel()
                    await #expect(throws: ThumbcacheError.cancelled) { try await waiting.value }
                    try origin.waitForAbandoned(1)
                    try await client.ping()
                }
            }
        }

        @Test func `I3: after a restart of the daemon, the client serves no image of a logged-out user`() async throws {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    let images = ThumbcacheImages(client)
                    let running = Task { await images.run() }
                    try await client.logIn("alice")
                    try await client.logIn("carol")
                    try await client.put("alice", "bob", testImage("of alice"))
                    try await client.put("carol", "bob", testImage("of carol"))
                    #expect(try await images.get("alice", "bob")?.bytes == testImage("of alice"))
                    daemon.kill()
                    await #expect(throws: ThumbcacheError.self) { try await client.users() }
                    try daemon.start()
                    let other = try daemon.connect()
                    _ = try other.call("LOGOUT", "alice")
                    // The first request may fail if the client has not yet noticed the end of its connection.
                    _ = await (Task { try await client.ping() }).result
                    await #expect(throws: ThumbcacheError.self) { try await images.get("alice", "bob") }
                    #expect(try await images.get("carol", "bob")?.bytes == testImage("of carol"))
                    running.cancel()
                    await running.value
                }
            }
        }

        @Test func `I3: a logout by another connection clears the user's images in the client`()
            async throws
        {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    let images = ThumbcacheImages(client)
                    let running = Task { await images.run() }
                    var events = client.events(of: ["alice"]).makeAsyncIterator()
                    #expect(await events.next() == .subscribed)
                    try await client.logIn("alice")
                    guard case .login? = await events.next() else {
                        Issue.record("no event for the login")
                        return
                    }
                    try await client.put("alice", "bob", testImage("bob"))
                    while images.count == 0 {
                        #expect(try await images.get("alice", "bob")?.bytes == testImage("bob"))
                    }
                    let other = try daemon.connect()
                    _ = try other.call("LOGOUT", "alice")
                    while true {
                        guard let event = await events.next() else { break }
                        if case .logout = event { break }
                    }
                    while images.count > 0 { await Task.yield() }
                    await #expect(throws: ThumbcacheError.self) { try await images.get("alice", "bob") }
                    running.cancel()
                    await running.value
                }
            }
        }
    }
}
