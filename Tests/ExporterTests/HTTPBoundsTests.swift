import NIOCore
import Testing

@testable import thumbcached_exporter

/// What one peer, and all together, can have: time, places, and questions at the daemon.
@Suite(.timeLimit(.minutes(2))) struct HTTPBoundsTests {
    private static let metrics = HTTPServerTests.metrics
    private static let nothing = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"

    @Test func `a head that comes bit by bit has the time of a whole one`() async throws {
        try await TestExporter.run { exporter in
            let (slow, other) = (try await exporter.connect(), try await exporter.connect())
            for peer in [slow, other] { _ = try await peer.ask(Self.nothing) }
            for piece in ["GET /metrics HT", "TP/1.1\r\nHost", ": localhost\r\nX: a"] {
                try await slow.send(piece)
                try await exporter.pass(.milliseconds(9_999))
                // The loop has read the piece when it answers somebody who asked later.
                _ = try await other.ask(Self.nothing)
            }
            #expect(try await exporter.count() == 2)
            try await exporter.pass(.milliseconds(3))
            #expect(await slow.rest() == "")
            try await exporter.settles(at: 1)
            #expect(exporter.daemon.questions == 0)
        }
    }

    @Test func `a connection on which nothing is asked ends, and one that asks in time stays`() async throws {
        try await TestExporter.run { exporter in
            let (idle, busy) = (try await exporter.connect(), try await exporter.connect())
            for peer in [idle, busy] { _ = try await peer.ask(Self.nothing) }
            try await exporter.pass(.seconds(29))
            _ = try await busy.ask(Self.nothing)
            try await exporter.pass(.seconds(1))
            #expect(await idle.rest() == "")
            try await exporter.pass(.seconds(28))
            #expect(try await busy.ask(Self.nothing).status == 404)
        }
    }

    @Test func `without connections no timer is armed`() async throws {
        try await TestExporter.run { exporter in
            #expect(try await exporter.server.hasTimer().get() == false)
            let peer = try await exporter.connect()
            #expect(try await peer.ask(Self.nothing).status == 404)
            #expect(try await exporter.server.hasTimer().get())
            try await exporter.pass(.seconds(30))
            try await exporter.settles(at: 0)
            #expect(try await exporter.server.hasTimer().get() == false)
        }
    }

    @Test func `a peer that does not take its answer is left`() async throws {
        let text = String(repeating: "# \(String(repeating: "a", count: 1_000))\n", count: 8_000)
        try await TestExporter.run(text: text) { exporter in
            let peer = try await exporter.connect(autoRead: false)
            try await peer.send(Self.metrics)
            await exporter.daemon.isAsked(1)
            // It waits for the peer and not for the daemon any more.
            while try await exporter.server.phases().get() != [.write] { await Task.yield() }
            try await exporter.pass(.milliseconds(9_999))
            #expect(try await exporter.count() == 1)
            try await exporter.pass(.milliseconds(1))
            try await exporter.settles(at: 0)
            try await peer.close()
        }
    }

    @Test func `a peer that does not close is closed, whatever it goes on to send`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect(closes: false)
            try await peer.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
            while try await exporter.server.phases().get() != [.close] { await Task.yield() }
            try await peer.send(String(repeating: "a", count: 100_000))
            try await exporter.pass(.milliseconds(1_999))
            #expect(try await exporter.count() == 1)
            try await exporter.pass(.milliseconds(1))
            try await exporter.settles(at: 0)
        }
    }

    @Test func `of more connections than may be the one that is silent longest gives way`() async throws {
        var limits = HTTPLimits()
        limits.connections = 3
        try await TestExporter.run(limits: limits) { exporter in
            var peers: [TestPeer] = []
            for _ in 0..<3 {
                peers.append(try await exporter.connect())
                _ = try await peers[peers.count - 1].ask(Self.nothing)
                try await exporter.pass(.milliseconds(1))
            }
            _ = try await peers[0].ask(Self.nothing)
            try await exporter.pass(.milliseconds(1))
            let fourth = try await exporter.connect()
            #expect(try await fourth.ask(Self.nothing).status == 404)
            #expect(await peers[1].rest() == "")
            for peer in [peers[0], peers[2]] { #expect(try await peer.ask(Self.nothing).status == 404) }
            #expect(try await exporter.count() == 3)
        }
    }

    @Test func `nobody who is being answered gives way`() async throws {
        var limits = HTTPLimits()
        limits.connections = 2
        try await TestExporter.run(limits: limits) { exporter in
            exporter.daemon.shut()
            let peers = [try await exporter.connect(), try await exporter.connect()]
            for peer in peers { try await peer.send(Self.metrics) }
            while try await exporter.server.phases().get().filter({ $0 == .answer(number: 1) }).count < 2 {
                await Task.yield()
            }
            #expect(await (try exporter.connect()).rest() == "")
            exporter.daemon.open()
            for peer in peers { #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n")) }
        }
    }

    @Test func `a hundred come and go, and all are answered`() async throws {
        var limits = HTTPLimits()
        limits.connections = 4
        try await TestExporter.run(limits: limits) { exporter in
            for _ in 0..<100 {
                let peer = try await exporter.connect()
                #expect(try await peer.ask(Self.metrics).status == 200)
                #expect(try await exporter.count() <= 4)
            }
        }
    }

    @Test func `scrapes at once are one question at the daemon`() async throws {
        try await TestExporter.run { exporter in
            exporter.daemon.shut()
            var peers: [TestPeer] = []
            for _ in 0..<5 {
                peers.append(try await exporter.connect())
                try await peers[peers.count - 1].send(Self.metrics)
            }
            while try await exporter.server.phases().get().filter({ $0 == .answer(number: 1) }).count < 5 {
                await Task.yield()
            }
            #expect(exporter.daemon.questions == 1)
            exporter.daemon.open()
            for peer in peers { #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n")) }
            #expect(exporter.daemon.questions == 1)
            _ = try await peers[0].ask(Self.metrics)
            #expect(exporter.daemon.questions == 2)
        }
    }

    @Test func `a scrape is answered before Prometheus gives up, and a late answer is nobody's`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            exporter.daemon.shut()
            try await peer.send(Self.metrics)
            await exporter.daemon.isAsked(1)
            while try await exporter.server.phases().get() != [.answer(number: 1)] { await Task.yield() }
            try await exporter.pass(.milliseconds(8_999))
            #expect(try await exporter.server.phases().get() == [.answer(number: 1)])
            try await exporter.pass(.milliseconds(1))
            let late = try await peer.response()
            #expect(late.status == 200 && late.body.hasSuffix("thumbcached_up 0\n"))
            // The question is still on its way, and there is no second one.
            try await peer.send(Self.metrics)
            while try await exporter.server.phases().get() != [.answer(number: 2)] { await Task.yield() }
            #expect(exporter.daemon.questions == 1)
            exporter.daemon.open()
            #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n"))
            try await peer.send("GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            #expect(try await peer.response().status == 404)
            #expect(await peer.rest() == "")
        }
    }
}
