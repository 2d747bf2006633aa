import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// SUBSCRIBE, UNSUBSCRIBE and events.
@Suite(.timeLimit(.minutes(5))) struct EventTests {
    private static let start = 1 << 32

    private func message(_ user: String, _ payload: String, _ version: RESPVersion = .two) -> Value {
        let elements = [bulk("message"), bulk(user), bulk(payload)]
        return version == .two ? .array(elements) : .push(ValueList(elements))
    }

    private func confirmation(_ kind: String, _ channel: String?, _ count: Int) -> Value {
        .array([bulk(kind), channel.map(bulk) ?? .null, .integer(count)])
    }

    private func put(_ client: TestClient, _ profile: String) async throws {
        let arguments = ["PUT", "alice", profile].map { ByteBuffer(string: $0) } + [SampleImage.png(profile)]
        #expect(try await client.call(arguments) == .ok)
    }

    @Test(arguments: [1, 3])
    func `I3: every subscriber gets an invalidation before the receipt`(threads: Int) async throws {
        try await TestDaemon.run {
            $0.threads = threads
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            var subscribers: [(TestClient, RESPVersion)] = []
            for version in [RESPVersion.two, .two, .three, .three] {
                let subscriber = try await daemon.connect()
                if version == .three { _ = try await subscriber.call("HELLO", "3") }
                _ = try await subscriber.call("SUBSCRIBE", "alice", "*")
                _ = try await subscriber.reply()
                subscribers.append((subscriber, version))
            }
            try await put(client, "bob")
            _ = try await client.call("PURGE", "alice")
            _ = try await client.call("LOGOUT", "alice")
            // Output sent before the receipt is in the socket buffer, or received.
            for (subscriber, version) in subscribers {
                #expect(try await subscriber.reply() == message("alice", "update \(Self.start + 1) bob", version))
                #expect(try await subscriber.reply() == message("alice", "purge \(Self.start + 2)", version))
                #expect(try await subscriber.reply() == message("alice", "logout \(Self.start + 3)", version))
            }
        }
    }

    @Test func `I3: an invalidation is sent to the kernel before the receipt`() async throws {
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

    @Test func `confirmations match Redis`() async throws {
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

    @Test func `in RESP2 a subscribed connection accepts only commands about subscriptions`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            try await put(client, "bob")
            _ = try await client.call("SUBSCRIBE", "alice")
            for command in [["GET", "alice", "bob"], ["LOGOUT", "alice"], ["INFO"], ["HELLO", "3"], ["METRICS"]] {
                try await client.pipeline([command])
                guard case .error(code: "ERR", let reason) = try await client.reply() else {
                    Issue.record("\(command) is accepted")
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

    @Test func `in RESP3 it accepts every command, with events between replies`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            #expect(
                try await client.call("SUBSCRIBE", "*") == .push([bulk("subscribe"), bulk("*"), .integer(1)]))
            guard case .error(code: "ERR", _) = try await client.call("HELLO", "2") else {
                Issue.record("HELLO 2 is accepted")
                return
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

    @Test func `no event interrupts an array, and delayed events keep their order`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            _ = try await client.call("SUBSCRIBE", "alice")
            let other = try await daemon.connect()
            try await put(other, "eve")
            #expect(try await client.reply() == message("alice", "update \(Self.start + 1) eve", .three))
            try await client.send("MGET", "alice", "2", "eve", "bob")
            await daemon.fetcher.started(1)
            // The header and the first element are sent by now, the second is not.
            try await put(other, "zoe")
            try await put(other, "amy")
            daemon.finish("bob")
            #expect(try await client.reply().elements?.count == 2)
            let events = ["zoe", "amy", "bob"].map { message("alice", "update \(Self.start + 1) \($0)", .three) }
            #expect(try await client.replies(3) == events)
        }
    }

    @Test func `I3: an invalidation during an array disconnects the subscriber`() async throws {
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

    /// Runs `publish` while the only event loop is blocked, so that events queue up.
    private func whileLoopWaits(_ daemon: TestDaemon, _ publish: () -> Void) async {
        let gate = Gate()
        daemon.onEventLoop { gate.pass() }
        await gate.reached()
        publish()
        gate.open()
    }

    @Test func `events that exceed the account's quantum are delivered later, in order`() async throws {
        try await TestDaemon.run { daemon in
            // With a second account on the loop, the quantum is shorter.
            _ = try await daemon.connect(as: Peer(uid: 1001, pid: 1, isAdmin: false)).call("PING")
            var clients: [TestClient] = []
            for number in 0..<200 {
                let client = try await daemon.connect()
                _ = try await client.call("SUBSCRIBE", number.isMultiple(of: 2) ? "alice" : "*")
                clients.append(client)
            }
            // The next events are published during the turns of the first ones.
            for number in 1...50 { daemon.publish(.login, UInt64(number)) }
            let expected = (1...50).map { message("alice", "login \($0)") }
            for client in clients { #expect(try await client.replies(50) == expected) }
            daemon.publish(.login, 51)
            for client in clients { #expect(try await client.reply() == message("alice", "login 51")) }
        }
    }

    @Test func `a subscriber gets the queued events of its users`() async throws {
        try await TestDaemon.run { daemon in
            let (all, alice, both) = (
                try await daemon.connect(), try await daemon.connect(), try await daemon.connect()
            )
            _ = try await all.call("HELLO", "3")
            _ = try await all.call("SUBSCRIBE", "*")
            _ = try await alice.call("SUBSCRIBE", "alice")
            try await both.send("SUBSCRIBE", "alice", "carol", "*")
            _ = try await both.replies(3)
            await whileLoopWaits(daemon) {
                for number in 1...3 {
                    daemon.publish(.login, UInt64(number))
                    daemon.publish(.purge(nil), of: "carol", UInt64(number))
                }
            }
            for number in 1...3 {
                for (client, version) in [(all, RESPVersion.three), (both, .two)] {
                    #expect(try await client.reply() == message("alice", "login \(number)", version))
                    #expect(try await client.reply() == message("carol", "purge \(number)", version))
                }
                #expect(try await alice.reply() == message("alice", "login \(number)"))
            }
        }
    }

    @Test func `I3: an invalidation is sent at once with all events before it, also beside closed subscribers`()
        async throws
    {
        try await TestDaemon.run { daemon in
            let peers = try (0..<30).map { _ in try BlockingPeer(daemon.path) }
            let live = peers.indices.filter { !$0.isMultiple(of: 3) }.map { peers[$0] }
            defer { for peer in live { peer.end() } }
            for peer in peers { #expect(peer.exchange(["SUBSCRIBE", "*"]).contains("subscribe")) }
            let haveAll = NIOLockedValueBox<[Bool]>([])
            await whileLoopWaits(daemon) {
                // After the loop has read its sockets, so that it sends to closed sockets.
                daemon.onEventLoop { for index in stride(from: 0, to: peers.count, by: 3) { peers[index].end() } }
                for number in 1...200 { daemon.publish(.login, UInt64(number)) }
                daemon.publish(.logout, 201)
                // Like a receipt, this task runs after all earlier tasks.
                daemon.onEventLoop {
                    let found = live.map { $0.receive(waits: false).hasSuffix("\r\nlogout 201\r\n") }
                    haveAll.withLockedValue { $0 = found }
                }
            }
            try await eventually { haveAll.withLockedValue { $0.count == live.count } }
            #expect(haveAll.withLockedValue { $0 }.allSatisfy { $0 })
        }
    }

    /// 200 subscribers of alice, which get the events published by `first` in several turns. `second` runs while most
    /// of them wait for these events.
    private func withDelayedSubscribers(
        _ daemon: TestDaemon, first: () -> Void, second: ([BlockingPeer]) -> Void
    ) async throws -> [BlockingPeer] {
        // With a second account on the loop, the quantum allows 50 sends.
        _ = try await daemon.connect(as: Peer(uid: 1001, pid: 1, isAdmin: false)).call("PING")
        let peers = try (0..<200).map { _ in try BlockingPeer(daemon.path) }
        for peer in peers { #expect(peer.exchange(["SUBSCRIBE", "alice"]).contains("subscribe")) }
        let (before, after) = (Gate(), Gate())
        daemon.onEventLoop { before.pass() }
        await before.reached()
        first()
        daemon.onEventLoop { after.pass() }
        before.open()
        await after.reached()
        second(peers)
        after.open()
        return peers
    }

    @Test func `I3: a logout is sent before its receipt although earlier events wait for their account's turn`()
        async throws
    {
        try await TestDaemon.run { daemon in
            let isAtReceipt = Gate()
            let peers = try await withDelayedSubscribers(daemon) {
                daemon.publish(.login, 1)
            } second: { _ in
                daemon.publish(.login, 2)
                daemon.publish(.logout, 3)
                daemon.onEventLoop { isAtReceipt.pass() }
            }
            defer { for peer in peers { peer.end() } }
            await isAtReceipt.reached()
            let messages = ["login 1", "login 2", "logout 3"].map { "$\($0.utf8.count)\r\n\($0)\r\n" }
            let header = "*3\r\n$7\r\nmessage\r\n$5\r\nalice\r\n"
            let expected = messages.map { header + $0 }.joined()
            #expect(peers.allSatisfy { $0.receive(waits: false) == expected })
            isAtReceipt.open()
        }
    }

    @Test func `a subscriber that leaves before its turn gets no event of the channel that it has left`() async throws {
        try await TestDaemon.run { daemon in
            let peers = try await withDelayedSubscribers(daemon) {
                daemon.publish(.login, 1)
            } second: { peers in
                for peer in peers {
                    #expect(peer.send(["UNSUBSCRIBE", "alice"]) == 0 && peer.send(["SUBSCRIBE", "carol"]) == 0)
                }
            }
            defer { for peer in peers { peer.end() } }
            var texts = peers.map { _ in "" }
            for (index, peer) in peers.enumerated() {
                try await eventually {
                    if peer.hasArrived { texts[index] += peer.receive() }
                    return texts[index].contains("carol")
                }
            }
            let ends = texts.compactMap { $0.split(separator: "unsubscribe").last }
            #expect(ends.count == peers.count && ends.allSatisfy { !$0.contains("login 1") })
            // Some have left before their turn.
            #expect(texts.contains { !$0.contains("login 1") })
        }
    }

    @Test func `I3: a subscriber that changes its channel misses no event of its user`() async throws {
        try await TestDaemon.run { daemon in
            let peer = try BlockingPeer(daemon.path)
            defer { peer.end() }
            #expect(peer.exchange(["SUBSCRIBE", "alice"]).contains("subscribe"))
            await whileLoopWaits(daemon) {
                daemon.publish(.logout, 1)
                // The loop reads sockets before it runs tasks.
                #expect(peer.send(["SUBSCRIBE", "*"]) == 0 && peer.send(["UNSUBSCRIBE", "alice"]) == 0)
            }
            var text = ""
            try await eventually {
                if peer.hasArrived { text += peer.receive() }
                return text.contains("unsubscribe") && text.contains("logout 1")
            }
        }
    }

    @Test func `I3: a subscriber that reads nothing has each message at its receipt, or is disconnected`() async throws
    {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let silent = try BlockingPeer(daemon.path)
            defer { silent.end() }
            #expect(silent.exchange(["SUBSCRIBE", "alice"]).contains("subscribe"))
            var receipts: UInt64 = 0
            while daemon.followedChannels > 0 {
                _ = try await client.call("PURGE", "alice")
                receipts += 1
            }
            // The last receipt followed the disconnect; all others a message.
            var text = ""
            while case let piece = silent.receive(), !piece.isEmpty, !piece.hasPrefix("error") { text += piece }
            #expect(text.split(separator: "purge ", omittingEmptySubsequences: false).count == Int(receipts))
            #expect(text.hasSuffix("\r\n"))
        }
    }

    @Test func `I8: an event that does not fit into the queue disconnects the subscribers of its uid`() async throws {
        try await TestDaemon.run { daemon in
            let other = try await daemon.connect(as: Peer(uid: 1001, pid: 1, isAdmin: false))
            _ = try await other.call("SUBSCRIBE", "*")
            let clients = [try await daemon.connect(), try await daemon.connect()]
            for (client, user) in zip(clients, ["*", "carol"]) { _ = try await client.call("SUBSCRIBE", user) }
            let atReceipt = NIOLockedValueBox<Int?>(nil)
            await whileLoopWaits(daemon) {
                for number in 0...UInt64(EventInbox.maximumEvents) { daemon.publish(.login, number) }
                daemon.publish(.logout)
                daemon.onEventLoop { atReceipt.withLockedValue { $0 = daemon.followedChannels } }
            }
            try await eventually { atReceipt.withLockedValue { $0 } != nil }
            #expect(atReceipt.withLockedValue { $0 } == 0)
            for client in clients { try await client.closed() }
            #expect(try await other.call("PING") == .array([bulk("pong"), bulk("")]))
            // A new subscriber gets events again.
            let client = try await daemon.connect()
            _ = try await client.call("SUBSCRIBE", "alice")
            daemon.publish(.logout, 7)
            #expect(try await client.reply() == message("alice", "logout 7"))
        }
    }

    @Test func `a subscriber gets no event from before its subscription, and none after its end`() async throws {
        try await TestDaemon.run { daemon in
            let stays = try await daemon.connect()
            _ = try await stays.call("SUBSCRIBE", "*")
            let (ends, peer) = (try BlockingPeer(daemon.path), try BlockingPeer(daemon.path))
            defer { for peer in [ends, peer] { peer.end() } }
            #expect(ends.exchange(["SUBSCRIBE", "alice"]).contains("subscribe"))
            #expect(peer.exchange(["PING"]) == "+PONG\r\n")
            await whileLoopWaits(daemon) {
                daemon.publish(.login, 1)
                daemon.publish(.login, 2)
                // The loop reads sockets before it runs tasks.
                #expect(ends.send(["UNSUBSCRIBE", "alice"]) == 0 && ends.send(["SUBSCRIBE", "carol"]) == 0)
                #expect(peer.send(["SUBSCRIBE", "alice"]) == 0)
            }
            #expect(try await stays.replies(2) == [message("alice", "login 1"), message("alice", "login 2")])
            daemon.publish(.login, 3)
            daemon.publish(.login, of: "carol", 4)
            #expect(try await stays.replies(2) == [message("alice", "login 3"), message("carol", "login 4")])
            func text(_ peer: BlockingPeer, upTo end: String) async throws -> String {
                var text = ""
                try await eventually {
                    if peer.hasArrived { text += peer.receive() }
                    return text.contains(end)
                }
                return text
            }
            let (before, after) = (try await text(ends, upTo: "login 4"), try await text(peer, upTo: "login 3"))
            // An account without time left reads its sockets after the events.
            let end = try #require(before.split(separator: "unsubscribe").last)
            #expect(!end.contains("login 1") && !end.contains("login 2") && !end.contains("login 3"))
            #expect(!after.contains("login 1") && !after.contains("login 2"))
        }
    }

    @Test func `an event that an array has delayed follows the array, and precedes an UNSUBSCRIBE`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            _ = try await client.call("SUBSCRIBE", "carol")
            try await client.pipeline([["MGET", "alice", "1", "bob"], ["UNSUBSCRIBE", "carol"]])
            await daemon.fetcher.started(1)
            // Events of a uid are delivered in order, so this client's second one follows the delivery of the first.
            let other = try await daemon.connect()
            try await other.send("SUBSCRIBE", "carol", "zoe")
            _ = try await other.replies(2)
            for user in ["carol", "zoe"] {
                daemon.publish(.login, of: user, 1)
                #expect(try await other.reply() == message(user, "login 1"))
            }
            daemon.finish("bob")
            #expect(try await client.reply().elements?.count == 1)
            #expect(try await client.reply() == message("carol", "login 1", .three))
            #expect(try await client.reply() == .push([bulk("unsubscribe"), bulk("carol"), .integer(0)]))
        }
    }

    @Test func `I8: events that wait for the end of an array are bounded, and delivered once`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            _ = try await client.call("SUBSCRIBE", "carol")
            for last in [EventInbox.maximumEvents, EventInbox.maximumEvents + 1] {
                let profile = "p\(last)"
                try await client.send("MGET", "alice", "1", profile)
                await daemon.fetcher.started(last - EventInbox.maximumEvents + 1)
                for number in 1...last {
                    daemon.publish(.login, of: "carol", UInt64(number))
                    // At most 100 events between two rounds, so that the inbox does not overrun.
                    if number.isMultiple(of: 100) { await whileLoopWaits(daemon) {} }
                }
                guard last == EventInbox.maximumEvents else { break }
                daemon.finish(profile)
                #expect(try await client.reply().elements?.count == 1)
                let events = (1...last).map { message("carol", "login \($0)", .three) }
                #expect(try await client.replies(last) == events)
            }
            try await eventually { daemon.followedChannels == 0 }
            try await client.closed()
        }
    }

    @Test func `a logout with subscribers removes the images`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let subscriber = try await daemon.connect()
            _ = try await subscriber.call("SUBSCRIBE", "alice")
            _ = try await client.call("LOGOUT", "alice")
            #expect(try await subscriber.reply() == message("alice", "logout \(Self.start + 2)"))
            try await eventually { daemon.store.calls(.discard) == 1 }
        }
    }

    @Test func `SUBSCRIBE waits for earlier replies`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect()
            try await client.pipeline([["GET", "alice", "bob"], ["SUBSCRIBE", "alice"], ["PING"]])
            await daemon.fetcher.started(1)
            try await put(other, "eve")
            daemon.finish("bob")
            #expect(try await client.reply().bytes?.readableBytes == 128)
            #expect(try await client.reply() == confirmation("subscribe", "alice", 1))
            // The event of bob's image may arrive after the confirmation, or not.
            func next() async throws -> Value {
                let reply = try await client.reply()
                let isOptional = reply == message("alice", "update \(Self.start + 1) bob")
                return isOptional ? try await client.reply() : reply
            }
            #expect(try await next() == .array([bulk("pong"), bulk("")]))
            try await put(other, "zoe")
            #expect(try await next() == message("alice", "update \(Self.start + 1) zoe"))
        }
    }

    @Test func `I8: subscriptions over the limit are BUSY and change nothing`() async throws {
        try await TestDaemon.run {
            $0.limits.subscriptions = 2
        } _: { daemon in
            let client = try await daemon.connect()
            guard case .error(code: "BUSY", let reason) = try await client.call("SUBSCRIBE", "a", "b", "c") else {
                Issue.record("the third subscription is accepted")
                return
            }
            #expect(reason.contains("limits.subscriptions: this connection would have 3"))
            #expect(try await client.call("ECHO", "as before") == bulk("as before"))
            try await client.send("SUBSCRIBE", "a", "b", "a")
            #expect(try await client.replies(3).last == confirmation("subscribe", "a", 2))
        }
    }

    @Test func `a closed connection has no subscriptions, and other uids get no events`() async throws {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice()
            let other = try await daemon.connect(as: Peer(uid: 1001, pid: 1, isAdmin: true))
            _ = try await other.call("SUBSCRIBE", "*")
            let closed = try await daemon.connect()
            _ = try await closed.call("SUBSCRIBE", "alice")
            #expect(daemon.followedChannels == 1)
            try await closed.close()
            try await eventually { daemon.followedChannels == 0 }
            try await put(client, "bob")
            _ = try await client.call("LOGOUT", "alice")
            #expect(try await other.call("PING") == .array([bulk("pong"), bulk("")]))
        }
    }

    @Test func `I8: a connection that closes during SUBSCRIBE has no subscriptions`() async throws {
        try await TestDaemon.run { daemon in
            let names = (0..<1_000).map { "\($0)" + String(repeating: "n", count: 200) }
            for _ in 0..<20 {
                let client = try await daemon.connect()
                // Making room for the second request flushes the reply to the first, to a peer that has closed the
                // connection.
                try await client.send("PING")
                try await client.send((["SUBSCRIBE"] + names).map { ByteBuffer(string: $0) })
                try await client.close()
            }
            try await eventually { daemon.followedChannels == 0 }
        }
    }

    @Test func `I3: a subscriber with unread output is disconnected by an invalidation`()
        async throws
    {
        try await TestDaemon.run { daemon in
            let client = try await daemon.connectWithAlice(.three)
            let silent = try await daemon.connect(reads: false)
            try await silent.send("HELLO", "3")
            try await silent.send("SUBSCRIBE", "alice")
            // More than the socket buffer.
            let text = String(repeating: "x", count: 64 << 10)
            for _ in 0..<16 { try await silent.send("ECHO", text) }
            try await eventually { try await client.call("CLIENT", "LIST").text?.contains("id=2") == true }
            _ = try await client.call("LOGOUT", "alice")
            try await silent.closed()
        }
    }

    @Test func `I8: the queue of a subscriber that reads nothing is bounded`() async throws {
        try await TestDaemon.run {
            $0.limits.output = 64 << 10
        } _: { daemon in
            let client = try await daemon.connectWithAlice()
            let silent = try await daemon.connect(reads: false)
            try await silent.send("SUBSCRIBE", "*")
            let name = String(repeating: "p", count: 500)
            try await eventually {
                try await put(client, name)
                return try await client.call("CLIENT", "LIST").text?.split(separator: "\n").count == 1
            }
        }
    }
}
