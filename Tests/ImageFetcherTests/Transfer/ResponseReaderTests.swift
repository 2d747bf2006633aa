import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher

@Suite struct ResponseReaderTests {
    private func reader(_ lines: [String], image: Int = 1000) -> (reader: ResponseReader, continues: Bool) {
        var reader = ResponseReader(host: "a.example", framing: .bare, limits: .init(image: image))
        var continues = true
        for line in lines where continues { continues = feed(&reader, line + "\r\n") }
        return (reader, continues)
    }

    private func feed(_ reader: inout ResponseReader, _ text: String) -> Bool {
        Array(text.utf8).withUnsafeBytes { reader.header($0) }
    }

    private func feed(_ reader: inout ResponseReader, body count: Int) -> Bool {
        [UInt8](repeating: 7, count: count).withUnsafeBytes { reader.body($0) }
    }

    private func failure(_ reader: inout ResponseReader, isWhole: Bool = true) -> FetchFailure? {
        switch reader.verdict(isWhole: isWhole) {
        case .failed(let failure)?, .unusable(let failure, _)?: failure
        default: nil
        }
    }

    @Test func `the body between header and end is the image`() throws {
        var (reader, continues) = reader(["HTTP/1.1 200 OK", "Content-Length: 10", "ETag: \"a\"", ""])
        #expect(continues && feed(&reader, body: 4) && feed(&reader, body: 6))
        guard case .image(let image, let headers)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(image.count == 10 && headers.fields == ["etag": ["\"a\""]])
    }

    @Test(arguments: [(9, "sent 9"), (0, "sent 0"), (11, "more bytes")])
    func `F35: a body of another length than announced is rejected`(count: Int, reason: String) throws {
        var (reader, _) = reader(["HTTP/2 200", "content-length: 10", ""])
        _ = feed(&reader, body: count)
        let failure = try #require(self.failure(&reader))
        #expect(failure.kind == .origin && failure.reason.contains(reason))
    }

    @Test func `F35: excess bytes are detected before libcurl discards them`() {
        var (reader, _) = reader(["HTTP/1.1 200 OK", "Content-Length: 10", ""])
        reader.rawBody(11)
        #expect(feed(&reader, body: 10))
        #expect(failure(&reader) != nil)
    }

    @Test func `F35: a length over the limit is rejected before the body`() {
        var (reader, continues) = reader(["HTTP/1.1 200 OK", "Content-Length: 1001", ""])
        #expect(!continues)
        #expect(failure(&reader, isWhole: false)?.kind == .tooLarge)
    }

    @Test func `F35: a body without a length, or with a wrong one, is aborted at the limit`() {
        for lines in [["Transfer-Encoding: chunked"], [], ["Content-Length: 5", "Transfer-Encoding: chunked"]] {
            var (reader, continues) = reader(["HTTP/1.1 200 OK"] + lines + [""])
            #expect(continues && feed(&reader, body: 1000) && !feed(&reader, body: 1))
            #expect(failure(&reader, isWhole: false)?.kind == .tooLarge, "\(lines)")
        }
    }

    @Test func `F35: endless headers are aborted, also in interim responses and trailers`() throws {
        let field = "X: " + String(repeating: "y", count: 1000)
        for start in [
            ["HTTP/1.1 200 OK"], ["HTTP/1.1 103 Early Hints"], ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", ""],
            ["HTTP/1.1 404 Not Found"],
        ] {
            var (reader, continues) = reader(start + Array(repeating: field, count: 64))
            #expect(continues)
            continues = feed(&reader, field + "\r\n") && feed(&reader, field + "\r\n")
            #expect(!continues)
            let failure = try #require(self.failure(&reader, isWhole: false))
            #expect(failure.kind == .origin && failure.reason.contains("header"))
        }
    }

    @Test func `an unneeded body is read up to a limit, and the status applies`() {
        var (reader, _) = reader(["HTTP/1.1 404 Not Found", ""])
        #expect(feed(&reader, body: 64 << 10) && !feed(&reader, body: 1))
        guard case .missing? = reader.verdict(isWhole: false) else {
            Issue.record("the verdict is not missing")
            return
        }
    }

    @Test func `a response that libcurl aborts has no verdict, whatever its status`() {
        for status in ["200 OK", "404 Not Found", "302 Found", "503 No"] {
            var (reader, _) = reader(["HTTP/1.1 \(status)", "Content-Length: 10", "Location: /b", ""])
            #expect(feed(&reader, body: 10))
            #expect(reader.verdict(isWhole: false) == nil)
        }
    }

    @Test func `fields of interim responses and trailers are ignored`() {
        var (reader, _) = reader([
            "HTTP/1.1 103 Early Hints", "ETag: \"early\"", "Content-Length: 5", "",
            "HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "ETag: \"right\"", "",
        ])
        #expect(feed(&reader, body: 7))
        #expect(
            feed(&reader, "ETag: \"late\"\r\n") && feed(&reader, "Content-Encoding: gzip\r\n") && feed(&reader, "\r\n"))
        guard case .image(let image, let headers)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(image.count == 7 && headers["etag"] == "\"right\"")
    }

    @Test(arguments: [
        ["Content-Encoding: gzip"], ["content-encoding: identity, br"], ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: gzip"], ["Content-Length: ten"], ["Content-Length: -1"],
        ["Content-Length: 1", "Content-Length: 2"],
        ["Content-Length: 99999999999999999999"],
    ])
    func `F34, F35: unsupported codings and invalid lengths are rejected`(fields: [String]) {
        var (reader, continues) = reader(["HTTP/1.1 200 OK"] + fields + [""])
        #expect(!continues)
        #expect(failure(&reader, isWhole: false)?.kind == .origin)
    }

    @Test func `values that are too long, too many or not plain text are dropped`() {
        var (reader, _) = reader(
            [
                "HTTP/1.1 200 OK", "ETag: " + String(repeating: "e", count: 1024),
                "Date: " + String(repeating: "d", count: 1025),
                "Expires: \u{e4}", "Pragma: a\u{1}b", "no colon", "X-Other: 1", "Age : 1", " folded: 2",
            ] + (0..<20).map { "Vary: \($0)" } + ["Content-Length: 0", ""])
        guard case .image(_, let headers)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        // Unreadable or dropped values of Expires and Vary are replaced by the most restrictive ones.
        #expect(Set(headers.fields.keys) == ["etag", "expires", "vary"])
        #expect(headers["expires"] == "0")
        #expect(headers.fields["vary"]?.count == 16)
        #expect(headers.fields["vary"]?.last == "*")
    }

    @Test(arguments: [
        "Cache-Control: max-age=60, x=" + String(repeating: "y", count: 1024), "Cache-Control: max-age=60, x=\u{e4}",
        "Cache-Control: max-age=60, x=\"a\u{1}b\"",
    ])
    func `RFC 9111 section 5.2: an unreadable Cache-Control forbids storing`(field: String) {
        var (reader, _) = reader(["HTTP/1.1 200 OK", field, "Content-Length: 0", ""])
        guard case .image(_, let headers)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(headers["cache-control"] == "no-store")
    }

    @Test func `RFC 9110 section 15.3.4: the body of a 203 is the image`() {
        var (reader, continues) = reader(["HTTP/1.1 203 Non-Authoritative Information", "Content-Length: 10", ""])
        #expect(continues && feed(&reader, body: 10))
        guard case .image(let image, _)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(image.count == 10)
    }

    @Test(arguments: ["206 Partial Content", "299 Whatever", "300 Multiple Choices", "599 Whatever"])
    func `RFC 9111 section 3: responses with other statuses are failures`(status: String) {
        var (reader, _) = reader(["HTTP/1.1 \(status)", "Cache-Control: max-age=60", "Content-Length: 10", ""])
        _ = feed(&reader, body: 10)
        #expect(failure(&reader) == .origin("HTTP status \(status.prefix(3)) from a.example"))
    }

    @Test func `a 304 is accepted only in response to a condition, whatever its Content-Length`() {
        for isConditional in [true, false] {
            var reader = ResponseReader(
                host: "a.example", isConditional: isConditional, framing: .bare, limits: .init(image: 1000))
            for line in ["HTTP/1.1 304 Not Modified", "ETag: W/\"a\"", "Content-Length: 8000", ""] {
                #expect(feed(&reader, line + "\r\n"))
            }
            switch reader.verdict(isWhole: true) {
            case .notModified(let headers)? where isConditional: #expect(headers["etag"] == "W/\"a\"")
            case .failed(let failure)? where !isConditional:
                #expect(failure.kind == .origin && failure.reason.contains("without a condition"))
            default: Issue.record("neither a 304 nor a failure")
            }
        }
    }
}
