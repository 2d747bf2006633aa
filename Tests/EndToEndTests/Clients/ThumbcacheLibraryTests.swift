import NIOCore
import Testing

@testable import Thumbcache

extension EndToEnd {
    /// The client library against the real daemon.
    struct ThumbcacheLibraryTests {
        /// Runs the body with a client that runs.
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

        private func picture(_ name: String) -> ByteBuffer { ByteBuffer(bytes: Picture.gif(name)) }

        @Test func `every command does what it says`() async throws {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    try await client.ping()
                    #expect(try await client.stat("alice") == nil)
                    try await client.logIn("alice", session: "one")
                    #expect(try await client.users() == ["alice"])
                    try await client.put("alice", "bob", picture("bob"), timeToLive: .seconds(600))
                    let image = try #require(try await client.get("alice", "bob"))
                    #expect(image.bytes == picture("bob"))
                    #expect(image.status.type == "image/gif" && image.status.state == .fresh)
                    #expect(try await client.get("alice", "bob", unless: image.status.digest) == .unchanged)
                    #expect(try await client.stat("alice", "bob")?.digest == image.status.digest)
                    #expect(try await client.get("alice", "carol", policy: .cachedOnly) == nil)
                    #expect(
                        try await client.mget("alice", ["bob", "carol"]) == [.success(picture("bob")), .success(nil)])
                    #expect(try await client.stat("alice")?.sessions == 1)
                    #expect(try await client.info(["server"]).contains("thumbcached"))
                    #expect(try await client.purge("alice", profiles: ["bob"]).images == 1)
                    #expect(try await client.logOut("alice", session: "one").sessions == 0)
                    await #expect(throws: ThumbcacheError.self) { try await client.get("alice", "bob") }
                }
                try daemon.stop()
            }
        }

        @Test func `a hundred tasks at once, and each gets the picture it asked for`() async throws {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    try await client.logIn("alice")
                    try await withThrowingTaskGroup { group in
                        for number in 0..<100 {
                            group.addTask {
                                let (profile, image) = (ThumbcacheID("\(number)"), picture("\(number)"))
                                try await client.put("alice", profile, image)
                                #expect(try await client.get("alice", profile)?.bytes == image)
                            }
                        }
                        try await group.waitForAll()
                    }
                }
                try daemon.stop()
            }
        }

        @Test func `a GET that is cancelled ends its download, and the client goes on`() async throws {
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
                try daemon.stop()
            }
        }

        @Test func `I3: the daemon is killed under the client, and a log-out while it is away stays one`()
            async throws
        {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    let images = ThumbcacheImages(client)
                    let keeping = Task { await images.run() }
                    try await client.logIn("alice")
                    try await client.logIn("carol")
                    try await client.put("alice", "bob", picture("of alice"))
                    try await client.put("carol", "bob", picture("of carol"))
                    #expect(try await images.get("alice", "bob")?.bytes == picture("of alice"))
                    daemon.kill()
                    await #expect(throws: ThumbcacheError.self) { try await client.users() }
                    try daemon.start()
                    let other = try daemon.connect()
                    _ = try other.call("LOGOUT", "alice")
                    // The client finds the new daemon by itself: at the second attempt at the latest, since the first
                    // may meet a connection whose end it has not seen yet.
                    _ = await (Task { try await client.ping() }).result
                    await #expect(throws: ThumbcacheError.self) { try await images.get("alice", "bob") }
                    #expect(try await images.get("carol", "bob")?.bytes == picture("of carol"))
                    keeping.cancel()
                    await keeping.value
                }
                try daemon.stop()
            }
        }

        @Test func `I3: whoever is logged out by somebody else is gone from the memory of the client`() async throws {
            try await withMachine { machine in
                let daemon = try machine.daemon()
                try await withClient(daemon) { client in
                    let images = ThumbcacheImages(client)
                    let keeping = Task { await images.run() }
                    var events = client.events(of: ["alice"]).makeAsyncIterator()
                    #expect(await events.next() == .subscribed)
                    try await client.logIn("alice")
                    guard case .login? = await events.next() else {
                        Issue.record("a log-in was no event")
                        return
                    }
                    try await client.put("alice", "bob", picture("bob"))
                    while images.count == 0 {
                        #expect(try await images.get("alice", "bob")?.bytes == picture("bob"))
                    }
                    let other = try daemon.connect()
                    _ = try other.call("LOGOUT", "alice")
                    while true {
                        guard let event = await events.next() else { break }
                        if case .logout = event { break }
                    }
                    while images.count > 0 { await Task.yield() }
                    await #expect(throws: ThumbcacheError.self) { try await images.get("alice", "bob") }
                    keeping.cancel()
                    await keeping.value
                }
                try daemon.stop()
            }
        }
    }
}
