import NIOCore
import NIOHTTP1
import Testing

@testable import thumbcached_http

/// Responses of the server over real sockets.
@Suite(.timeLimit(.minutes(2))) struct HTTPServerTests {
    /// Valid by itself; 60 of them exceed the header limit.
    private static let longValue = String(repeating: "a", count: 200)
    static let metrics = "GET /metrics HTTP/1.1\r\nHost: localhost:9420\r\n\r\n"

    @Test func `/metrics has the daemon's METRICS followed by thumbcached_up`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            for number in 1...2 {
                let answer = try await peer.request(Self.metrics)
                #expect(answer.status == 200)
                #expect(
                    answer.body == """
                        thumbcached_uptime_seconds 7
                        # HELP thumbcached_up 1 if the daemon replied to this scrape, else 0.
                        # TYPE thumbcached_up gauge
                        thumbcached_up 1

                        """)
                #expect(answer.fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8")
                #expect(answer.fields["connection"] == "keep-alive")
                #expect(answer.fields["date"] == "Sun, 06 Nov 1994 08:49:37 GMT")
                #expect(service.daemon.requests == number)
            }
            let close = try await peer.request("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            #expect(close.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }

    @Test func `/metrics is no error while the daemon does not reply`() async throws {
        try await TestService.run { service in
            service.daemon.fail(reason: "The daemon sleeps.")
            let answer = try await service.connect().request(Self.metrics)
            #expect(answer.status == 200)
            #expect(answer.body.hasSuffix("\nthumbcached_up 0\n"))
            #expect(!answer.body.contains("uptime"))
        }
    }

    @Test(arguments: ["/", "/metrics", "/nothing"])
    func `every response has the security fields`(path: String) async throws {
        try await TestService.run { service in
            let answer = try await service.connect().request("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
            #expect(answer.status == (path == "/nothing" ? 404 : 200))
            #expect(answer.fields["cache-control"] == "no-store")
            #expect(answer.fields["x-content-type-options"] == "nosniff")
            #expect(answer.fields["cross-origin-resource-policy"] == "same-origin")
            #expect(answer.fields["referrer-policy"] == "no-referrer")
            let policy = try #require(answer.fields["content-security-policy"])
            #expect(policy.hasPrefix("default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"))
            #expect(!policy.contains("unsafe") && !policy.contains("script"))
        }
    }

    @Test(arguments: ["/", "/metrics"])
    func `HEAD has the head of GET and no body`(path: String) async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            let whole = try await peer.request("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
            let head = try await peer.request("HEAD \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n", isHead: true)
            #expect(head.status == 200)
            // The nonce in the policy differs each time.
            func fixed(_ response: TestPeer.Response) -> [String: String] {
                response.fields.filter { $0.key != "content-security-policy" }
            }
            #expect(fixed(head) == fixed(whole))
            // A body would be read as the next response.
            #expect(try await peer.request(Self.metrics).body.hasSuffix("thumbcached_up 1\n"))
        }
    }

    @Test func `a POST is rejected without reading its body, and the connection closes`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            let post = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(Self.metrics.utf8.count)\r\n\r\n"
            // The body looks like a request.
            let answer = try await peer.request(post + Self.metrics)
            #expect(answer.status == 405)
            #expect(answer.fields["allow"] == "GET, HEAD")
            #expect(answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
            #expect(service.daemon.requests == 0)
        }
    }

    @Test(arguments: [
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403), ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n", 400), ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505), ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \(String(repeating: "a", count: 9_000))\r\n\r\n", 431),
        ("GET /\(String(repeating: "a", count: 9_000)) HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\(String(repeating: "X: \(longValue)\r\n", count: 60))\r\n", 431),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\(String(repeating: "a: b\r\n", count: 65))\r\n", 431),
        // An unfinished head.
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \(String(repeating: "a", count: 100_000))", 431),
        // Input that the parser does not count.
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX:\(String(repeating: " ", count: 100_000))", 431),
        ("GET /\(String(repeating: " ", count: 100_000))", 431),
    ])
    func `an invalid request is rejected, and the connection closes`(request: String, status: Int) async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            let answer = try await peer.request(request + Self.metrics)
            #expect(answer.status == status)
            #expect(answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
            #expect(service.daemon.requests == 0)
            try await service.waitForConnections(0)
        }
    }

    @Test func `a host named with --host is valid`() async throws {
        try await TestService.run(hosts: ["figures.example.org"]) { service in
            let peer = try await service.connect()
            let answer = try await peer.request("GET /metrics HTTP/1.1\r\nHost: figures.example.org\r\n\r\n")
            #expect(answer.status == 200)
        }
    }

    /// NIO parses nothing after such a request (RFC 9110, section 7.8).
    @Test func `a request to upgrade gets its response, and the connection closes`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            let upgrade = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
            let answer = try await peer.request("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\(upgrade)\r\n")
            #expect(answer.status == 200 && answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }

    @Test func `a response to HTTP/1.0 closes the connection`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
            let answer = try await peer.request(request)
            #expect(answer.status == 200 && answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }

    @Test func `a peer that has closed its output gets its response`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            try await peer.send(Self.metrics)
            try await peer.endOutput()
            #expect(try await peer.response().status == 200)
            #expect(await peer.rest() == "")
            try await service.waitForConnections(0)
        }
    }

    @Test func `pipelined requests get their responses in order`() async throws {
        try await TestService.run { service in
            let peer = try await service.connect()
            service.daemon.block()
            try await peer.send(
                Self.metrics + "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    + "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" + "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await service.daemon.receives(1)
            service.daemon.unblock()
            #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n"))
            #expect(try await peer.response().status == 404)
            #expect(try await peer.response(isHead: true).status == 200)
            #expect(try await peer.response().fields["content-type"] == "text/html; charset=utf-8")
            #expect(service.daemon.requests == 2)
        }
    }

    @Test func `input that arrives before a response is read once and processed after it`() async throws {
        let nothing = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
        let three = String(repeating: nothing, count: 3)
        var limits = HTTPLimits()
        limits.pipelined = 3
        try await TestService.run(limits: limits) { service in
            let (peer, other) = (try await service.connect(), try await service.connect())
            service.daemon.block()
            try await peer.send(Self.metrics)
            await service.daemon.receives(1)
            // The second input stays in the socket. If it were read, too many requests would be queued.
            for input in [three, three + "nonsense\r\n\r\n"] {
                try await peer.send(input)
                // The response shows that the loop has polled the peer's socket.
                #expect(try await other.request(nothing).status == 404)
            }
            service.daemon.unblock()
            #expect(try await peer.response().status == 200)
            for _ in 0..<6 { #expect(try await peer.response().status == 404) }
            let last = try await peer.response()
            #expect(last.status == 400 && last.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }

    @Test func `too many pipelined requests close the connection after the queued ones`() async throws {
        var limits = HTTPLimits()
        limits.pipelined = 3
        try await TestService.run(limits: limits) { service in
            let peer = try await service.connect()
            try await peer.send(String(repeating: "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", count: 5))
            for _ in 0..<3 { #expect(try await peer.response().status == 404) }
            let answer = try await peer.response()
            #expect(answer.status == 429 && answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }
}
