import CacheCore
import LinuxSupport
import NIOCore
import Testing

@testable import HelperProtocol

/// What the daemon and a fetcher say to each other.
@Suite struct MessageTests {
    private static var requests: [FetcherRequest] {
        var settings = FetcherSettings(version: "1.2", logLevel: "debug")
        (settings.origins, settings.authorities, settings.queuePerUID) = (["a"], ["/x.pem"], 9)
        var origin = Origin(name: "a", url: "https://a.test/{profile}")
        origin.allow = ["https://b.test/"]
        origin.tokenEndpoint = TokenEndpoint(url: "https://t.test/", clientID: "c", clientSecret: Secret("s".utf8))
        (origin.caFile, origin.proxy, origin.lowestSpeed) = ("/x.pem", "http://p:1", 7)
        origin.userAgent = "thumbcached (a@b.test)"
        (origin.breaker.failures, origin.breaker.retryAfterMax) = (2, 3)
        (origin.defaultSize, origin.allowPrivateAddresses, origin.staleIfError) = (64, true, 5)
        origin.then = [Upstream(url: "https://c.test/{profile}"), Upstream(url: "https://d.test/{profile}")]
        (origin.showsToken, origin.then[0].showsToken, origin.then[1].allowPrivateAddresses) = (false, true, true)
        let target = DownloadTarget(url: "https://b.test/x", isNamedByClient: true)
        let condition = DownloadCondition(url: "https://b.test/y", etag: nil, lastModified: "yesterday")
        let download = Download(
            uid: 7, origin: origin, target: target, token: Secret("t".utf8), timeout: 11,
            condition: condition, framing: .bare)
        let federated = Download(
            uid: 7, origin: origin,
            target: DownloadTarget(url: "https://c.test/z", isNamedByClient: false, federatedDomain: "e.test"),
            token: nil, framing: .bare)
        let token = TokenRequest(
            uid: 7, origin: origin, endpoint: TokenEndpoint(url: "https://t.test/", clientID: "c"),
            refreshToken: Secret("r".utf8))
        return [
            .settings(settings), .origin(origin), .download(1, DownloadRequest(download)),
            .download(5, DownloadRequest(federated)), .token(2, TokenRefresh(token)), .cancel(3), .isAlive(4),
            .statistics(.max),
        ]
    }

    private static var reports: [FetcherReport] {
        let headers = ResponseHeaders(["etag": ["x"]], delay: 2, redirects: [ResponseHeaders(["a": []])])
        var figures = FetcherStatistics()
        (figures.inFlight, figures.queued, figures.hostsOpen, figures.uidsOpen) = (1, 2, 3, 4)
        figures.origins["a"] = .init()
        figures.origins["a"]?.counts[.bytes] = 5
        figures.origins["a"]?.longestRetryIn = 6
        let failures: [CacheFailure] = [
            .denied("a"), .timedOut("b"), .origin("c"), .forbidden("d"), .unauthorized("e"), .badImage("f"),
            .tooLarge("g"), .busy("h"), .shuttingDown,
        ]
        let tokenFailures: [TransferFailure] = [
            .refused("a"), .timedOut("b"), .origin("c"), .unusable("d", refreshToken: Secret("x".utf8)),
            .notAsked("e"), .denied("f"), .busy("g"), .shuttingDown,
        ]
        let grant = TokenGrant(accessToken: Secret("a".utf8), lifetime: 9, refreshToken: Secret("b".utf8))
        return [
            .image(1, headers, redirectedTo: "https://x.test/"), .missing(2, headers), .notModified(3, headers),
            .unusable(9, headers, .badImage("HTML")), .unusable(9, headers, .forbidden("403")),
            .token(4, .success(grant)), .alive(5), .statistics(6, figures),
        ] + failures.map { .failed(7, $0) } + tokenFailures.map { .token(8, .failure($0)) }
    }

    /// As bytes, each message with the body that it says it has.
    private static func bytes(_ requests: [FetcherRequest]) -> ByteBuffer {
        var buffer = ByteBuffer()
        for request in requests { request.write(to: &buffer) }
        return buffer
    }

    private static func bytes(_ reports: [FetcherReport]) -> ByteBuffer {
        var buffer = ByteBuffer()
        for report in reports {
            let body: [UInt8] = if case .image = report { [1, 2, 3, 4, 5] } else { [] }
            report.write(to: &buffer, body: body.count)
            buffer.writeBytes(body)
        }
        return buffer
    }

    @Test(arguments: [1, 2, 7, 64, 1_000, 100_000])
    func `a message is the same in whatever pieces it comes`(_ size: Int) throws {
        var requests = Self.bytes(Self.requests)
        var assembler = MessageAssembler(longestBody: 0)
        var heard: [FetcherRequest] = []
        while let piece = requests.readSlice(length: min(size, requests.readableBytes)), piece.readableBytes > 0 {
            try assembler.receive(piece) { fields, _ throws(MessageError) in heard.append(try FetcherRequest(fields)) }
        }
        #expect(Self.bytes(heard) == Self.bytes(Self.requests))

        var reports = Self.bytes(Self.reports)
        assembler = MessageAssembler(longestBody: 5)
        var said: [FetcherReport] = []
        var bodies: [[UInt8]] = []
        while let piece = reports.readSlice(length: min(size, reports.readableBytes)), piece.readableBytes > 0 {
            try assembler.receive(piece) { fields, body throws(MessageError) in
                said.append(try FetcherReport(fields))
                if let image = body?.finish(.bare).image { bodies.append(Array(image.readableBytesView)) }
            }
        }
        #expect(bodies == [[1, 2, 3, 4, 5]])
        #expect(Self.bytes(said) == Self.bytes(Self.reports))
    }

    @Test func `I8: a message that ends early or has one byte too many is none, wherever it ends`() throws {
        let headLength = MessageWriter.headLength
        for report in Self.reports {
            var buffer = ByteBuffer()
            report.write(to: &buffer)
            buffer.moveReaderIndex(forwardBy: headLength)
            for count in 0..<buffer.readableBytes {
                let part = try #require(buffer.getSlice(at: buffer.readerIndex, length: count))
                #expect(throws: MessageError.self) { try FetcherReport(part) }
            }
            buffer.writeInteger(UInt8(0))
            #expect(throws: MessageError.self) { try FetcherReport(buffer) }
        }
    }

    /// Ages are sums of those, and a sum that does not fit would end the daemon.
    @Test(arguments: [86_401, Int64.max, -1])
    func `I8: an answer that took longer than a day, or less than no time, is none`(_ delay: Int64) {
        for headers in [
            ResponseHeaders([:], delay: delay), ResponseHeaders([:], redirects: [ResponseHeaders([:], delay: delay)]),
        ] {
            var buffer = ByteBuffer()
            FetcherReport.missing(1, headers).write(to: &buffer)
            buffer.moveReaderIndex(forwardBy: MessageWriter.headLength)
            #expect(throws: MessageError.self) { try FetcherReport(buffer) }
        }
    }

    /// The report as the daemon reads it.
    private func read(_ report: FetcherReport) throws -> FetcherReport {
        var buffer = ByteBuffer()
        report.write(to: &buffer)
        buffer.moveReaderIndex(forwardBy: MessageWriter.headLength)
        return try FetcherReport(buffer)
    }

    @Test(arguments: [Int64.max, 1 << 41, 86_402_000])
    func `I8: counts and durations of a fetcher are capped when they are decoded`(_ number: Int64) throws {
        var figures = FetcherStatistics()
        (figures.inFlight, figures.queued, figures.hostsOpen, figures.uidsOpen) = (.max, .max, .max, .max)
        figures.origins["a"] = .init()
        for counter in FetcherStatistics.Counter.allCases { figures.origins["a"]?.counts[counter] = Int(number) }
        figures.origins["a"]?.add(retryIn: number, isForAll: true)
        guard case .statistics(_, let known) = try read(.statistics(1, figures)), let origin = known.origins["a"] else {
            Issue.record("no statistics")
            return
        }
        #expect(origin.retryIn == 86_401_000 && origin.longestRetryIn == 86_401_000)
        let counts = [known.inFlight, known.queued, known.hostsOpen, known.uidsOpen]
        #expect(counts.allSatisfy { $0 == 1 << 40 })
        #expect(FetcherStatistics.Counter.allCases.allSatisfy { origin.counts[$0] <= 1 << 40 })
        let grant = TokenGrant(accessToken: Secret("a".utf8), lifetime: number)
        guard case .token(_, .success(let known)) = try read(.token(1, .success(grant))) else {
            Issue.record("no grant")
            return
        }
        #expect(known.lifetime == min(number, 315_360_000))
    }

    @Test func `I8: a failure that no response causes is not remembered as one`() {
        for failure in [CacheFailure.busy("b"), .timedOut("t"), .unauthorized("u"), .shuttingDown] {
            #expect(throws: MessageError.self) { try read(.unusable(1, ResponseHeaders(), failure)) }
        }
    }

    /// libcurl quotes the name in a server's certificate.
    @Test(arguments: [
        ("\u{85}", "\\u{85}"), ("\u{9b}31m", "\\u{9b}31m"), ("\u{202e}", "\\u{202e}"), ("\u{2028}", "\\u{2028}"),
        ("a\r\nb", "a\\u{d}\\u{a}b"), ("\u{0}", "\\u{0}"), ("\u{7f}", "\\u{7f}"), ("\u{fc}", "\u{fc}"),
    ])
    func `F66: characters of a sentence that do not show are escaped`(_ text: String, _ shown: String) throws {
        guard case .failed(_, .origin(let sentence)) = try read(.failed(1, .origin(text))),
            case .token(_, .failure(.refused(let refusal))) = try read(.token(1, .failure(.refused(text)))),
            case .unusable(_, _, .badImage(let reason)) = try read(.unusable(1, ResponseHeaders(), .badImage(text)))
        else {
            Issue.record("another report")
            return
        }
        #expect([sentence, refusal, reason] == [shown, shown, shown])
    }

    @Test(arguments: ["a\r\nb", "\u{0}", "\u{7f}", "\u{85}", "\u{202e}", String(repeating: "x", count: 9_000)])
    func `F66: a field or a URL that is not plain ASCII of bounded length is none`(_ text: String) {
        var reports = [
            FetcherReport.missing(1, ResponseHeaders(["etag": [text]])),
            .image(1, ResponseHeaders(), redirectedTo: text),
        ]
        if text.utf8.count > 4_096 { reports += [.failed(1, .origin(text)), .token(1, .failure(.refused(text)))] }
        for report in reports {
            var buffer = ByteBuffer()
            report.write(to: &buffer)
            buffer.moveReaderIndex(forwardBy: MessageWriter.headLength)
            #expect(throws: MessageError.self) { try FetcherReport(buffer) }
        }
    }
}
