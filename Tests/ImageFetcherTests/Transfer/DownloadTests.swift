import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher

@Suite struct DownloadTests {
    @Test func `a complete image of a known format is returned with the framing of a reply`() async throws {
        let body = TestImage.png(count: 20_000)
        try await withOrigin(["/a": { _, peer in peer.answer(body) }]) { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"), framing: .bulk)
            let image = try #require(outcome.image)
            #expect(image.shape == ImageShape(kind: .png, width: 17, height: 11))
            #expect(Array(image.bytes.image.readableBytesView) == body)
            #expect(Array(image.bytes.framed.readableBytesView) == Array("$20000\r\n".utf8) + body + Array("\r\n".utf8))
        }
    }

    @Test func `the header fields that caching needs are returned, with lower-case names`() async throws {
        try await withOrigin([
            "/a": { _, peer in
                peer.answer(
                    TestImage.png,
                    headers: [
                        "CACHE-CONTROL: max-age=60", "Cache-Control:  private ", "ETag: \"x\"", "Set-Cookie: a=b",
                        "Content-Type: image/png", "Age: 5", "Last-Modified: \(String(repeating: "x", count: 1025))",
                    ])
            }
        ]) { server, fetcher in
            let headers = try #require(try await fetcher.fetch(server.url("/a")).image).headers
            #expect(
                headers.fields == [
                    "cache-control": ["max-age=60", "private"], "etag": ["\"x\""], "content-type": ["image/png"],
                    "age": ["5"],
                ])
        }
    }

    @Test(arguments: [
        ("404 Not Found", "missing"), ("410 Gone", "missing"), ("401 Unauthorized", "unauthorized"),
        ("403 Forbidden", "forbidden"), ("451 Unavailable For Legal Reasons", "forbidden"),
        ("500 Internal Server Error", "origin"), ("503 Slow Down", "origin"),
        ("204 No Content", "missing"), ("206 Partial Content", "origin"),
        ("300 Choose", "origin"), ("304 Not Modified", "origin"), ("305 Use Proxy", "origin"), ("302 Found", "origin"),
    ])
    func `F37: the outcome depends on the status`(status: String, kind: String) async throws {
        try await withOrigin([
            "/a": { _, peer in
                let hasBody = !status.hasPrefix("204") && !status.hasPrefix("304")
                peer.answer(hasBody ? TestImage.png : [], status: status, headers: ["Retry-After: 7"])
            }
        ]) { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == kind)
            if let headers = outcome.missing {
                #expect(headers["retry-after"] == "7")
            } else {
                #expect(outcome.reason.contains(String(status.prefix(3))) && outcome.reason.contains("127.0.0.1"))
            }
        }
    }

    @Test func `connections are reused, also after a response without an image`() async throws {
        try await withOrigin([
            "/none": { _, peer in peer.answer(Array(repeating: 0x20, count: 10_000), status: "404 Not Found") }
        ]) { server, fetcher in
            for _ in 0..<10 {
                let present = try await fetcher.fetch(server.url("/a"))
                let absent = try await fetcher.fetch(server.url("/none"))
                #expect(present.kind == "image" && absent.kind == "missing")
            }
            #expect(server.connections == 1)
            #expect(server.requests.count == 20)
        }
    }
}

extension ReplyFraming {
    /// The framing of a bulk string.
    fileprivate static let bulk = ReplyFraming(
        writePrefix: { count, room in
            let prefix = Array("$\(count)\r\n".utf8)
            UnsafeMutableRawBufferPointer(rebasing: room.suffix(prefix.count)).copyBytes(from: prefix)
            return prefix.count
        }, suffix: Array("\r\n".utf8))
}
