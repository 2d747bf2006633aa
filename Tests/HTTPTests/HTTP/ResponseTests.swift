import NIOCore
import NIOHTTP1
import Testing

@testable import thumbcached_http

@Suite struct ResponseTests {
    /// The header fields of a response in their order, each as a line.
    private func lines(_ response: Response, closes: Bool = false) -> [String] {
        response.head(closes: closes, at: 784_111_777).headers.map { "\($0.name): \($0.value)" }
    }

    @Test func `a response with a body has these header fields`() {
        #expect(
            lines(Response(.notFound, "no image")) == [
                "Date: Sun, 06 Nov 1994 08:49:37 GMT",
                "Content-Type: text/plain; charset=utf-8",
                "Content-Length: 9",
                "Cache-Control: no-store",
                "X-Content-Type-Options: nosniff",
                "Cross-Origin-Resource-Policy: same-origin",
                "Referrer-Policy: no-referrer",
                "Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                "Connection: keep-alive",
            ])
    }

    @Test func `own fields come after the common ones and may replace the content security policy`() {
        var response = Response(.notModified)
        response.cacheControl = "private, max-age=60"
        response.embedding = .crossOrigin
        response.fields = [("ETag", "\"1\""), ("Content-Security-Policy", "sandbox")]
        #expect(
            lines(response, closes: true) == [
                "Date: Sun, 06 Nov 1994 08:49:37 GMT",
                "Content-Length: 0",
                "Cache-Control: private, max-age=60",
                "X-Content-Type-Options: nosniff",
                "Cross-Origin-Resource-Policy: cross-origin",
                "Referrer-Policy: no-referrer",
                "ETag: \"1\"",
                "Content-Security-Policy: sandbox",
                "Connection: close",
            ])
    }
}
