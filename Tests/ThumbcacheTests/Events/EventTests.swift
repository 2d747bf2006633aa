import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

@Suite struct EventPayloadTests {
    @Test(
        arguments: [
            ("login 7", ThumbcacheEvent.login(user: "alice", epoch: 7)),
            ("logout 8", .logout(user: "alice", epoch: 8)),
            ("purge 9", .purge(user: "alice", profile: nil, epoch: 9)),
            ("purge 9 bob", .purge(user: "alice", profile: "bob", epoch: 9)),
            ("purge 9 ", .purge(user: "alice", profile: "", epoch: 9)),
            ("update 10 a b  c", .update(user: "alice", profile: "a b  c", epoch: 10)),
            ("update 10", nil), ("logout", nil), ("logout x", nil), ("logout 8 bob", nil), ("", nil), ("seen 3", nil),
            ("LOGOUT 8", nil),
        ] as [(String, ThumbcacheEvent?)])
    func `payloads are parsed, and unknown events are ignored`(
        payload: String, event: ThumbcacheEvent?
    ) {
        #expect(ThumbcacheEvent(user: "alice", payload: ByteBuffer(string: payload)) == event)
    }
}

@Suite struct EventBufferTests {
    private func login(_ epoch: Int) -> ThumbcacheEvent { .login(user: "alice", epoch: epoch) }

    private func contents(_ buffer: EventBuffer) -> [ThumbcacheEvent] {
        var events: [ThumbcacheEvent] = []
        while let event = buffer.pop() { events.append(event) }
        return events
    }

    @Test func `events stay in order`() {
        let buffer = EventBuffer(limit: 4)
        let events = [.subscribed, login(1), login(2), login(3)]
        for event in events { buffer.append(event) }
        #expect(contents(buffer) == events)
        buffer.append(login(4))
        #expect(contents(buffer) == [login(4)])
    }

    @Test func `an overflow replaces all events by a gap`() {
        let buffer = EventBuffer(limit: 3)
        for event in [.subscribed, login(1), login(2), login(3)] { buffer.append(event) }
        buffer.append(login(4))
        #expect(contents(buffer) == [.gap, .subscribed, login(4)])
    }

    @Test func `a gap replaces unread events`() {
        let buffer = EventBuffer(limit: 3)
        for event in [.subscribed, login(1), .gap] { buffer.append(event) }
        #expect(contents(buffer) == [.gap])
        buffer.append(.subscribed)
        #expect(contents(buffer) == [.subscribed])
    }

    @Test(.timeLimit(.minutes(1))) func `a reader waits for the next event`() async throws {
        let buffer = EventBuffer(limit: 3)
        let reader = Task {
            try await buffer.wait()
            return buffer.pop()
        }
        buffer.append(login(1))
        #expect(try await reader.value == login(1))
    }
}

@Suite(.timeLimit(.minutes(4))) struct EventsTests {
    @Test func `events arrive in order on a connection of their own`() async throws {
        try await withClient { client, daemon in
            let events = Task {
                var events: [ThumbcacheEvent] = []
                for await event in client.events(of: ["alice"]) {
                    events.append(event)
                    if events.count == 4 { break }
                }
                return events
            }
            let peer = try await daemon.accept()
            #expect(try await peer.subscribe() == ["SUBSCRIBE", "alice"])
            peer.message("alice", "login 1")
            peer.message("alice", "a word of tomorrow")
            peer.message("alice", "update 1 bob")
            peer.message("alice", "logout 2")
            #expect(
                await events.value == [
                    .subscribed, .login(user: "alice", epoch: 1), .update(user: "alice", profile: "bob", epoch: 1),
                    .logout(user: "alice", epoch: 2),
                ])
            // The iterator is deallocated, and its connection closed.
            try await peer.closed()
        }
    }

    @Test func `it is subscribed when all channels are confirmed, and without users to all`() async throws {
        try await withClient { client, daemon in
            let subscribed = Task {
                var iterator = client.events(of: ["alice", "bob", "alice"]).makeAsyncIterator()
                return await iterator.next()
            }
            let peer = try await daemon.accept()
            let request = try await peer.next()
            #expect(Set(request) == ["SUBSCRIBE", "alice", "bob"] && request.count == 3)
            peer.send(">3\r\n+subscribe\r\n+alice\r\n:1\r\n")
            peer.message("alice", "login 1")
            peer.send(">3\r\n+subscribe\r\n+bob\r\n:2\r\n")
            // Earlier events count as missed, so they have no effect.
            #expect(await subscribed.value == .login(user: "alice", epoch: 1))

            let all = Task {
                var iterator = client.events().makeAsyncIterator()
                return await iterator.next()
            }
            #expect(try await daemon.accept().subscribe() == ["SUBSCRIBE", "*"])
            #expect(await all.value == .subscribed)
        }
    }

    @Test func `a lost connection is a gap, and the next one continues`() async throws {
        try await withClient { client, daemon in
            let seen = Mailbox<ThumbcacheEvent>()
            let reader = Task {
                for await event in client.events() { seen.put(event) }
            }
            for _ in 0..<3 {
                let peer = try await daemon.accept()
                try await peer.subscribe()
                #expect(try await seen.next() == .subscribed)
                try await peer.close()
                #expect(try await seen.next() == .gap)
            }
            let refusing = try await daemon.accept()
            _ = try await refusing.next()
            refusing.send("-BUSY too many\r\n")
            let peer = try await daemon.accept()
            try await peer.subscribe()
            #expect(try await seen.next() == .subscribed)
            reader.cancel()
            await reader.value
            try await peer.closed()
        }
    }

    /// The fake daemon confirms no further subscription before the gap was read.
    @Test func `a gap after an event does not wait for the next connection`() async throws {
        try await withClient { client, daemon in
            let seen = Mailbox<ThumbcacheEvent>()
            let reader = Task {
                for await event in client.events() { seen.put(event) }
            }
            for epoch in 1...300 {
                let peer = try await daemon.accept()
                try await peer.subscribe()
                #expect(try await seen.next() == .subscribed)
                peer.message("alice", "login \(epoch)")
                try await peer.close()
                // The gap replaces the event if the reader has not read the event yet.
                var event = try await seen.next()
                if event == .login(user: "alice", epoch: epoch) { event = try await seen.next() }
                #expect(event == .gap)
            }
            reader.cancel()
            await reader.value
        }
    }

    @Test func `the sequence ends when the client stops`() async throws {
        let daemon = try await FakeDaemon()
        let client = ThumbcacheClient(path: daemon.path)
        let running = Task { await client.run() }
        let reader = Task {
            var events: [ThumbcacheEvent] = []
            for await event in client.events() { events.append(event) }
            return events
        }
        try await daemon.accept().subscribe()
        // A second subscriber's confirmation proves that the first is subscribed.
        let other = Task {
            var iterator = client.events().makeAsyncIterator()
            return await iterator.next()
        }
        try await daemon.accept().subscribe()
        _ = await other.value
        running.cancel()
        await running.value
        #expect(await reader.value.last == .gap)
        try await daemon.stop()
    }
}
