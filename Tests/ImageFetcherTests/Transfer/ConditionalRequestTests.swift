import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// RFC 9110 section 13.1, RFC 9111 section 4.3.1.
@Suite struct ConditionalRequestTests {
    private static let june = "Mon, 01 Jun 2026 00:00:00 GMT"

    @Test(arguments: ["\"abc\"", "W/\"abc\"", "abc", "w/\"a\\b\"", "\"a, \\\"b\""])
    func `validators are sent unchanged, and a 304 ends the download without a body`(etag: String)
        async throws
    {
        try await withOrigin([
            "/a": { request, peer in
                peer.answer([], status: "304 Not Modified", headers: ["ETag: \(etag)", "Cache-Control: max-age=5"])
            }
        ]) { server, fetcher in
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

    @Test func `only existing validators are sent`() async throws {
        try await withOrigin(["/a": { _, peer in peer.answer(TestImage.png) }]) { server, fetcher in
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

    @Test func `a 304 to a request without a condition is ORIGIN`() async throws {
        try await withOrigin(["/a": { _, peer in peer.answer([], status: "304 Not Modified") }]) { server, fetcher in
            let unconditional = try await fetcher.fetch(server.url("/a"))
            #expect(unconditional.kind == "origin" && unconditional.reason.contains("without a condition"))
            let elsewhere = DownloadCondition(url: server.url("/b"), etag: "\"x\"", lastModified: nil)
            let outcome = try await fetcher.fetch(server.url("/a"), condition: elsewhere)
            #expect(outcome.kind == "origin")
        }
    }

    @Test func `after redirects the condition is sent only to the URL that the validators are from`() async throws {
        try await withOrigin([
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
        ]) { server, fetcher in
            let image = try #require(try await fetcher.fetch(server.url("/a")).image)
            #expect(image.redirectedTo == server.url("/v1"))
            let redirectHeaders = [ResponseHeaders(["cache-control": ["no-cache"], "expires": ["0"]])]
            #expect(image.headers.redirects == redirectHeaders)

            let condition = DownloadCondition(url: server.url("/v1"), etag: "\"1\"", lastModified: nil)
            let again = try await fetcher.fetch(server.url("/a"), condition: condition)
            #expect(again.notModified?.redirects == redirectHeaders)
            #expect(server.requests.map { $0.headers["if-none-match"] } == [nil, nil, nil, "\"1\""])

            // The URL now redirects elsewhere, so the request for the new target is unconditional.
            let moved = DownloadCondition(url: server.url("/v0"), etag: "\"1\"", lastModified: nil)
            let outcome = try await fetcher.fetch(server.url("/a"), condition: moved)
            #expect(outcome.kind == "image")
            let direct = try await fetcher.fetch(server.url("/v1"))
            #expect(direct.image?.redirectedTo == nil)
        }
    }
}
