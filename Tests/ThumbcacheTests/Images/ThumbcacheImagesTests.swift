import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

/// Sequences of requests, replies and events over real sockets. The subscriber and GETs use different connections, so
/// each step waits for its visible effect.
@Suite(.timeLimit(.minutes(4))) struct ThumbcacheImagesTests {
    /// The subscriber's connection and the first connection of the pool.
    private typealias Peers = (events: FakePeer, images: FakePeer)

    /// Runs the body with an active subscription.
    private func withImages(
        _ body: (ThumbcacheImages, ThumbcacheClient, FakeDaemon, Peers) async throws -> Void
    ) async throws {
        try await withClient { client, daemon in
            let images = ThumbcacheImages(client)
            let running = Task { await images.run() }
            let events = try await daemon.accept()
            #expect(try await events.subscribe() == ["SUBSCRIBE", "*"])
            let peer = try await warmUp(images, daemon)
            try await body(images, client, daemon, (events, peer))
            running.cancel()
            await running.value
        }
    }

    /// Requests an image until it is stored, which proves that the subscription is active.
    private func warmUp(_ images: ThumbcacheImages, _ daemon: FakeDaemon) async throws -> FakePeer {
        let first = Task { try await images.get("probe", "probe") }
        let peer = try await daemon.accept()
        try await answer(peer, "probe")
        _ = try await first.value
        while images.count == 0 {
            let request = Task { try await images.get("probe", "probe") }
            try await answer(peer, "probe")
            _ = try await request.value
        }
        return peer
    }

    private func answer(_ peer: FakePeer, _ image: String) async throws {
        _ = try await peer.next()
        peer.send(Wire.image(image))
    }

    /// Waits for a later event of another user. Events are delivered in order, so earlier ones have taken effect, too.
    private func waitForEvents(_ images: ThumbcacheImages, _ events: FakePeer) async throws {
        events.message("probe", "logout 1")
        while images.holds("probe") { await Task.yield() }
    }

    @Test func `I3: a logout removes the image immediately, and the next request goes to the daemon`() async throws {
        try await withImages { images, client, daemon, peers in
            let request = Task { try await images.get("alice", "bob") }
            // The only connection of the pool, which the probe has returned.
            let peer = peers.images
            #expect(try await peer.next() == ["GET", "alice", "bob", "META"])
            peer.send(Wire.image("img"))
            #expect(try await request.value?.text == "img")
            #expect(try await images.get("alice", "bob")?.text == "img")
            #expect(peer.unread == 0)
            peers.events.message("alice", "logout 2")
            try await waitForEvents(images, peers.events)
            let again = Task { try await images.get("alice", "bob") }
            _ = try await peer.next()
            peer.send("-NOLOGIN the user is not logged in\r\n")
            await #expect(throws: ThumbcacheError.server(.noLogin, message: "the user is not logged in")) {
                try await again.value
            }
        }
    }

    @Test(arguments: ["logout 2", "purge 2", "purge 2 bob"])
    func `I3: a reply requested before the event is neither stored nor returned after it`(
        event: String
    ) async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            let request = Task { try await images.get("alice", "bob") }
            _ = try await peer.next()
            peers.events.message("alice", event)
            try await waitForEvents(images, peers.events)
            peer.send(Wire.image("old"))
            // The request is retried automatically, so the caller gets the current state.
            #expect(try await peer.next() == ["GET", "alice", "bob", "META"])
            peer.send(Wire.image("new"))
            #expect(try await request.value?.text == "new")
            #expect(try await images.get("alice", "bob")?.text == "new")
        }
    }

    @Test func `a request that a purge cancelled is retried`() async throws {
        try await withImages { images, _, _, peers in
            let request = Task { try await images.get("alice", "bob") }
            _ = try await peers.images.next()
            peers.images.send("-CANCELLED purged\r\n")
            try await answer(peers.images, "new")
            #expect(try await request.value?.text == "new")
        }
    }

    @Test func `repeated logouts during a request cause an error`() async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            let request = Task { try await images.get("alice", "bob") }
            var second: FakePeer?
            for round in 0..<3 {
                _ = try await peer.next()
                if round > 0 { second = try await refill(images, daemon, second) }
                peers.events.message("alice", "logout \(round)")
                try await waitForEvents(images, peers.events)
                peer.send(Wire.image("old"))
            }
            let failure = await #expect(throws: ThumbcacheError.self) { try await request.value }
            guard case .server(.cancelled, _)? = failure else {
                Issue.record("\(String(describing: failure))")
                return
            }
            #expect(!images.holds("alice"))
        }
    }

    /// The probe again, on a second connection, since the first one is in use.
    private func refill(
        _ images: ThumbcacheImages, _ daemon: FakeDaemon, _ opened: FakePeer?
    ) async throws -> FakePeer {
        let request = Task { try await images.get("probe", "probe") }
        let peer: FakePeer = if let opened { opened } else { try await daemon.accept() }
        try await answer(peer, "probe")
        _ = try await request.value
        return peer
    }

    @Test func `a reply older than an update is returned but not stored`() async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            let request = Task { try await images.get("alice", "bob") }
            _ = try await peer.next()
            peers.events.message("alice", "update 2 bob")
            try await waitForEvents(images, peers.events)
            peer.send(Wire.image("img"))
            #expect(try await request.value?.text == "img")
            #expect(!images.holds("alice"))
        }
    }

    @Test func `without a subscription, nothing is served from memory`() async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            try await peers.events.close()
            while images.count > 0 { await Task.yield() }
            for _ in 0..<2 {
                let request = Task { try await images.get("alice", "bob") }
                _ = try await peer.next()
                peer.send(Wire.image("img"))
                #expect(try await request.value?.text == "img")
                #expect(images.count == 0)
            }
            let next = try await daemon.accept()
            try await next.subscribe()
        }
    }

    @Test func `a logout through the same client removes images before it returns`() async throws {
        try await withImages { images, client, daemon, peers in
            let logOut = Task { try await client.logOut("probe") }
            let shared = try await daemon.accept()
            #expect(try await shared.next() == ["LOGOUT", "probe"])
            #expect(images.holds("probe"))
            shared.send(Wire.receipt)
            _ = try await logOut.value
            #expect(!images.holds("probe"))
        }
    }

    @Test func `after its end, nothing is stored`() async throws {
        try await withClient { client, daemon in
            let images = ThumbcacheImages(client)
            let running = Task { await images.run() }
            let events = try await daemon.accept()
            try await events.subscribe()
            _ = try await warmUp(images, daemon)
            running.cancel()
            await running.value
            try await events.closed()
            #expect(images.count == 0)
        }
    }
}
