import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher

/// Field values that continue on a line that begins with a space or tab (RFC 9112 section 5.2). libcurl passes each
/// line separately.
@Suite struct FoldedFieldTests {
    private func read(_ lines: [String]) -> (fields: [String: [String]]?, failure: FetchFailure?) {
        var reader = ResponseReader(host: "a.example", framing: .bare, limits: .init(image: 1_000))
        for line in ["HTTP/1.1 200 OK"] + lines + [""] {
            guard Array((line + "\r\n").utf8).withUnsafeBytes({ reader.header($0) }) else { break }
        }
        switch reader.verdict(isWhole: true) {
        case .image(_, let headers)?: return (headers.fields, nil)
        case .failed(let failure)?, .unusable(let failure, _)?: return (nil, failure)
        default: return (nil, nil)
        }
    }

    @Test(
        arguments: [
            (["Cache-Control: max-age=31536000,", " no-store"], ["cache-control": ["max-age=31536000, no-store"]]),
            (["Vary: Accept,", "\tAuthorization"], ["vary": ["Accept, Authorization"]]),
            (["Cache-Control:", "  \t no-store  ", " , private"], ["cache-control": ["no-store , private"]]),
            (["ETag: \"a\"", " ", "Age: 1"], ["etag": ["\"a\""], "age": ["1"]]),
            (["X: a", " Cache-Control: max-age=60", "Age: 1"], ["age": ["1"]]),
            (["X: a", " content-length: 5"], [:]),
            (["X: a", " Content-Encoding: gzip", "\tTransfer-Encoding: gzip"], [:]),
            (["no colon", " Expires: 0", "Age: 1"], ["age": ["1"]]),
            ([" \t ", "Age: 1"].reversed(), ["age": ["1"]]),
            (["Content-Encoding:", " identity"], [:]),
            (["Expires: 1", " " + String(repeating: "y", count: 1_024)], ["expires": ["0"]]),
        ] as [([String], [String: [String]])])
    func `F34, F64: a folded line continues its field and is not a field of its own`(
        lines: [String], fields: [String: [String]]
    ) throws {
        let (read, failure) = read(lines)
        let found = try #require(read, "\(String(describing: failure))")
        #expect(found == fields)
    }

    @Test(arguments: [
        ["Content-Encoding:", " gzip"], ["Content-Encoding: identity,", "\tgzip"], ["Content-Length:", " 0"],
        ["Content-Length: 1", " 0"], ["Transfer-Encoding:", " chunked"], ["Transfer-Encoding: chunked", " "],
        [" X: y"], ["\t"], [" "],
    ])
    func `F34, F64: a folded line that hides a coding or a length, or continues no field, is rejected`(lines: [String])
    {
        let (fields, failure) = read(lines)
        #expect(fields == nil)
        #expect(failure?.kind == .origin)
    }

    @Test func `F64: a line of spaces does not end the header, as in libcurl`() async throws {
        try await withOrigin([
            "/a": { _, peer in
                peer.send(
                    Array("HTTP/1.1 200 OK\r\nX: a\r\n \r\nCache-Control: max-age=60,\r\n no-store\r\n".utf8)
                        + Array("Content-Length: \(TestImage.png.count)\r\n\r\n".utf8) + TestImage.png)
            }
        ]) { server, fetcher in
            let outcome = await fetcher.outcome(server.url("/a"))
            #expect(outcome.imageBytes == TestImage.png, "\(outcome)")
            #expect(outcome.image?.headers["cache-control"] == "max-age=60, no-store")
        }
    }
}
