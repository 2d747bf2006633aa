import NIOCore
import Testing

@testable import thumbcached_http

/// Bounds of the HTTP server: timeouts, connections, and requests to the daemon (I8).
@Suite(.timeLimit(.minutes(2))) struct HTTPBoundsTests {
    private static let metrics = HTTPServerTests.metrics
    private static let nothing = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"

    @Test func `a head sent in pieces has the timeout of one head`() async throws {
        try await TestService.run { service in
            let (slow, other) = (try await service.connect(), try await service.connect())
            for peer in [slow, other] { _ = try await peer.request(Self.nothing) }
            for piece in ["GET /metrics HT", "TP/1.1\r\nHost", ": localhost\r\nX: a"] {
                try await slow.send(piece)
                try await service.pass(.milliseconds(9_999))
                // The response shows that the loop has read the piece.
                _ = try await other.request(Self.nothing)
            }
            #expect(try await service.count() == 2)
            try await service.pass(.milliseconds(3))
            #expect(await slow.rest() == "")
            try await service.waitForConnections(1)
            #expect(service.daemon.requests == 0)
        }
    }

    @Test func `an idle connection times out, and one with requests does not`() async throws {
        try await TestService.run { service in
            let (idle, busy) = (try await service.connect(), try await service.connect())
            for peer in [idle, busy] { _ = try await peer.request(Self.nothing) }
            try await service.pass(.seconds(29))
            _ = try await busy.request(Self.nothing)
            try await service.pass(.seconds(1))
            #expect(await idle.rest() == "")
            try await service.pass(.seconds(28))
            #expect(try await busy.request(Self.nothing).status == 404)
        }
    }

    @Test func `no timer is scheduled without connections`() async throws {
        try await TestService.run { service in
            #expect(try await service.server.hasTimer().get() == false)
            let peer = try await service.connect()
            #expect(try await peer.request(Self.nothing).status == 404)
            #expect(try await service.server.hasTimer().get())
            try await service.pass(.seconds(30))
            try await service.waitForConnections(0)
            #expect(try await service.server.hasTimer().get() == false)
        }
    }

    @Test func `a peer that does not read its response times out`() async throws {
        let text = String(repeating: "# \(String(repeating: "a", count: 1_000))\n", count: 8_000)
        try await TestService.run(text: text) { service in
            let peer = try await service.connect(autoRead: false)
            try await peer.send(Self.metrics)
            await service.daemon.receives(1)
            while try await service.server.phases().get() != [.write] { await Task.yield() }
            try await service.pass(.milliseconds(9_999), isWriting: true)
            #expect(try await service.count() == 1)
            try await service.pass(.milliseconds(1), isWriting: true)
            try await service.waitForConnections(0)
            try await peer.close()
        }
    }

    @Test(arguments: [
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
        "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: \(String(repeating: "a", count: 9_000))\r\n",
    ])
    func `a peer that keeps sending instead of closing times out`(_ request: String) async throws {
        try await TestService.run { service in
            let peer = try await service.connect(closes: false)
            try await peer.send(request)
            while try await service.server.phases().get() != [.close] { await Task.yield() }
            try await peer.send(String(repeating: "a", count: 100_000))
            try await service.pass(.milliseconds(1_999))
            #expect(try await service.count() == 1)
            try await service.pass(.milliseconds(1))
            try await service.waitForConnections(0)
        }
    }

    @Test func `a connection over the limit evicts the one that has been idle longest`() async throws {
        var limits = HTTPLimits()
        limits.connections = 3
        try await TestService.run(limits: limits) { service in
            var peers: [TestPeer] = []
            for _ in 0..<3 {
                peers.append(try await service.connect())
                _ = try await peers[peers.count - 1].request(Self.nothing)
                try await service.pass(.milliseconds(1))
            }
            _ = try await peers[0].request(Self.nothing)
            try await service.pass(.milliseconds(1))
            let fourth = try await service.connect()
            #expect(try await fourth.request(Self.nothing).status == 404)
            #expect(await peers[1].rest() == "")
            for peer in [peers[0], peers[2]] { #expect(try await peer.request(Self.nothing).status == 404) }
            #expect(try await service.count() == 3)
        }
    }

    @Test func `a connection with a request in progress is not evicted`() async throws {
        var limits = HTTPLimits()
        limits.connections = 2
        try await TestService.run(limits: limits) { service in
            service.daemon.block()
            let peers = [try await service.connect(), try await service.connect()]
            for peer in peers { try await peer.send(Self.metrics) }
            while try await service.server.phases().get().filter({ $0 == .response(number: 1) }).count < 2 {
                await Task.yield()
            }
            #expect(await (try service.connect()).rest() == "")
            service.daemon.unblock()
            for peer in peers { #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n")) }
        }
    }

    @Test func `a hundred consecutive connections get responses within the limit of four`() async throws {
        var limits = HTTPLimits()
        limits.connections = 4
        try await TestService.run(limits: limits) { service in
            for _ in 0..<100 {
                let peer = try await service.connect()
                #expect(try await peer.request(Self.metrics).status == 200)
                #expect(try await service.count() <= 4)
            }
        }
    }

    @Test func `concurrent scrapes share one request to the daemon`() async throws {
        try await TestService.run { service in
            service.daemon.block()
            var peers: [TestPeer] = []
            for _ in 0..<5 {
                peers.append(try await service.connect())
                try await peers[peers.count - 1].send(Self.metrics)
            }
            while try await service.server.phases().get().filter({ $0 == .response(number: 1) }).count < 5 {
                await Task.yield()
            }
            await service.daemon.receives(1)
            #expect(service.daemon.requests == 1)
            service.daemon.unblock()
            for peer in peers { #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n")) }
            #expect(service.daemon.requests == 1)
            _ = try await peers[0].request(Self.metrics)
            #expect(service.daemon.requests == 2)
        }
    }

    @Test func `a slow scrape gets thumbcached_up 0 in time, and the late reply is discarded`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            service.daemon.block()
            try await peer.send(Self.metrics)
            await service.daemon.receives(1)
            while try await service.server.phases().get() != [.response(number: 1)] { await Task.yield() }
            try await service.pass(.milliseconds(8_999))
            #expect(try await service.server.phases().get() == [.response(number: 1)])
            try await service.pass(.milliseconds(1))
            let late = try await peer.response()
            #expect(late.status == 200 && late.body.hasSuffix("thumbcached_up 0\n"))
            // The first request to the daemon is still pending, and there is no second one.
            try await peer.send(Self.metrics)
            while try await service.server.phases().get() != [.response(number: 2)] { await Task.yield() }
            #expect(service.daemon.requests == 1)
            service.daemon.unblock()
            #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n"))
            try await peer.send("GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            #expect(try await peer.response().status == 404)
            #expect(await peer.rest() == "")
        }
    }
}
