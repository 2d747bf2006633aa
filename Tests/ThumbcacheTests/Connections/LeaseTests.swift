import NIOCore
import Testing

@testable @_spi(Wire) import Thumbcache

@Suite(.timeLimit(.minutes(4))) struct LeaseTests {
    @Test func `a waiting GET delays no other request`() async throws {
        try await withClient { client, daemon in
            let waiting = Task { try await client.get("alice", "bob") }
            let first = try await daemon.accept()
            #expect(try await first.next() == ["GET", "alice", "bob", "META"])
            let quick = Task { try await client.get("alice", "carol") }
            let second = try await daemon.accept()
            #expect(try await second.next() == ["GET", "alice", "carol", "META"])
            second.send(Wire.image("carol"))
            #expect(try await quick.value?.text == "carol")
            first.send(Wire.image("bob"))
            #expect(try await waiting.value?.text == "bob")
        }
    }

    @Test func `a cancelled GET closes its connection`() async throws {
        try await withClient { client, daemon in
            let waiting = Task { try await client.get("alice", "bob") }
            let peer = try await daemon.accept()
            _ = try await peer.next()
            waiting.cancel()
            await #expect(throws: ThumbcacheError.cancelled) { try await waiting.value }
            try await peer.closed()
        }
    }

    @Test func `a GET that times out closes its connection`() async throws {
        try await withClient {
            $0.requestTimeout = .milliseconds(50)
        } _: { client, daemon in
            let waiting = Task { try await client.get("alice", "bob") }
            let peer = try await daemon.accept()
            await #expect(throws: ThumbcacheError.timeout) { try await waiting.value }
            try await peer.closed()
        }
    }

    @Test func `a timeout closes a lent connection immediately`() async throws {
        try await withClient {
            $0.requestTimeout = .milliseconds(50)
        } _: { client, daemon in
            let hold = OneShot<Void>()
            let work = Task {
                try await client.withConnection { connection in
                    let late = await error { () async throws(ThumbcacheError) in
                        try await connection.get("alice", "bob")
                    }
                    #expect(late == .timeout)
                    _ = await hold.wait()
                }
            }
            // The body still runs.
            try await daemon.accept().closed()
            hold.resolve(.success(()))
            try await work.value
        }
    }

    @Test func `a GET that times out while it waits for a connection leaves no gap in the pool`() async throws {
        try await withClient {
            $0.requestTimeout = .milliseconds(50)
            $0.maximumConnections = 1
        } _: { client, daemon in
            let hold = OneShot<Void>()
            let loan = Task { try await client.withConnection { _ in _ = await hold.wait() } }
            let peer = try await daemon.accept()
            await #expect(throws: ThumbcacheError.timeout) { try await client.get("alice", "bob") }
            hold.resolve(.success(()))
            try await loan.value
            try await client.withConnection { _ in }
            #expect(peer.unread == 0)
        }
    }

    @Test func `connections are reused, and their number is limited`() async throws {
        try await withClient {
            $0.maximumConnections = 1
        } _: { client, daemon in
            let first = Task { try await client.get("alice", "bob") }
            let peer = try await daemon.accept()
            #expect(try await peer.next()[2] == "bob")
            let second = Task { try await client.get("alice", "carol") }
            let short = Task { try await client.users() }
            let shared = try await daemon.accept()
            #expect(try await shared.next() == ["USERS"])
            shared.send("*0\r\n")
            _ = try await short.value
            #expect(peer.unread == 0)
            peer.send(Wire.image("bob"))
            _ = try await first.value
            #expect(try await peer.next()[2] == "carol")
            peer.send("_\r\n")
            #expect(try await second.value == nil)
        }
    }

    @Test func `a cancelled or failed request returns its place in the pool`() async throws {
        try await withClient {
            $0.maximumConnections = 1
        } _: { client, daemon in
            let cancelled = Task { try await client.get("alice", "bob") }
            _ = try await daemon.accept().next()
            cancelled.cancel()
            _ = await cancelled.result
            let lost = Task { try await client.get("alice", "bob") }
            let peer = try await daemon.accept()
            _ = try await peer.next()
            try await peer.close()
            await #expect(throws: ThumbcacheError.connectionLost) { try await lost.value }
            let last = Task { try await client.get("alice", "bob") }
            let another = try await daemon.accept()
            _ = try await another.next()
            another.send("-NOLOGIN alice is not logged in\r\n")
            await #expect(throws: ThumbcacheError.server(.noLogin, message: "alice is not logged in")) {
                try await last.value
            }
        }
    }

    @Test func `commands of a lent connection are executed in order on it, and rejected after its end`() async throws {
        try await withClient { client, daemon in
            let work = Task {
                try await client.withConnection { connection in
                    try await connection.put("alice", "bob", ByteBuffer(string: "img"))
                    _ = try await connection.get("alice", "bob")
                    return connection
                }
            }
            let peer = try await daemon.accept()
            #expect(try await peer.next() == ["PUT", "alice", "bob", "img"])
            peer.send("+OK\r\n")
            #expect(try await peer.next() == ["GET", "alice", "bob", "META"])
            peer.send("_\r\n")
            let kept = try await work.value
            let late = await error { () async throws(ThumbcacheError) in try await kept.users() }
            #expect(late == .invalidRequest("the connection was used after withConnection returned"))
            // Another task has the connection now.
            let next = Task { try await client.get("alice", "carol") }
            #expect(try await peer.next()[2] == "carol")
            peer.send("_\r\n")
            _ = try await next.value
        }
    }

    @Test func `a connection with a request in flight is not reused`() async throws {
        try await withClient { client, daemon in
            let loan = OneShot<Void>()
            let work = Task {
                try await client.withConnection { connection in
                    Task { try await connection.get("alice", "slow") }
                    try await loan.wait().get()
                }
            }
            let peer = try await daemon.accept()
            #expect(try await peer.next()[2] == "slow")
            loan.resolve(.success(()))
            try await work.value
            let next = Task { try await client.get("alice", "bob") }
            let another = try await daemon.accept()
            #expect(try await another.next()[2] == "bob")
            another.send("_\r\n")
            _ = try await next.value
        }
    }

    @Test func `after the stop, requests for a connection fail, including waiting ones`() async throws {
        let places = Permits(1)
        try await places.acquire()
        let waiting = Task { await error { () async throws(ThumbcacheError) in try await places.acquire() } }
        places.stop()
        #expect(await waiting.value == .notRunning)
        places.release()
        #expect(await error { () async throws(ThumbcacheError) in try await places.acquire() } == .notRunning)
    }

    @Test func `a connection that holds a session is closed after use`() async throws {
        try await withClient { client, daemon in
            let work = Task { try await client.withConnection { try await $0.logInHolding("alice", session: "s") } }
            let peer = try await daemon.accept()
            #expect(try await peer.next() == ["LOGIN", "alice", "SESSION", "s", "HOLD"])
            peer.send("+OK\r\n")
            try await work.value
            try await peer.closed()
        }
    }

    @Test func `cancelling a request closes a lent connection immediately`() async throws {
        try await withClient { client, daemon in
            let (asking, loan) = (Mailbox<Task<ThumbcacheImage?, any Error>>(), OneShot<Void>())
            let work = Task {
                try await client.withConnection { connection in
                    asking.put(Task { try await connection.get("alice", "bob") })
                    try await loan.wait().get()
                }
            }
            let peer = try await daemon.accept()
            _ = try await peer.next()
            try await asking.next().cancel()
            try await peer.closed()
            loan.resolve(.success(()))
            try await work.value
        }
    }
}
