import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Testing
import Thumbcache

@testable import thumbcached_http

/// Images over real sockets, with a fake daemon.
@Suite(.timeLimit(.minutes(2))) struct ImageServiceTests {
    /// A daemon that gives one outcome, and can be blocked.
    private final class Images: Sendable {
        let outcome = NIOLockedValueBox(ImageOutcome.image(.sample()))
        let gate = NIOLockedValueBox<Gate?>(nil)
        let arrivals = Gate()
        let cancellations = Gate()

        func lookUp(_ request: ImageRequest) async -> ImageOutcome {
            arrivals.arrive()
            let gate = gate.withLockedValue { $0 }
            await withTaskCancellationHandler {
                await gate?.opened()
            } onCancel: {
                cancellations.arrive()
                gate?.open()
            }
            return outcome.withLockedValue { $0 }
        }
    }

    private func run(
        memory: Int = 1 << 20, limits: HTTPLimits = HTTPLimits(),
        now: @escaping @Sendable () -> NIODeadline = { .now() },
        _ body: (HTTPServer, Images, ImageTransfers) async throws -> Void
    ) async throws {
        let (loop, images) = (MultiThreadedEventLoopGroup.singleton.next(), Images())
        let transfers = ImageTransfers(limit: memory)
        let service = ImageService(
            rules: try ImageRulesTests.rules(), loop: loop, transfers: transfers, wallClock: { 0 },
            lookUp: images.lookUp)
        let server = try await HTTPServer.start(
            on: loop, at: try .anyPort, setting: "images.listen", limits: limits, now: now, wallClock: { 784_111_777 }
        ) { service.respond(to: $0) }.get()
        do {
            try await body(server, images, transfers)
        } catch {
            images.gate.withLockedValue { $0 }?.open()
            try await server.close().get()
            throw error
        }
        images.gate.withLockedValue { $0 }?.open()
        try await server.close().get()
    }

    private static let path = "/avatar/\(ImageRulesTests.hash)"
    private static func get(_ path: String = path, _ method: String = "GET", _ field: String = "") -> String {
        "\(method) \(path) HTTP/1.1\r\nHost: localhost\r\n\(field)\r\n"
    }

    /// A peer that reads nothing of the image that is being sent to it.
    private static func slowPeer(of server: HTTPServer) async throws -> TestPeer {
        let peer = try await TestPeer.connect(to: server.address, autoRead: false)
        try await peer.send(get())
        while try await server.phases().get() != [.write] { await Task.yield() }
        return peer
    }

    @Test(arguments: [true, false])
    func `a request ends when its connection closes or times out`(_ closes: Bool) async throws {
        let clock = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(1_000_000_000_000))
        try await run(now: { clock.withLockedValue { $0 } }) { server, images, transfers in
            images.gate.withLockedValue { $0 = Gate() }
            let peer = try await TestPeer.connect(to: server.address)
            try await peer.send(Self.get())
            await images.arrivals.reached(by: 1)
            #expect(transfers.count == 1)
            if closes {
                try await peer.reset()
            } else {
                clock.withLockedValue { $0 = $0 + HTTPLimits().responseTime }
                try await server.sweep().get()
            }
            await images.cancellations.reached(by: 1)
            while transfers.count > 0 { await Task.yield() }
        }
    }

    @Test func `GET, HEAD and 304 keep the connection in order`() async throws {
        try await run { server, _, _ in
            let peer = try await TestPeer.connect(to: server.address)
            let whole = try await peer.request(Self.get())
            #expect(whole.status == 200 && whole.body == "<png>\n" && whole.fields["content-length"] == "6")
            let head = try await peer.request(Self.get(Self.path, "HEAD"), isHead: true)
            #expect(head.status == 200 && head.fields == whole.fields)
            let tag = "If-None-Match: \(try #require(whole.fields["etag"]))\r\n"
            let unchanged = try await peer.request(Self.get(Self.path, "GET", tag), isHead: true)
            #expect(unchanged.status == 304 && unchanged.fields["content-length"] == nil)
            #expect(try await peer.request(Self.get()).body == "<png>\n")
            #expect(try await peer.request(Self.get("/avatar/\(ImageRulesTests.hash)?f=y&d=blank")).status == 200)
            #expect(try await peer.request(Self.get("/nothing")).status == 404)
            #expect(try await peer.request(Self.get(Self.path, "POST")).status == 405)
            #expect(await peer.rest() == "")
        }
    }

    /// The cases of https://github.com/http-tests/cache-tests that apply to a server whose images have a strong entity
    /// tag and no Last-Modified, each with its id there. `TAG` stands for the digest.
    @Test(arguments: [
        ("conditional-etag-strong-respond", ["If-None-Match: \"TAG\""], 304),
        ("conditional-etag-weak-respond", ["If-None-Match: W/\"TAG\""], 304),
        ("conditional-etag-strong-respond-multiple-first", ["If-None-Match: \"TAG\", \"1234\", \"5678\""], 304),
        ("conditional-etag-strong-respond-multiple-second", ["If-None-Match: \"1234\", \"TAG\", \"5678\""], 304),
        ("conditional-etag-strong-respond-multiple-last", ["If-None-Match: \"1234\", \"5678\", \"TAG\""], 304),
        ("two fields", ["If-None-Match: \"1234\"", "If-None-Match: \"TAG\""], 304),
        ("a comma within a tag", ["If-None-Match: \"12,34\",\"TAG\""], 304), ("any", ["If-None-Match: *"], 304),
        ("conditional-etag-strong-respond-obs-text", ["If-None-Match: \"TAG\u{fc}\""], 200),
        ("conditional-etag-quoted-respond-unquoted", ["If-None-Match: TAG"], 200),
        ("conditional-etag-weak-respond-lowercase", ["If-None-Match: w/\"TAG\""], 200),
        ("conditional-etag-weak-respond-backslash", ["If-None-Match: W\\\"TAG\""], 200),
        ("conditional-etag-weak-respond-omit-slash", ["If-None-Match: W\"TAG\""], 200),
        ("another tag", ["If-None-Match: \"1234\""], 200),
        (
            "conditional-etag-precedence",
            ["If-None-Match: \"TAG\"", "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT"], 304
        ),
        (
            "conditional-etag-precedence",
            ["If-None-Match: \"1234\"", "If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"], 200
        ),
        ("no Last-Modified", ["If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"], 200),
        ("no ranges", ["Range: bytes=0-1", "If-Range: \"TAG\""], 200),
    ])
    func `GET and HEAD evaluate preconditions, and a 304 has the fields of the 200 (RFC 9110, 15.4.5)`(
        name: String, fields: [String], status: Int
    ) async throws {
        try await run { server, _, _ in
            let peer = try await TestPeer.connect(to: server.address)
            let whole = try await peer.request(Self.get())
            let tag = try #require(whole.fields["etag"]).filter { $0 != "\"" }
            let condition = fields.map { $0.replacing("TAG", with: tag) + "\r\n" }.joined()
            for method in ["GET", "HEAD"] {
                let response = try await peer.request(
                    Self.get(Self.path, method, condition), isHead: method == "HEAD" || status == 304)
                #expect(response.status == status, "\(name), \(method)")
                var expected = whole.fields
                if status == 304 { for name in ["content-length", "content-type"] { expected[name] = nil } }
                #expect(response.fields == expected, "\(name), \(method)")
                #expect(response.body == (method == "GET" && status == 200 ? whole.body : ""), "\(name)")
            }
            // Bytes of an unexpected body would be read as the next response.
            #expect(try await peer.request(Self.get()).body == whole.body)
        }
    }

    @Test func `a response without an entity tag is never 304`() async throws {
        try await run { server, images, _ in
            images.outcome.withLockedValue { $0 = .missing }
            let peer = try await TestPeer.connect(to: server.address)
            let condition = "If-None-Match: \"\(String(repeating: "0", count: 64))\"\r\n"
            for (path, status) in [(Self.path + "?d=404", 404), (Self.path + "?d=mp", 200), ("/nothing", 404)] {
                let response = try await peer.request(Self.get(path, "GET", condition))
                #expect(response.status == status && response.fields["etag"] == nil)
            }
        }
    }

    @Test func `a reply after the timeout is discarded`() async throws {
        let clock = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(1_000_000_000_000))
        try await run(now: { clock.withLockedValue { $0 } }) { server, images, _ in
            let gate = Gate()
            images.gate.withLockedValue { $0 = gate }
            let peer = try await TestPeer.connect(to: server.address)
            try await peer.send(Self.get(Self.path + "?d=404"))
            await images.arrivals.reached(by: 1)
            while try await server.phases().get() != [.response(number: 1)] { await Task.yield() }
            clock.withLockedValue { $0 = $0 + HTTPLimits().responseTime }
            try await server.sweep().get()
            #expect(try await peer.response().status == 504)
            images.outcome.withLockedValue { $0 = .missing }
            gate.open()
            #expect(try await peer.request(Self.get(Self.path + "?d=404")).status == 404)
        }
    }

    @Test func `images that are being sent have a limit of memory`() async throws {
        let large = String(repeating: "a", count: 4 << 20)
        try await run(memory: 6 << 20) { server, images, transfers in
            images.outcome.withLockedValue { $0 = .image(.sample(.sample(), large)) }
            let slow = try await Self.slowPeer(of: server)
            #expect(transfers.bytes == 4 << 20)
            let other = try await TestPeer.connect(to: server.address)
            #expect(try await other.request(Self.get(Self.path + "?d=404")).status == 503)
            images.outcome.withLockedValue { $0 = .image(.sample()) }
            #expect(try await other.request(Self.get()).status == 200)
            try await slow.close()
            while transfers.bytes > 0 { await Task.yield() }
        }
    }

    @Test func `F89, I3: a logout ends an image that is being sent, and discards a reply from before`() async throws {
        let large = String(repeating: "a", count: 4 << 20)
        try await run(memory: 8 << 20) { server, images, transfers in
            images.outcome.withLockedValue { $0 = .image(.sample(.sample(), large)) }
            let slow = try await Self.slowPeer(of: server)
            // Events of other users and profiles have no effect.
            transfers.apply(.logout(user: "alice", epoch: 1))
            transfers.apply(.purge(user: "site", profile: "carol", epoch: 1))
            #expect(try await server.phases().get() == [.write])
            transfers.apply(.logout(user: "site", epoch: 2))
            while try await !server.phases().get().isEmpty { await Task.yield() }
            while transfers.bytes > 0 { await Task.yield() }
            try await slow.close()

            let gate = Gate()
            images.gate.withLockedValue { $0 = gate }
            let waiting = try await TestPeer.connect(to: server.address)
            try await waiting.send(Self.get(Self.path + "?d=404"))
            await images.arrivals.reached(by: 2)
            transfers.apply(.purge(user: "site", profile: nil, epoch: 3))
            gate.open()
            #expect(try await waiting.response().status == 404)
            // The next request began after the purge.
            #expect(try await waiting.request(Self.get()).body == large)
        }
    }
    @Test(arguments: [ThumbcacheEvent.gap, .subscribed])
    func `F89, I3: images in flight while events may be lost are not sent`(event: ThumbcacheEvent) async throws {
        let large = String(repeating: "a", count: 4 << 20)
        try await run(memory: 8 << 20) { server, images, transfers in
            images.outcome.withLockedValue { $0 = .image(.sample(.sample(), large)) }
            let slow = try await Self.slowPeer(of: server)
            transfers.apply(event)
            while try await !server.phases().get().isEmpty { await Task.yield() }
            try await slow.close()

            let gate = Gate()
            images.gate.withLockedValue { $0 = gate }
            let waiting = try await TestPeer.connect(to: server.address)
            try await waiting.send(Self.get(Self.path + "?d=404"))
            await images.arrivals.reached(by: 2)
            transfers.apply(event)
            gate.open()
            #expect(try await waiting.response().status == 503)
            #expect(try await waiting.request(Self.get()).body == large)
        }
    }
}
