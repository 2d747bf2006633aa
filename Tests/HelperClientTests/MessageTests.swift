import CacheCore
import LinuxSupport
import NIOCore
import Origins
import Testing

@testable import HelperProtocol

/// Messages between the daemon and the fetcher.
@Suite struct MessageTests {
    private static var requests: [FetcherRequest] {
        var settings = FetcherSettings(version: "1.2", logLevel: "debug")
        (settings.origins, settings.authorities, settings.queuePerAccount) = (["a"], ["/x.pem"], 9)
        let origin = Origin(name: "a", url: "https://a.test/{profile}")
        let target = DownloadTarget(url: "https://b.test/x", isNamedByClient: true)
        let condition = DownloadCondition(url: "https://b.test/y", etag: nil, lastModified: "yesterday")
        let download = Download(
            account: 7, origin: origin, target: target, token: Secret("t".utf8), timeout: 11,
            condition: condition, framing: .bare)
        let federated = Download(
            account: 7, origin: origin,
            target: DownloadTarget(url: "https://c.test/z", isNamedByClient: false, federatedDomain: "e.test"),
            token: nil, framing: .bare)
        let token = TokenRequest(
            account: 7, origin: origin,
            endpoint: TokenEndpoint(url: "https://t.test/", clientID: "c", clientSecret: Secret("s".utf8)),
            refreshToken: Secret("r".utf8))
        return [
            .settings(settings), .origin(name: "a", settings: origin.encodedSettings),
            .download(1, download), .download(5, federated), .token(2, token), .cancel(3), .ping(4), .statistics(.max),
            .check(6, federated),
        ]
    }

    private static var reports: [FetcherReport] {
        let headers = ResponseHeaders(["etag": ["x"]], delay: 2, redirects: [ResponseHeaders(["a": []])])
        var figures = FetcherStatistics()
        (figures.inFlight, figures.queued, figures.hostsOpen, figures.accountsOpen) = (1, 2, 3, 4)
        figures.origins["a"] = .init()
        figures.origins["a"]?.counts[.bytes] = 5
        figures.origins["a"]?.longestRetryIn = 6
        let failures =
            FetchFailure.Kind.allCases.map { FetchFailure($0, "reason") }
            + [.origin("no access token", refreshToken: Secret("x".utf8))]
        let grant = TokenGrant(accessToken: Secret("a".utf8), lifetime: 9, refreshToken: Secret("b".utf8))
        return [
            .image(1, headers, redirectedTo: "https://x.test/"), .missing(2, headers), .notModified(3, headers),
            .unusable(9, headers, .badImage("HTML")), .unusable(9, headers, .forbidden("403")),
            .token(4, grant), .pong(5), .statistics(6, figures), .checked(8, nil),
            .checked(8, FetchRefusal(.circuitOpen("reason"), retryIn: 9)), .checked(8, FetchRefusal(.origin("reason"))),
        ] + failures.map { .failed(7, $0) }
    }

    /// The messages with their bodies.
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
    func `messages are the same however the stream is divided`(_ size: Int) throws {
        var requests = Self.bytes(Self.requests)
        var assembler = MessageAssembler(maximumBody: 0)
        var received: [FetcherRequest] = []
        while let piece = requests.readSlice(length: min(size, requests.readableBytes)), piece.readableBytes > 0 {
            try assembler.receive(piece) { fields, _ throws(MessageError) in
                received.append(try FetcherRequest(fields) { Origin(name: $0, url: "") })
            }
        }
        #expect(Self.bytes(received) == Self.bytes(Self.requests))

        var reports = Self.bytes(Self.reports)
        assembler = MessageAssembler(maximumBody: 5)
        var receivedReports: [FetcherReport] = []
        var bodies: [[UInt8]] = []
        while let piece = reports.readSlice(length: min(size, reports.readableBytes)), piece.readableBytes > 0 {
            try assembler.receive(piece) { fields, body throws(MessageError) in
                receivedReports.append(try FetcherReport(fields))
                if let buffer = body?.buffer {
                    #expect(buffer.storageCapacity == ImageBytes.Builder.size(forImageOf: 5))
                }
                if let image = body?.finish(.bare).image { bodies.append(Array(image.readableBytesView)) }
            }
        }
        #expect(bodies == [[1, 2, 3, 4, 5]])
        #expect(Self.bytes(receivedReports) == Self.bytes(Self.reports))
    }

    @Test func `I8: a truncated message, and one with a trailing byte, is invalid`() throws {
        let headLength = MessageHead.length
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

    /// Ages are sums of delays, and an overflow would end the daemon.
    @Test(arguments: [86_401, Int64.max, -1])
    func `I8: a response delay of more than a day, or a negative one, is invalid`(_ delay: Int64) {
        for headers in [
            ResponseHeaders([:], delay: delay), ResponseHeaders([:], redirects: [ResponseHeaders([:], delay: delay)]),
        ] {
            var buffer = ByteBuffer()
            FetcherReport.missing(1, headers).write(to: &buffer)
            buffer.moveReaderIndex(forwardBy: MessageHead.length)
            #expect(throws: MessageError.self) { try FetcherReport(buffer) }
        }
    }

    @Test func `every property of a fetcher's settings is sent`() throws {
        var settings = FetcherSettings(version: "1.2", logLevel: "debug")
        (settings.maximumImageBytes, settings.maximumDimension, settings.maximumTokenBytes) = (1, 2, 3)
        (settings.downloads, settings.downloadsPerAccount, settings.queuePerAccount) = (4, 5, 6)
        (settings.origins, settings.authorities) = (["a"], ["/x.pem"])
        #expect(Mirror(reflecting: settings).children.count == FetcherSettings.fields.count)
        var buffer = ByteBuffer()
        FetcherRequest.settings(settings).write(to: &buffer)
        buffer.moveReaderIndex(forwardBy: MessageHead.length)
        guard case .settings(let read) = try FetcherRequest(buffer, origin: { _ in nil }) else {
            Issue.record("the request has another kind")
            return
        }
        #expect(read == settings)
    }

    @Test(arguments: [Int64(-1), .min, 65_536])
    func `I8: a number that a setting cannot have is an error`(_ number: Int64) {
        let fields = MessageWriter.encode { $0.integer(number) }
        #expect(throws: MessageError.self) {
            try MessageReader.decode(fields) { message throws(MessageError) in _ = try UInt16(from: &message) }
        }
    }

    /// The report after it was written and read.
    private func read(_ report: FetcherReport) throws -> FetcherReport {
        var buffer = ByteBuffer()
        report.write(to: &buffer)
        buffer.moveReaderIndex(forwardBy: MessageHead.length)
        return try FetcherReport(buffer)
    }

    @Test(arguments: [Int64.max, 1 << 41, 86_402_000])
    func `I8: counts and durations of a fetcher are capped when they are decoded`(_ number: Int64) throws {
        var figures = FetcherStatistics()
        (figures.inFlight, figures.queued, figures.hostsOpen, figures.accountsOpen) = (.max, .max, .max, .max)
        figures.origins["a"] = .init()
        for counter in FetcherStatistics.Counter.allCases { figures.origins["a"]?.counts[counter] = Int(number) }
        figures.origins["a"]?.add(retryIn: number, isForAll: true)
        guard case .statistics(_, let known) = try read(.statistics(1, figures)), let origin = known.origins["a"] else {
            Issue.record("no statistics")
            return
        }
        #expect(origin.retryIn == 86_401_000 && origin.longestRetryIn == 86_401_000)
        let counts = [known.inFlight, known.queued, known.hostsOpen, known.accountsOpen]
        #expect(counts.allSatisfy { $0 == 1 << 40 })
        #expect(FetcherStatistics.Counter.allCases.allSatisfy { origin.counts[$0] <= 1 << 40 })
        let refusal = FetchRefusal(.circuitOpen("open"), retryIn: number)
        guard case .checked(_, let refused?) = try read(.checked(1, refusal)) else {
            Issue.record("no refusal")
            return
        }
        #expect(refused.retryIn == 86_401_000)
        let grant = TokenGrant(accessToken: Secret("a".utf8), lifetime: number)
        guard case .token(_, let known) = try read(.token(1, grant)) else {
            Issue.record("no grant")
            return
        }
        #expect(known.lifetime == min(number, 315_360_000))
    }

    @Test func `I8: an unusable response with a failure that no response causes is invalid`() {
        for kind in FetchFailure.Kind.allCases where !kind.describesResponse {
            let report = FetcherReport.unusable(1, ResponseHeaders(), FetchFailure(kind, "reason"))
            #expect(throws: MessageError.self) { try read(report) }
        }
    }

    /// libcurl quotes the name in a server's certificate.
    @Test(arguments: [
        ("\u{85}", "\\u{85}"), ("\u{9b}31m", "\\u{9b}31m"), ("\u{202e}", "\\u{202e}"), ("\u{2028}", "\\u{2028}"),
        ("a\r\nb", "a\\u{d}\\u{a}b"), ("\u{0}", "\\u{0}"), ("\u{7f}", "\\u{7f}"), ("\u{fc}", "\u{fc}"),
    ])
    func `F66: invisible characters of an error message are escaped`(_ text: String, _ shown: String) throws {
        guard case .failed(_, let failed) = try read(.failed(1, .origin(text))),
            case .unusable(_, _, let unusable) = try read(.unusable(1, ResponseHeaders(), .badImage(text)))
        else {
            Issue.record("the report has another kind")
            return
        }
        #expect(failed == .origin(shown) && unusable == .badImage(shown))
    }

    @Test(arguments: ["a\r\nb", "\u{0}", "\u{7f}", "\u{85}", "\u{202e}", String(repeating: "x", count: 9_000)])
    func `F66: a header field or URL that is not plain ASCII of bounded length is invalid`(_ text: String) {
        var reports = [
            FetcherReport.missing(1, ResponseHeaders(["etag": [text]])),
            .image(1, ResponseHeaders(), redirectedTo: text),
        ]
        if text.utf8.count > 4_096 { reports.append(.failed(1, .origin(text))) }
        for report in reports {
            var buffer = ByteBuffer()
            report.write(to: &buffer)
            buffer.moveReaderIndex(forwardBy: MessageHead.length)
            #expect(throws: MessageError.self) { try FetcherReport(buffer) }
        }
    }
}
