import CacheCore
import CacheFakes
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// SUBSCRIBE and UNSUBSCRIBE, and the events, as a client sees them.
@Suite(.timeLimit(.minutes(5))) struct EventTests {
    private static let start = 1 << 32

    private func message(_ user: String, _ payload: String, _ version: RESPVersion = .two) -> Value {
        let elements = [bulk("message"), bulk(user), bulk(payload)]
        return version == .two ? .array(elements) : .push(elements)
    }

    private func confirmation(_ kind: String, _ channel: String?, _ count: Int) -> Value {
        .array([bulk(kind), channel.map(bulk) ?? .null, .integer(count)])
    }

    private func put(_ client: TestClient, _ profile: String) async throws {
        let arguments = ["PUT", "alice", profile].map { ByteBuffer(string: $0) } + [SampleImage.png(profile)]
        #expect(try await client.call(arguments) == .ok)
    }

    @Test(arguments: [RESPVersion.two, .three], [1, 3])
    func `I3: invalidations are with every subscriber before the receipt is sent`(_ version: RESPVersion, threads: Int)
        async throws
    {
        try await TestDaemon.run {
            $0.threads = threads
        } _: { daemon in
            let client = try await daemon.connectWithAlice(version)
            var subscribers: [TestClient] = []
            for _ in 0..<4 {
                let subscriber = try await daemon.connect()
                if version == .three { _ = try await subscriber.call("HELLO", "3") }
                _ = try await subscriber.call("SUBSCRIBE", "alice", "*")
                _ = try await subscriber.reply()
                subscribers.append(subscriber)
            }
            try await put(client, "bob")
            _ = try await client.call("PURGE", "alice")
            _ = try await client.call("LOGOUT", "alice")
            // What was sent before the receipt is in the kernel's buffer, or here already.
            for subscriber in subscribers {
                #expect(try await subscriber.reply() == message("alice", "update \(Self.start + 1) bob", version))
                #expect(try await subscriber.reply() == message("alice", "purge \(Self.start + 2)", version))
                #expect(try await subscriber.reply() == message("alice", "logout \(Self.start + 3)", version))
            }
        }
    }

    @Test func `I3: the bytes of an invalidation are in the kernel's hands when the receipt is`() async throws {
        try await TestDaemon.run {
            $0.threads = 2
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            for round in 0..<50 {
                let subscriber = try BlockingPeer(daemon.path)
                defer { subscriber.end() }
                #expect(subscriber.exchange(["SUBSCRIBE", "alice"]).contains("subscribe"))
                _ = try await client.call(round.isMultiple(of: 2) ? "PURGE" : "LOGOUT", "alice")
                #expect(subscriber.hasArrived)
                #expect(try await client.call("LOGIN", "alice") == .ok)
            }
        }
    }

    @Test func `confirmations are Redis's`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connect()
            try await client.send("SUBSCRIBE", "alice", "carol", "alice")
            #expect(try await client.reply() == confirmation("subscribe", "alice", 1))
            #expect(try await client.reply() == confirmation("subscribe", "carol", 2))
            #expect(try await client.reply() == confirmation("subscribe", "alice", 2))
            #expect(try await client.call("UNSUBSCRIBE", "alice") == confirmation("unsubscribe", "alice", 1))
            #expect(try await client.call("UNSUBSCRIBE", "nobody") == confirmation("unsubscribe", "nobody", 1))
            #expect(try await client.call("UNSUBSCRIBE") == confirmation("unsubscribe", "carol", 0))
            #expect(try await client.call("UNSUBSCRIBE") == confirmation("unsubscribe", nil, 0))
            #expect(try await client.call("ECHO", "again") == bulk("again"))
        }
    }

    @Test func `under version 2 a subscribed connection takes nothing but what is about that`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await put(client, "bob")
            _ = try await client.call("SUBSCRIBE", "alice")
            for command in [["GET", "alice", "bob"], ["LOGOUT", "alice"], ["INFO"], ["HELLO", "3"], ["METRICS"]] {
                try await client.pipeline([command])
                guard case .error(code: "ERR", let reason) = try await client.reply() else {
                    Issue.record("\(command) was taken")
                    continue
                }
                #expect(reason.contains("subscribed"))
            }
            #expect(try await client.call("PING") == .array([bulk("pong"), bulk("")]))
            #expect(try await client.call("PING", "hi") == .array([bulk("pong"), bulk("hi")]))
            #expect(try await client.call("RESET") == .simpleString("RESET"))
            #expect(try await client.call("PING") == .simpleString("PONG"))
            #expect(try await client.call("QUIT") == .ok)
        }
    }

    @Test func `under version 3 it takes every command, and events come between replies`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            #expect(
                try await client.call("SUBSCRIBE", "*") == .push([bulk("subscribe"), bulk("*"), .integer(1)]))
            guard case .error(code: "ERR", _) = try await client.call("HELLO", "2") else {
                return #expect(Bool(false), "HELLO 2 was taken")
            }
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            let other = try await daemon.connect()
            try await put(other, "eve")
            #expect(try await client.reply() == message("alice", "update \(Self.start + 1) eve", .three))
            daemon.finish("bob")
            #expect(try await client.reply().bytes?.readableBytes == 128)
            #expect(try await client.reply() == message("alice", "update \(Self.start + 1) bob", .three))
        }
    }

    @Test func `no event comes into the middle of an array`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            _ = try await client.call("SUBSCRIBE", "alice")
            let other = try await daemon.connect()
            try await put(other, "eve")
            #expect(try await client.reply() == message("alice", "update \(Self.start + 1) eve", .three))
            try await client.send("MGET", "alice", "2", "eve", "bob")
            await daemon.fetcher.started(1)
            // The header and the first element are on their way by now, and the second is not.
            try await put(other, "zoe")
            daemon.finish("bob")
            #expect(try await client.reply().elements?.count == 2)
            let events = try await client.replies(2)
            #expect(events.contains(message("alice", "update \(Self.start + 1) zoe", .three)))
            #expect(events.contains(message("alice", "update \(Self.start + 1) bob", .three)))
        }
    }

    @Test func `I3: who is in the middle of an array cannot take an invalidation, and is disconnected`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            _ = try await client.call("SUBSCRIBE", "*")
            try await client.send("MGET", "alice", "1", "bob")
            await daemon.fetcher.started(1)
            let other = try await daemon.connect()
            #expect(try await other.call("LOGIN", "carol") == .ok)
            _ = try await other.call("LOGOUT", "carol")
            try await client.closed()
        }
    }

    @Test func `SUBSCRIBE waits for the replies before it, so that no message comes between them`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect()
            try await client.pipeline([["GET", "alice", "bob"], ["SUBSCRIBE", "alice"], ["PING"]])
            await daemon.fetcher.started(1)
            try await put(other, "eve")
            daemon.finish("bob")
            #expect(try await client.reply().bytes?.readableBytes == 128)
            #expect(try await client.reply() == confirmation("subscribe", "alice", 1))
            #expect(try await client.reply() == .array([bulk("pong"), bulk("")]))
            try await put(other, "zoe")
            // That of bob's image, told behind its answer, comes or does not.
            var next = try await client.reply()
            if next == message("alice", "update \(Self.start + 1) bob") { next = try await client.reply() }
            #expect(next == message("alice", "update \(Self.start + 1) zoe"))
        }
    }

    @Test func `I8: nobody follows more users than the limit, and one over it changes nothing`() async throws {
        try await TestDaemon.run {
            $0.limits.subscriptions = 2
        } _: { daemon in
            let client = try await daemon.connect()
            guard case .error(code: "BUSY", let reason) = try await client.call("SUBSCRIBE", "a", "b", "c") else {
                return #expect(Bool(false), "three were taken")
            }
            #expect(reason.contains("limit subscriptions, 2"))
            #expect(try await client.call("ECHO", "as before") == bulk("as before"))
            try await client.send("SUBSCRIBE", "a", "b", "a")
            #expect(try await client.replies(3).last == confirmation("subscribe", "a", 2))
        }
    }

    @Test func `a connection that ends follows nobody, and one of another uid is told nothing`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect(as: Peer(uid: 1001, pid: 1, isAdmin: true))
            _ = try await other.call("SUBSCRIBE", "*")
            let gone = try await daemon.connect()
            _ = try await gone.call("SUBSCRIBE", "alice")
            #expect(daemon.followedChannels == 1)
            try await gone.close()
            try await eventually { daemon.followedChannels == 0 }
            try await put(client, "bob")
            _ = try await client.call("LOGOUT", "alice")
            #expect(try await other.call("PING") == .array([bulk("pong"), bulk("")]))
        }
    }

    @Test func `I8: a connection that ends while it subscribes follows nobody`() async throws {
        try await TestDaemon.run { daemon in
            let names = (0..<1_000).map { "\($0)" + String(repeating: "n", count: 200) }
            for _ in 0..<20 {
                let client = try await daemon.connect()
                // To make room for the second, the reply to the first is sent: to a peer that is gone.
                try await client.send("PING")
                try await client.send((["SUBSCRIBE"] + names).map { ByteBuffer(string: $0) })
                try await client.close()
            }
            try await eventually { daemon.followedChannels == 0 }
        }
    }

    @Test func `I3: a subscriber that cannot take an invalidation is disconnected, and nobody waits for it`()
        async throws
    {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            let deaf = try await daemon.connect(reads: false)
            try await deaf.send("HELLO", "3")
            try await deaf.send("SUBSCRIBE", "alice")
            // More than the kernel keeps for it.
            let text = String(repeating: "x", count: 64 << 10)
            for _ in 0..<16 { try await deaf.send("ECHO", text) }
            try await eventually { try await client.call("CLIENT", "LIST").text?.contains("id=2") == true }
            _ = try await client.call("LOGOUT", "alice")
            try await deaf.closed()
        }
    }

    @Test func `I8: a subscriber that reads nothing holds a bounded part of what it is sent`() async throws {
        try await TestDaemon.run {
            $0.limits.output = 64 << 10
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            let deaf = try await daemon.connect(reads: false)
            try await deaf.send("SUBSCRIBE", "*")
            let name = String(repeating: "p", count: 500)
            try await eventually {
                try await put(client, name)
                return try await client.call("CLIENT", "LIST").text?.split(separator: "\n").count == 1
            }
        }
    }
}
