import CacheCore
import CacheFakes
import Glibc
import NIOCore
import Testing

@testable import HelperProtocol
@testable import ImageFetcher

/// Origins that are broken or malicious.
@Suite struct BadResponseTests {
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
    func `F38: a response with a wrong Content-Type is BADIMAGE`(body: String) async throws {
        let result = try await outcome { _, peer in
            peer.answer(Array(body.utf8), headers: ["Content-Type: image/png"])
        }
        #expect(result.outcome.kind == "badImage")
        #expect(result.outcome.reason.contains("127.0.0.1"))
    }

    @Test func `F38: an image with huge dimensions is rejected`() async throws {
        var huge = TestImage.png
        huge[17] = 1
        let result = try await outcome { [huge] _, peer in peer.answer(huge) }
        #expect(result.outcome.kind == "badImage" && result.outcome.reason.contains("8192"))
    }

    @Test(arguments: [
        "gzip", "br", "deflate", "zstd", "x-gzip", "compress", "gzip, identity", "identity,GZIP", "gzip;q=1",
    ])
    func `F34: a compressed response is rejected without decoding`(coding: String) async throws {
        let result = try await outcome { request, peer in
            #expect(request.headers["accept-encoding"] == "identity")
            peer.answer(TestImage.png(count: 100_000), headers: ["Content-Encoding: \(coding)"])
        }
        #expect(result.outcome.kind == "origin" && result.outcome.isDefinite)
        #expect(result.outcome.reason.contains("coding"))
    }

    @Test(arguments: [
        "none", "UTF-8", "undefined", "null", "binary", "aws-chunked", "image/png", "identity, identity", "identity",
        "x", "",
    ])
    func `a Content-Encoding without a known coding is ignored`(coding: String) async throws {
        let result = try await outcome { _, peer in
            peer.answer(TestImage.png, headers: ["Content-Encoding: \(coding)"])
        }
        #expect(result.outcome.imageBytes == TestImage.png, "\(result.outcome)")
    }

    @Test(arguments: ["gzip", "none"])
    func `F34: compressed bytes without Content-Encoding are BADIMAGE`(coding: String) async throws {
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
    func `definite responses without a usable image are distinguished from temporary ones`(
        status: String, body: String, isDefinite: Bool
    ) async throws {
        let result = try await outcome { _, peer in
            peer.answer(Array(body.utf8), status: status, headers: ["Cache-Control: max-age=7"])
        }
        #expect(result.outcome.failure != nil && result.outcome.isDefinite == isDefinite, "\(result.outcome)")
        if case .unusable(_, let headers) = result.outcome { #expect(headers["cache-control"] == "max-age=7") }
    }

    @Test func `an incomplete response is not definite`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n")
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && !result.outcome.isDefinite)
    }

    @Test func `an image that is too large is a definite response with all header fields`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\nCache-Control: max-age=7\r\n\r\n")
            peer.waitForEnd()
        }
        guard case .unusable(let failure, let headers) = result.outcome, failure.kind == .tooLarge else {
            Issue.record("\(result.outcome)")
            return
        }
        #expect(headers["cache-control"] == "max-age=7")
    }

    @Test func `a 201 with an image is accepted, and a 204 means that there is no image`() async throws {
        let created = try await outcome { _, peer in peer.answer(TestImage.png, status: "201 Created") }
        #expect(created.outcome.imageBytes == TestImage.png)
        let none = try await outcome { _, peer in
            peer.send("HTTP/1.1 204 No Content\r\nCache-Control: max-age=7\r\n\r\n")
        }
        #expect(none.outcome.missing?["cache-control"] == "max-age=7")
    }

    @Test func `the configured User-Agent is sent`() async throws {
        try await withOrigin { server, fetcher in
            var origin = Origin.test()
            origin.userAgent = "thumbcached (avatars@example.org)"
            _ = try await fetcher.fetch(server.url("/a"), of: origin)
            _ = try await fetcher.fetch(server.url("/a"))
            #expect(
                server.requests.map { $0.headers["user-agent"] } == [
                    "thumbcached (avatars@example.org)", "thumbcached/tests",
                ])
        }
    }

    @Test func `F34: a compressed transfer coding is rejected`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n")
            peer.send("15\r\n\u{1f}\u{8b}garbage........\r\n")
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.reason.contains("transfer coding"))
    }

    @Test func `F35: an announced length over the limit is rejected before the body`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n")
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "tooLarge" && result.bytes == 0)
    }

    @Test func `F35: endless chunks are aborted at the limit`() async throws {
        let chunk = "8000\r\n" + String(repeating: "x", count: 0x8000) + "\r\n"
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while peer.send(chunk) {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "tooLarge")
        #expect(result.bytes > 1 << 20 && result.bytes <= (1 << 20) + 0x8000)
    }

    @Test func `F35: a body without length or chunks is aborted at the limit`() async throws {
        let piece = [UInt8](repeating: 7, count: 0x8000)
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\n\r\n")
            while peer.send(piece) {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "tooLarge")
    }

    @Test func `F35: an image of exactly the limit is accepted`() async throws {
        let body = TestImage.png(count: 1 << 20)
        let result = try await outcome { _, peer in peer.answer(body) }
        #expect(result.outcome.imageBytes == body)
    }

    @Test(arguments: ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 404 Not Found\r\n", "HTTP/1.1 103 Early Hints\r\n"])
    func `F35: endless headers are aborted`(start: String) async throws {
        let result = try await outcome { _, peer in
            peer.send(start)
            while peer.send("X-Filler: \(String(repeating: "y", count: 1000))\r\n") {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.reason.contains("header"))
    }

    @Test func `F35: endless interim responses are aborted`() async throws {
        let result = try await outcome { _, peer in
            while peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.reason.contains("header"))
    }

    @Test func `F35: an endless header line is aborted`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nX-Filler: ")
            while peer.send(String(repeating: "y", count: 1000)) {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test func `F35: endless trailers are aborted`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
            while peer.send("X-Filler: \(String(repeating: "y", count: 1000))\r\n") {}
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: [1, 1000, 16_000, 100_000])
    func `F35: a body shorter than announced is ORIGIN`(missing: Int) async throws {
        let result = try await outcome { _, peer in
            let body = TestImage.png(count: 100_033 - missing)
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100033\r\n\r\n")
            peer.send(body)
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin" && result.outcome.reason.contains("127.0.0.1"))
    }

    @Test(arguments: [100, 5000, 15_000])
    func `F35: a body longer than announced is ORIGIN`(length: Int) async throws {
        let result = try await outcome { _, peer in
            // In one write, as an origin would send a small image.
            let header = Array("HTTP/1.1 200 OK\r\nContent-Length: \(length - 1)\r\n\r\n".utf8)
            peer.send(header + TestImage.png(count: length))
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "origin", "\(result.outcome.kind)")
        #expect(result.outcome.reason.contains("more bytes"))
    }

    @Test func `F35: two different lengths are rejected`() async throws {
        let result = try await outcome { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 33\r\nContent-Length: 34\r\n\r\n")
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: ["", "nonsense\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "HTTP/1.1 999999 X\r\n\r\n", "HTTP/0.9\r\n\r\n"])
    func `a response that is not HTTP is ORIGIN`(answer: String) async throws {
        let result = try await outcome { _, peer in
            peer.send(answer)
            peer.hangUp()
        }
        #expect(result.outcome.kind == "origin")
    }

    @Test(arguments: ["", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc"])
    func `F37: a reset connection is ORIGIN, at any point`(start: String) async throws {
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
    func `F36: an origin that hangs at any point is TIMEOUT`(start: String) async throws {
        let result = try await outcome(timeout: 300) { _, peer in
            peer.send(start)
            peer.waitForEnd()
        }
        #expect(result.outcome.kind == "timedOut" && result.outcome.reason.contains("127.0.0.1"))
    }

    @Test func `F36: an origin that sends byte by byte is TIMEOUT`() async throws {
        let result = try await outcome(timeout: 400) { _, peer in
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while peer.send("x") { usleep(5_000) }
            peer.hangUp()
        }
        #expect(result.outcome.kind == "timedOut")
    }

    @Test func `F36: an origin below the lowest speed is aborted before the timeout`() async throws {
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
            #expect(outcome.kind == "timedOut" && outcome.reason.contains("too slow"), "\(outcome)")
        }
    }

    @Test func `F36: redirects share one timeout`() async throws {
        let result = try await outcome(timeout: 500) { request, peer in
            usleep(200_000)
            peer.redirect(to: "/a?\(request.target.count)")
        }
        #expect(result.outcome.kind == "timedOut")
    }

    @Test func `F36: an origin that accepts no connection is TIMEOUT after the connect timeout`() async throws {
        // A listener with a full backlog does not respond.
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

    @Test func `F37: a closed port is ORIGIN, and the error names the host`() async throws {
        let port = try TestSocket.freePort()
        try await withFetcher { fetcher in
            let outcome = try await fetcher.fetch("http://127.0.0.1:\(port)/a")
            #expect(outcome.kind == "origin" && outcome.reason.contains("127.0.0.1"))
        }
    }

    @Test(arguments: ["200 OK", "404 Not Found"])
    func `F35: excess bytes of a response are not taken for the next response`(status: String) async throws {
        let forged = TestImage.png(count: 500, seed: 9)
        let hasSent = Gate()
        try await withOrigin([
            "/evil": { _, peer in
                peer.answer(TestImage.png, status: status)
                // An additional response that was not requested.
                peer.answer(forged)
                hasSent.open()
            }
        ]) { server, fetcher in
            _ = try await fetcher.fetch(server.url("/evil"))
            await hasSent.opened()
            let after = try await fetcher.fetch(server.url("/good"))
            #expect(after.imageBytes == TestImage.png)
            // A connection without excess bytes is still reused.
            _ = try await fetcher.fetch(server.url("/good"))
            #expect(server.connections == 2)
        }
    }
}
