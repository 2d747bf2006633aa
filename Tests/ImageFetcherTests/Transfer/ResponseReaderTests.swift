import CacheCore
import NIOCore
import Testing

@testable import ImageFetcher

@Suite struct ResponseReaderTests {
    private func reader(_ lines: [String], image: Int = 1000) -> (reader: ResponseReader, goesOn: Bool) {
        var reader = ResponseReader(host: "a.example", framing: .bare, limits: .init(image: image))
        var goesOn = true
        for line in lines where goesOn { goesOn = feed(&reader, line + "\r\n") }
        return (reader, goesOn)
    }

    private func feed(_ reader: inout ResponseReader, _ text: String) -> Bool {
        Array(text.utf8).withUnsafeBytes { reader.header($0) }
    }

    private func feed(_ reader: inout ResponseReader, body count: Int) -> Bool {
        [UInt8](repeating: 7, count: count).withUnsafeBytes { reader.body($0) }
    }

    private func failure(_ reader: inout ResponseReader, isWhole: Bool = true) -> CacheFailure? {
        switch reader.verdict(isWhole: isWhole) {
        case .failed(let failure)?, .unusable(let failure, _)?: failure
        default: nil
        }
    }

    @Test func `an image is what came between header and end`() throws {
        var (reader, goesOn) = reader(["HTTP/1.1 200 OK", "Content-Length: 10", "ETag: \"a\"", ""])
        #expect(goesOn && feed(&reader, body: 4) && feed(&reader, body: 6))
        guard case .image(let image, let headers)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(image.count == 10 && headers.fields == ["etag": ["\"a\""]])
    }

    @Test(arguments: [(9, "sent 9"), (0, "sent 0"), (11, "more bytes")])
    func `F35: a body that is not as long as announced is no image`(count: Int, sentence: String) {
        var (reader, _) = reader(["HTTP/2 200", "content-length: 10", ""])
        _ = feed(&reader, body: count)
        guard case .origin(let text)? = failure(&reader) else {
            Issue.record("no failure")
            return
        }
        #expect(text.contains(sentence))
    }

    @Test func `F35: bytes beyond the length announced are noticed before libcurl cuts them off`() {
        var (reader, _) = reader(["HTTP/1.1 200 OK", "Content-Length: 10", ""])
        reader.bodyAsItCame(11)
        #expect(feed(&reader, body: 10))
        #expect(failure(&reader) != nil)
    }

    @Test func `F35: a length over the limit is refused before a byte of body comes`() {
        var (reader, goesOn) = reader(["HTTP/1.1 200 OK", "Content-Length: 1001", ""])
        #expect(!goesOn)
        guard case .tooLarge? = failure(&reader, isWhole: false) else {
            Issue.record("not too large")
            return
        }
    }

    @Test func `F35: what has no length, or lies about it, is stopped at the limit`() {
        for lines in [["Transfer-Encoding: chunked"], [], ["Content-Length: 5", "Transfer-Encoding: chunked"]] {
            var (reader, goesOn) = reader(["HTTP/1.1 200 OK"] + lines + [""])
            #expect(goesOn && feed(&reader, body: 1000) && !feed(&reader, body: 1))
            guard case .tooLarge? = failure(&reader, isWhole: false) else {
                Issue.record("not too large: \(lines)")
                continue
            }
        }
    }

    @Test func `F35: headers without end are stopped, in interim answers and trailers too`() {
        let field = "X: " + String(repeating: "y", count: 1000)
        for start in [
            ["HTTP/1.1 200 OK"], ["HTTP/1.1 103 Early Hints"], ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", ""],
            ["HTTP/1.1 404 Not Found"],
        ] {
            var (reader, goesOn) = reader(start + Array(repeating: field, count: 64))
            #expect(goesOn)
            goesOn = feed(&reader, field + "\r\n") && feed(&reader, field + "\r\n")
            #expect(!goesOn)
            guard case .origin(let text)? = failure(&reader, isWhole: false) else {
                Issue.record("not refused: \(start)")
                continue
            }
            #expect(text.contains("header"))
        }
    }

    @Test func `a body that nobody wants is read only so far, and the status stands`() {
        var (reader, _) = reader(["HTTP/1.1 404 Not Found", ""])
        #expect(feed(&reader, body: 64 << 10) && !feed(&reader, body: 1))
        guard case .missing? = reader.verdict(isWhole: false) else {
            Issue.record("not missing")
            return
        }
    }

    @Test func `an answer that libcurl breaks off is nothing, whatever its status`() {
        for status in ["200 OK", "404 Not Found", "302 Found", "503 No"] {
            var (reader, _) = reader(["HTTP/1.1 \(status)", "Content-Length: 10", "Location: /b", ""])
            #expect(feed(&reader, body: 10))
            #expect(reader.verdict(isWhole: false) == nil)
        }
    }

    @Test func `interim answers say nothing about the final one, and trailers nothing at all`() {
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
    func `F34, F35: codings not asked for and lengths that are none are refused`(fields: [String]) {
        var (reader, goesOn) = reader(["HTTP/1.1 200 OK"] + fields + [""])
        #expect(!goesOn)
        guard case .origin? = failure(&reader, isWhole: false) else {
            Issue.record("not refused")
            return
        }
    }

    @Test func `values that are long, many, or not plain text are dropped`() {
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
        // Expires cannot be read, and of Vary there is more than is kept: the worst that they could say is believed.
        #expect(Set(headers.fields.keys) == ["etag", "expires", "vary"])
        #expect(headers["expires"] == "0")
        #expect(headers.fields["vary"]?.count == 16)
        #expect(headers.fields["vary"]?.last == "*")
    }

    @Test(arguments: [
        "Cache-Control: max-age=60, x=" + String(repeating: "y", count: 1024), "Cache-Control: max-age=60, x=\u{e4}",
        "Cache-Control: max-age=60, x=\"a\u{1}b\"",
    ])
    func `RFC 9111 section 5.2: Cache-Control that cannot be read forbids to store`(field: String) {
        var (reader, _) = reader(["HTTP/1.1 200 OK", field, "Content-Length: 0", ""])
        guard case .image(_, let headers)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(headers["cache-control"] == "no-store")
    }

    @Test func `RFC 9110 section 15.3.4: the body of a 203 is the image`() {
        var (reader, goesOn) = reader(["HTTP/1.1 203 Non-Authoritative Information", "Content-Length: 10", ""])
        #expect(goesOn && feed(&reader, body: 10))
        guard case .image(let image, _)? = reader.verdict(isWhole: true) else {
            Issue.record("no image")
            return
        }
        #expect(image.count == 10)
    }

    @Test(arguments: ["206 Partial Content", "299 Whatever", "300 Multiple Choices", "599 Whatever"])
    func `RFC 9111 section 3: no other status is an answer that can be kept`(status: String) {
        var (reader, _) = reader(["HTTP/1.1 \(status)", "Cache-Control: max-age=60", "Content-Length: 10", ""])
        _ = feed(&reader, body: 10)
        #expect(failure(&reader) == .origin("HTTP status \(status.prefix(3)) from a.example"))
    }

    @Test func `a 304 confirms what was asked about, whatever length it names, and nothing that was not asked about`() {
        for isConditional in [true, false] {
            var reader = ResponseReader(
                host: "a.example", isConditional: isConditional, framing: .bare, limits: .init(image: 1000))
            for line in ["HTTP/1.1 304 Not Modified", "ETag: W/\"a\"", "Content-Length: 8000", ""] {
                #expect(feed(&reader, line + "\r\n"))
            }
            switch reader.verdict(isWhole: true) {
            case .notModified(let headers)? where isConditional: #expect(headers["etag"] == "W/\"a\"")
            case .failed(.origin(let sentence))? where !isConditional: #expect(sentence.contains("without a condition"))
            default: Issue.record("neither")
            }
        }
    }
}
