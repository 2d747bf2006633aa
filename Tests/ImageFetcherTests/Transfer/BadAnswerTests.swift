import CacheCore
import Glibc
import NIOCore
import Testing

@testable import HelperProtocol
@testable import ImageFetcher

/// An origin that is broken, or wants harm.
@Suite struct BadAnswerTests {
    private func outcome(
        imageLimit: Int = 1 << 20, timeout: Int64 = 600_000, _ script: @escaping TestOrigin.Script
    ) async throws -> (outcome: DownloadOutcome, bytes: Int) {
        let server = try TestOrigin(["/a": script])
        defer { server.stop() }
        var result: (DownloadOutcome, Int)?
        try await withFetcher {
            $0.maximumImageBytes = imageLimit
        } _: { fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"), of: .test(timeout: timeout))
            #expect(fetcher.statistics.inFlight == 0)
            result = (outcome, fetcher.statistics[.bytes])
        }
        return try #require(result)
    }

    @Test(arguments: [
        "<html><body>Not here</body></html>", "<svg xmlns='http://www.w3.org/2000/svg'/>", "", "\u{89}PNG",
    ])
    func `F38: what says that it is a PNG and is none is no image`(body: String) async throws {
        let result = try await outcome { _, peer in
            peer.answer(Array(body.utf8), headers: ["Content-Type: image/png"])
        }
        #expect(result.outcome.kind == "badImage")
        #expect(result.outcome.sentence.contains("127.0.0.1"))
    }

    @Test func `F38: an image with huge dimensions is refused`() async throws {
        var huge = TestImage.png
        huge[17] = 1
        let result = try await outcome { [huge] _, peer in peer.answer(huge) }
        #expect(result.outcome.kind == "badImage" && result.outcome.sentence.contains("8192"))
    }

    @Test(arguments: [
        "gzip", "br", "deflate", "zstd", "x-gzip", "compress", "gzip, identity", "identity,GZIP", "gzip;q=1",
    ])
    func `F34: a compressed answer is refused, unpacked by nobody`(coding: String) async throws {
        let result = try await outcome { request, peer in
            #expect(request.headers["accept-encoding"] == "identity")
            peer.answer(TestImage.png(count: 100_000), headers: ["Content-Encoding: \(coding)"])
        }
        #expect(result.outcome.kind == "origin" && result.outcome.isDefinite)
        #expect(result.outcome.sentence.contains("coding"))
    }

    @Test(arguments: [
        "none", "UTF-8", "undefined", "null", "binary", "aws-chunked", "image/png", "identity, identity", "identity",
        "x", "",
    ])
    func `a Content-Encoding that names no coding is that of a plain image`(coding: String) async throws {
        let result = try await outcome { _, peer in
            peer.answer(TestImage.png, headers: ["Content-Encoding: \(coding)"])
        }
        #expect(result.outcome.imageBytes == TestImage.png, "\(result.outcome)")
    }

    @Test(arguments: ["gzip", "none"])
    func `F34: packed bytes are no image, whatever Content-Encoding says`(coding: String) async throws {
        let result = try await outcome { _, peer in
            peer.answer([0x1F, 0x8B, 8, 0] + TestImage.png, headers: ["Content-Encoding: \(coding)"])
        }
        #expect(result.outcome.failure != nil && result.outcome.isDefinite)
    }

    @Test(arguments: [
        ("200 OK", "<svg/>", true), ("201 Created", "", true), ("206 Partial Content", "x", true),
        ("300 Choices", "", true),
        ("302 Found", "", true), ("400 Bad", "", true), ("403 Forbidden", "", true), ("405 No", "", true),
        ("451 Legal", "", true), ("401 Who", "", false), ("408 Late", "", false), ("429 Slow", "", false),
        ("500 Broken", "", false), ("503 Busy", "", false), ("304 Same", "", false),
    ])
    func `definite responses without a usable image are told from those that may differ the next time`(
        status: String, body: String, isDefinite: Bool
    ) async throws {
        let result = try await outcome { _, peer in
            peer.answer(Array(body.utf8), status: status, headers: ["Cache-Control: max-age=7"])
        }
        #expect(result.outcome.failure != nil && result.outcome.isDefinite == isDefinite, "\(result.outcome)")
        if case .unusable(_, let headers) = result.outcome { #expect(headers["cache-control"] == "max-age=7") }
    }

    @Test func `a response that breaks off is not definite`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n")
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && !result.outcome.isDefinite)
    }

    @Test func `an image that is too large is a definite response, with its fields behind the length`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\nCache-Control: max-age=7\r\n\r\n")
            peer.waitForEnd()
        }
        guard case .unusable(.tooLarge, let headers) = result.outcome else {
            Issue.record("\(result.outcome)")
            return
        }
        #expect(headers["cache-control"] == "max-age=7")
    }

    @Test func `a 201 with an image is accepted, and a 204 says that there is none`() async throws {
        let created = try await outcome { _, peer in peer.answer(TestImage.png, status: "201 Created") }
        #expect(created.outcome.imageBytes == TestImage.png)
        let none = try await outcome { _, peer in
            peer.send("HTTP/1.1 204 No Content\r\nCache-Control: max-age=7\r\n\r\n")
        }
        #expect(none.outcome.missing?["cache-control"] == "max-age=7")
    }

    @Test func `an origin is told the User-Agent that is configured for it`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        try await withFetcher { fetcher in
            var origin = Origin.test()
            origin.userAgent = "thumbcached (avatars@example.org)"
            _ = try await fetcher.fetch(server.url("/a"), of: origin)
            _ = try await fetcher.fetch(server.url("/a"))
            #expect(
                server.requests.map { $0.headers["user-agent"] } == [
                    "thumbcached (avatars@example.org)", "thumbcached-tests",
                ])
        }
    }

    @Test func `F34: a transfer coding that unpacks to a thousand times its size is refused`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")
            peer.send("15\r\n\u{1f}\u{8b}garbage........\r\n")
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.sentence.contains("transfer coding"))
    }

    @Test func `F35: a length announced over the limit is refused before the body comes`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n")
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "tooLarge" && result.bytes == 0)
    }

    @Test func `F35: chunks without end are stopped at the limit`() async throws {
        let chunk = "8000\r\n" + String(repeating: "x", count: 0x8000) + "\r\n"
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while peer.send(chunk) {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "tooLarge")
        #expect(result.bytes > 1 << 20 && result.bytes <= (1 << 20) + 0x8000)
    }

    @Test func `F35: a body without length or chunks is stopped at the limit`() async throws {
        let piece = [UInt8](repeating: 7, count: 0x8000)
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            while peer.send(piece) {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "tooLarge")
    }

    @Test func `F35: an image of exactly the limit is taken`() async throws {
        let body = TestImage.png(count: 1 << 20)
        let result = try await outcome { _, peer in peer.answer(body) }
        #expect(result.outcome.imageBytes == body)
    }

    @Test(arguments: ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n", "HTTP/1.1 103 Early Hints\r\n"])
    func `F35: headers without end are stopped`(start: String) async throws {
        let result = try await outcome { _, peer in
            peer.send(start)
            while peer.send("X-Filler: \(String(repeating: "y", count: 1000))\r\n") {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.sentence.contains("header"))
    }

    @Test func `F35: interim answers without end are stopped`() async throws {
        let result = try await outcome { _, peer in
            while peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.sentence.contains("header"))
    }

    @Test func `F35: one header line without end is stopped`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nX-Filler: ")
            while peer.send(String(repeating: "y", count: 1000)) {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test func `F35: trailers without end are stopped`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
            while peer.send("X-Filler: \(String(repeating: "y", count: 1000))\r\n") {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: [1, 1000, 16_000, 100_000])
    func `F35: a body shorter than announced is no image`(missing: Int) async throws {
        let result = try await outcome { _, peer in
            let body = TestImage.png(count: 100_033 - missing)
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100033\r\n\r\n")
            peer.send(body)
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.sentence.contains("127.0.0.1"))
    }

    @Test(arguments: [100, 5000, 15_000])
    func `F35: a body longer than announced is no image`(length: Int) async throws {
        let result = try await outcome { _, peer in
            // In one write, as an origin would send a small image.
            let header = Array("HTTP/1.1 200 OK\r\nContent-Length: \(length - 1)\r\n\r\n".utf8)
            peer.send(header + TestImage.png(count: length))
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "origin", "\(result.outcome.kind)")
        #expect(result.outcome.sentence.contains("more bytes"))
    }

    @Test func `F35: two lengths that differ are refused`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 33\r\nContent-Length: 34\r\n\r\n")
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: ["", "nonsense\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 999999 X\r\n\r\n", "HTTP/0.9\r\n\r\n"])
    func `what does not speak HTTP is an origin that failed`(answer: String) async throws {
        let result = try await outcome { _, peer in
            peer.send(answer)
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: ["", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"])
    func `F37: a connection that is reset is an origin that failed, wherever it happens`(start: String) async throws {
        let result = try await outcome { _, peer in
            peer.send(start)
            peer.reset()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: [
        "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc", "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ])
    func `F36: an origin that hangs, wherever it does, is timed out`(start: String) async throws {
        let result = try await outcome(timeout: 300) { _, peer in
            peer.send(start)
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "timedOut" && result.outcome.sentence.contains("127.0.0.1"))
    }

    @Test func `F36: an origin that drips is timed out though something always comes`() async throws {
        let result = try await outcome(timeout: 400) { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while peer.send("x") { usleep(5_000) }
            peer.hangUp()
        }
        #expect(result.outcome.kind == "timedOut")
    }

    @Test func `F36: an origin that drips is given up long before its time is, for its speed`() async throws {
        let server = try TestOrigin([
            "/a": { _, peer in
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                while peer.send("x") { usleep(5_000) }
                peer.hangUp()
            }
        ])
        defer { server.stop() }
        try await withFetcher {
            $0.slowSeconds = 1
        } _: { fetcher in
            var origin = Origin.test()
            origin.lowestSpeed = 100_000
            let outcome = try await fetcher.fetch(server.url("/a"), of: origin)
            #expect(outcome.kind == "timedOut" && outcome.sentence.contains("too slow"), "\(outcome)")
        }
    }

    @Test func `F36: redirects share one time limit`() async throws {
        let result = try await outcome(timeout: 500) { request, peer in
            usleep(200_000)
            peer.redirect(to: "/a?\(request.target.count)")
        }
        #expect(result.outcome.kind == "timedOut")
    }

    @Test func `F36: an origin that takes no connection is timed out after the connect timeout`() async throws {
        // A listener whose queue is full answers nothing at all.
        let listener = try TestSocket.listen(address: "127.0.0.1", port: 0, backlog: 0)
        let port = try TestSocket.port(of: listener)
        let fillers = try (0..<4).map { _ in
            try TestSocket.connect(address: "127.0.0.1", port: port, isBlocking: false)
        }
        defer { for socket in fillers + [listener] { close(socket) } }
        try await withFetcher { fetcher in
            var origin = Origin.test()
            origin.connectTimeout = 300
            let outcome = try await fetcher.fetch("http://127.0.0.1:\(port)/a", of: origin)
            #expect(outcome.kind == "timedOut")
        }
    }

    @Test func `F37: a port that nobody listens on is an origin that failed, by name`() async throws {
        let port = try TestSocket.freePort()
        try await withFetcher { fetcher in
            let outcome = try await fetcher.fetch("http://127.0.0.1:\(port)/a")
            #expect(outcome.kind == "origin" && outcome.sentence.contains("127.0.0.1"))
        }
    }

    @Test(arguments: ["200 OK", "404 Not Found"])
    func `F35: what an answer has too much of is not taken for the next answer`(status: String) async throws {
        let forged = TestImage.png(count: 500, seed: 9)
        let hasSent = Gate()
        let server = try TestOrigin([
            "/evil": { _, peer in
                peer.answer(TestImage.png, status: status)
                // A whole answer more, which nobody asked for.
                peer.answer(forged)
                hasSent.open()
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            _ = try await fetcher.fetch(server.url("/evil"))
            await hasSent.opened()
            let after = try await fetcher.fetch(server.url("/good"))
            #expect(after.imageBytes == TestImage.png)
            // A connection that is as it should be is used again, now as before.
            _ = try await fetcher.fetch(server.url("/good"))
            #expect(server.connections == 2)
        }
    }
}
