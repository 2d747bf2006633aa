import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// RFC 9110 section 13.1, RFC 9111 section 4.3.1.
@Suite struct ConditionalRequestTests {
    private static let june = "Mon, 01 Jun 2026 00:00:00 GMT"

    @Test(arguments: ["\"abc\"", "W/\"abc\"", "abc", "w/\"a\\b\"", "\"a, \\\"b\""])
    func `validators are sent as they came, and a 304 ends the download without a byte of body`(etag: String)
        async throws
    {
        let server = try TestOrigin([
            "/a": { request, peer in
                peer.answer([], status: "304 Not Modified", headers: ["ETag: \(etag)", "Cache-Control: max-age=5"])
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let condition = DownloadCondition(url: server.url("/a"), etag: etag, lastModified: Self.june)
            let outcome = try await fetcher.fetch(server.url("/a"), condition: condition)
            #expect(outcome.notModified?.fields["etag"] == [etag])
            #expect(outcome.notModified?["cache-control"] == "max-age=5")
            let request = try #require(server.requests.first)
            #expect(request.headers["if-none-match"] == etag)
            #expect(request.headers["if-modified-since"] == Self.june)
            #expect(fetcher.statistics[.notModified] == 1)
            #expect(fetcher.statistics[.bytes] == 0)
        }
    }

    @Test func `only what there is is sent, and without a condition nothing`() async throws {
        let server = try TestOrigin(["/a": { _, peer in peer.answer(TestImage.png) }])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let url = server.url("/a")
            for condition in [
                nil, DownloadCondition(url: url, etag: "\"x\"", lastModified: nil),
                DownloadCondition(url: url, etag: nil, lastModified: Self.june),
            ] {
                let outcome = try await fetcher.fetch(url, condition: condition)
                #expect(outcome.kind == "image")
                let headers = try #require(server.requests.last).headers
                #expect(headers["if-none-match"] == condition?.etag)
                #expect(headers["if-modified-since"] == condition?.lastModified)
            }
        }
    }

    @Test func `a 304 to a request without a condition is an origin that failed`() async throws {
        let server = try TestOrigin(["/a": { _, peer in peer.answer([], status: "304 Not Modified") }])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let unasked = try await fetcher.fetch(server.url("/a"))
            #expect(unasked.kind == "origin" && unasked.sentence.contains("without a condition"))
            let elsewhere = DownloadCondition(url: server.url("/b"), etag: "\"x\"", lastModified: nil)
            let outcome = try await fetcher.fetch(server.url("/a"), condition: elsewhere)
            #expect(outcome.kind == "origin")
        }
    }

    @Test func `behind redirects the condition goes to the URL that gave the validators, and to no other`() async throws
    {
        let server = try TestOrigin([
            "/a": { _, peer in
                peer.answer(
                    [], status: "302 Found", headers: ["Location: /v1", "Cache-Control: no-cache", "Expires: 0"])
            },
            "/v1": { request, peer in
                if request.headers["if-none-match"] == nil {
                    peer.answer(TestImage.png, headers: ["ETag: \"1\""])
                } else {
                    peer.answer([], status: "304 Not Modified")
                }
            },
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let image = try #require(try await fetcher.fetch(server.url("/a")).image)
            #expect(image.redirectedTo == server.url("/v1"))
            let said = [ResponseHeaders(["cache-control": ["no-cache"], "expires": ["0"]])]
            #expect(image.headers.redirects == said)

            let condition = DownloadCondition(url: server.url("/v1"), etag: "\"1\"", lastModified: nil)
            let again = try await fetcher.fetch(server.url("/a"), condition: condition)
            #expect(again.notModified?.redirects == said)
            #expect(server.requests.map { $0.headers["if-none-match"] } == [nil, nil, nil, "\"1\""])

            // It leads elsewhere now: that request is for whatever is there.
            let moved = DownloadCondition(url: server.url("/v0"), etag: "\"1\"", lastModified: nil)
            let outcome = try await fetcher.fetch(server.url("/a"), condition: moved)
            #expect(outcome.kind == "image")
            let direct = try await fetcher.fetch(server.url("/v1"))
            #expect(direct.image?.redirectedTo == nil)
        }
    }
}
