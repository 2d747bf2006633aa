import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher

/// Fields whose value goes on in a line that begins with a blank (RFC 9112 section 5.2), of which libcurl hands over
/// line by line.
@Suite struct FoldedFieldTests {
    private func read(_ lines: [String]) -> (fields: [String: [String]]?, failure: CacheFailure?) {
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
    func `F34, F64: a folded line goes on with its field, and is none of its own`(
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
    func `F34, F64: one that hides a coding or a length, or goes on with nothing, is refused`(lines: [String]) {
        let (fields, failure) = read(lines)
        #expect(fields == nil)
        guard case .origin? = failure else {
            Issue.record("not refused: \(String(describing: failure))")
            return
        }
    }

    @Test func `F64: a line of blanks does not end the header, as it does not for libcurl`() async throws {
        let server = try TestOrigin([
            "/a": { _, peer in
                peer.send(
                    Array("HTTP/1.1 200 OK\r\nX: a\r\n \r\nCache-Control: max-age=60,\r\n no-store\r\n".utf8)
                        + Array("Content-Length: \(TestImage.png.count)\r\n\r\n".utf8) + TestImage.png)
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let outcome = await fetcher.outcome(server.url("/a"))
            #expect(outcome.imageBytes == TestImage.png, "\(outcome)")
            #expect(outcome.image?.headers["cache-control"] == "max-age=60, no-store")
        }
    }
}
