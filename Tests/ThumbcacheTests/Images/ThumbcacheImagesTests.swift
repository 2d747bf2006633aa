import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

/// Sequences of requests, replies and events over real sockets. The subscriber's connection and those of GETs are
/// different ones: what is seen through one says nothing of the other, so each step waits for what shows it.
@Suite(.timeLimit(.minutes(4))) struct ThumbcacheImagesTests {
    /// The subscriber's connection, and the one of the pool that was opened first.
    private typealias Peers = (events: PlayedPeer, images: PlayedPeer)

    /// Runs the body with images whose subscription is up.
    private func withImages(
        _ body: (ThumbcacheImages, ThumbcacheClient, PlayedDaemon, Peers) async throws -> Void
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

    /// Asks for a picture until it is kept: from then on the subscription is up.
    private func warmUp(_ images: ThumbcacheImages, _ daemon: PlayedDaemon) async throws -> PlayedPeer {
        let first = Task { try await images.get("probe", "probe") }
        let peer = try await daemon.accept()
        try await answer(peer, "probe")
        _ = try await first.value
        while images.count == 0 {
            let asked = Task { try await images.get("probe", "probe") }
            try await answer(peer, "probe")
            _ = try await asked.value
        }
        return peer
    }

    private func answer(_ peer: PlayedPeer, _ picture: String) async throws {
        _ = try await peer.next()
        peer.send(Wire.image(picture))
    }

    /// Events are handed on in order: when one of somebody else's has had its effect, those before have, too.
    private func settle(_ images: ThumbcacheImages, _ events: PlayedPeer) async throws {
        events.message("probe", "logout 1")
        while images.holds("probe") { await Task.yield() }
    }

    @Test func `I3: a log-out drops the image at once, and the next request goes to the daemon`() async throws {
        try await withImages { images, client, daemon, peers in
            let asked = Task { try await images.get("alice", "bob") }
            // The one connection of the pool, which the probe has given back.
            let peer = peers.images
            #expect(try await peer.next() == ["GET", "alice", "bob", "META"])
            peer.send(Wire.image("img"))
            #expect(try await asked.value?.text == "img")
            #expect(try await images.get("alice", "bob")?.text == "img")
            #expect(peer.unread == 0)
            peers.events.message("alice", "logout 2")
            try await settle(images, peers.events)
            let again = Task { try await images.get("alice", "bob") }
            _ = try await peer.next()
            peer.send("-NOLOGIN the user is not logged in\r\n")
            await #expect(throws: ThumbcacheError.server(.noLogin, message: "the user is not logged in")) {
                try await again.value
            }
        }
    }

    @Test(arguments: ["logout 2", "purge 2", "purge 2 bob"])
    func `I3: a reply that was asked for before the event is neither kept nor shown behind it`(
        event: String
    ) async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            let asked = Task { try await images.get("alice", "bob") }
            _ = try await peer.next()
            peers.events.message("alice", event)
            try await settle(images, peers.events)
            peer.send(Wire.image("old"))
            // Asked anew on its own: what holds now is what the caller gets.
            #expect(try await peer.next() == ["GET", "alice", "bob", "META"])
            peer.send(Wire.image("new"))
            #expect(try await asked.value?.text == "new")
            #expect(try await images.get("alice", "bob")?.text == "new")
        }
    }

    @Test func `a request that a purge has cancelled is asked again`() async throws {
        try await withImages { images, _, _, peers in
            let asked = Task { try await images.get("alice", "bob") }
            _ = try await peers.images.next()
            peers.images.send("-CANCELLED purged\r\n")
            try await answer(peers.images, "new")
            #expect(try await asked.value?.text == "new")
        }
    }

    @Test func `who is logged out again and again gets an error, not a picture`() async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            let asked = Task { try await images.get("alice", "bob") }
            var second: PlayedPeer?
            for round in 0..<3 {
                _ = try await peer.next()
                if round > 0 { second = try await refill(images, daemon, second) }
                peers.events.message("alice", "logout \(round)")
                try await settle(images, peers.events)
                peer.send(Wire.image("old"))
            }
            let failure = await #expect(throws: ThumbcacheError.self) { try await asked.value }
            guard case .server(.cancelled, _)? = failure else {
                Issue.record("\(String(describing: failure))")
                return
            }
            #expect(!images.holds("alice"))
        }
    }

    /// The probe once more, on a second connection, since the first is taken by who waits.
    private func refill(
        _ images: ThumbcacheImages, _ daemon: PlayedDaemon, _ opened: PlayedPeer?
    ) async throws -> PlayedPeer {
        let asked = Task { try await images.get("probe", "probe") }
        let peer: PlayedPeer = if let opened { opened } else { try await daemon.accept() }
        try await answer(peer, "probe")
        _ = try await asked.value
        return peer
    }

    @Test func `a reply overtaken by an update is shown, but not kept`() async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            let asked = Task { try await images.get("alice", "bob") }
            _ = try await peer.next()
            peers.events.message("alice", "update 2 bob")
            try await settle(images, peers.events)
            peer.send(Wire.image("img"))
            #expect(try await asked.value?.text == "img")
            #expect(!images.holds("alice"))
        }
    }

    @Test func `with the subscription gone nothing comes from memory, until there is another`() async throws {
        try await withImages { images, client, daemon, peers in
            let peer = peers.images
            try await peers.events.close()
            while images.count > 0 { await Task.yield() }
            for _ in 0..<2 {
                let asked = Task { try await images.get("alice", "bob") }
                _ = try await peer.next()
                peer.send(Wire.image("img"))
                #expect(try await asked.value?.text == "img")
                #expect(images.count == 0)
            }
            let next = try await daemon.accept()
            try await next.subscribe()
        }
    }

    @Test func `whoever logs out through the same client finds nothing in memory when that returns`() async throws {
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

    @Test func `behind its end nothing is kept`() async throws {
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
