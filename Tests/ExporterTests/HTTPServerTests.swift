import NIOCore
import NIOHTTP1
import Testing

@testable import thumbcached_exporter

/// The server over real sockets: what is answered, and how.
@Suite(.timeLimit(.minutes(2))) struct HTTPServerTests {
    /// Not too long by itself.
    private static let longValue = String(repeating: "a", count: 200)
    static let metrics = "GET /metrics HTTP/1.1\r\nHost: localhost:9420\r\n\r\n"

    @Test func `what METRICS says comes as Prometheus reads it, and thumbcached_up behind it`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            for number in 1...2 {
                let answer = try await peer.ask(Self.metrics)
                #expect(answer.status == 200)
                #expect(
                    answer.body == """
                        thumbcached_uptime_seconds 7
                        # HELP thumbcached_up Whether the daemon answered the exporter: 1 or 0.
                        # TYPE thumbcached_up gauge
                        thumbcached_up 1

                        """)
                #expect(answer.fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8")
                #expect(answer.fields["connection"] == "keep-alive")
                #expect(answer.fields["date"] == "Sun, 06 Nov 1994 08:49:37 GMT")
                #expect(exporter.daemon.questions == number)
            }
            let close = try await peer.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            #expect(close.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }

    @Test func `a daemon that does not answer is a figure, and no error`() async throws {
        try await TestExporter.run { exporter in
            exporter.daemon.fall(silent: "It sleeps.")
            let answer = try await exporter.connect().ask(Self.metrics)
            #expect(answer.status == 200)
            #expect(answer.body.hasSuffix("\nthumbcached_up 0\n"))
            #expect(!answer.body.contains("uptime"))
        }
    }

    @Test(arguments: ["/", "/metrics", "/nothing"])
    func `every answer says how it may be used`(path: String) async throws {
        try await TestExporter.run { exporter in
            let answer = try await exporter.connect().ask("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
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
    func `HEAD has the head of GET, and nothing behind it`(path: String) async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            let whole = try await peer.ask("GET \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n")
            let head = try await peer.ask("HEAD \(path) HTTP/1.1\r\nHost: localhost\r\n\r\n", isHead: true)
            #expect(head.status == 200)
            // The page's style has another number each time.
            func fixed(_ response: TestPeer.Response) -> [String: String] {
                response.fields.filter { $0.key != "content-security-policy" }
            }
            #expect(fixed(head) == fixed(whole))
            // What came behind it would be taken for the next answer.
            #expect(try await peer.ask(Self.metrics).body.hasSuffix("thumbcached_up 1\n"))
        }
    }

    @Test func `what is to change something is refused, its body unread, and the connection ends`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            let post = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: \(Self.metrics.utf8.count)\r\n\r\n"
            // The body is a request, for whoever reads on.
            let answer = try await peer.ask(post + Self.metrics)
            #expect(answer.status == 405)
            #expect(answer.fields["allow"] == "GET, HEAD")
            #expect(answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
            #expect(exporter.daemon.questions == 0)
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
        // Without an end.
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \(String(repeating: "a", count: 100_000))", 431),
    ])
    func `what is no good request is refused, and the connection ends`(request: String, status: Int) async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            let answer = try await peer.ask(request + Self.metrics)
            #expect(answer.status == status)
            #expect(answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
            #expect(exporter.daemon.questions == 0)
            try await exporter.settles(at: 0)
        }
    }

    @Test func `a given host is served as well`() async throws {
        try await TestExporter.run(hosts: ["figures.example.org"]) { exporter in
            let peer = try await exporter.connect()
            let answer = try await peer.ask("GET /metrics HTTP/1.1\r\nHost: figures.example.org\r\n\r\n")
            #expect(answer.status == 200)
        }
    }

    @Test func `HTTP/1.0 is answered, and its connection ends`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            let request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
            let answer = try await peer.ask(request)
            #expect(answer.status == 200 && answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }

    @Test func `a peer that has said all is answered all the same`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            try await peer.send(Self.metrics)
            try await peer.endOutput()
            #expect(try await peer.response().status == 200)
            #expect(await peer.rest() == "")
            try await exporter.settles(at: 0)
        }
    }

    @Test func `requests that come together are answered one after another, in their order`() async throws {
        try await TestExporter.run { exporter in
            let peer = try await exporter.connect()
            exporter.daemon.shut()
            try await peer.send(
                Self.metrics + "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
                    + "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" + "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await exporter.daemon.isAsked(1)
            exporter.daemon.open()
            #expect(try await peer.response().body.hasSuffix("thumbcached_up 1\n"))
            #expect(try await peer.response().status == 404)
            #expect(try await peer.response(isHead: true).status == 200)
            #expect(try await peer.response().fields["content-type"] == "text/html; charset=utf-8")
            #expect(exporter.daemon.questions == 2)
        }
    }

    @Test func `more requests at once than may wait end the connection behind those that may`() async throws {
        var limits = HTTPLimits()
        limits.pipelined = 3
        try await TestExporter.run(limits: limits) { exporter in
            let peer = try await exporter.connect()
            try await peer.send(String(repeating: "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", count: 5))
            for _ in 0..<3 { #expect(try await peer.response().status == 404) }
            let answer = try await peer.response()
            #expect(answer.status == 429 && answer.fields["connection"] == "close")
            #expect(await peer.rest() == "")
        }
    }
}
