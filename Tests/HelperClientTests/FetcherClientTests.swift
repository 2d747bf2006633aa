import CacheCore
import HelperClient
import LinuxSupport
import NIOCore
import Origins
import Testing

@testable import HelperProtocol

/// The daemon's client of a fetcher that works, exits, hangs, or is under an attacker's control.
@Suite struct FetcherClientTests {
    /// The header of a PNG of 3 by 2 pixels.
    private static let png: [UInt8] =
        [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52]
        + [0, 0, 0, 3, 0, 0, 0, 2, 8, 2, 0, 0, 0] + [UInt8](repeating: 0, count: 16)

    private static let fields = ResponseHeaders(
        ["etag": ["\"1\""], "cache-control": ["max-age=5", "private"]], delay: 3,
        redirects: [ResponseHeaders(["vary": ["accept"]], delay: 1)])

    @Test func `a download sends the origin and the request, and returns the image`() async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let condition = DownloadCondition(url: "https://origin.test/old", etag: "\"0\"", lastModified: nil)
            let (outcome, _) = try client.begin(condition: condition)
            guard case .origin("test", let settings) = try fetcher.receive() else {
                Issue.record("the first message is not the origin")
                return
            }
            #expect(try Origin(name: "test", encodedSettings: settings).url == "https://origin.test/{profile}")
            let (id, request) = try fetcher.task()
            guard case .download(_, let download) = request else {
                Issue.record("the second message is not the download")
                return
            }
            #expect(download.origin.name == "test" && download.account == 1_000)
            #expect(download.target.url == "https://origin.test/bob")
            #expect(download.token == Secret("token".utf8))
            #expect(download.condition == condition)
            #expect(client.isBusy)
            try fetcher.send(.image(id, Self.fields, redirectedTo: "https://cdn.test/x"), body: Self.png)
            guard case .image(let image) = try outcome.value() else {
                Issue.record("the outcome is not an image")
                return
            }
            #expect(Array(image.bytes.image.readableBytesView) == Self.png)
            #expect(image.shape == ImageShape(kind: .png, width: 3, height: 2))
            #expect(image.headers == Self.fields)
            #expect(image.redirectedTo == "https://cdn.test/x")
            #expect(!client.isBusy)
        }
    }

    @Test func `the end of a fetcher fails requests in flight, and the next one serves later requests`() async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (first, _) = try client.begin()
            let token = try client.beginRefresh()
            _ = try fetcher.task()
            fetcher.end()
            #expect(try first.value().failure?.kind == .origin)
            #expect(throws: FetchFailure.self) { try token.value().get() }
            let next = try fetchers.next()
            let (second, _) = try client.begin()
            let (id, _) = try next.task()
            try next.send(.missing(id, Self.fields))
            guard case .missing(let headers) = try second.value() else {
                Issue.record("the report of the second fetcher is ignored")
                return
            }
            #expect(headers == Self.fields)
        }
    }

    @Test func `I9: a fetcher that cannot be started is retried, and until then requests fail at once`() async throws {
        try await withClient(refusals: 3) { client, fetchers in
            #expect(throws: FetchFailure.self) { try client.begin() }
            let fetcher = try fetchers.next()
            let (outcome, _) = try client.begin()
            try fetcher.send(.missing(try fetcher.task().id, Self.fields))
            _ = try outcome.value()
        }
    }

    @Test func `a cancelled download is cancelled in the fetcher, and its report is ignored`() async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (outcome, handle) = try client.begin()
            let (id, _) = try fetcher.task()
            handle.cancel()
            let (cancelled, request) = try fetcher.task()
            guard case .cancel = request else {
                Issue.record("the fetcher received another message")
                return
            }
            #expect(cancelled == id)
            try fetcher.send(.missing(id, Self.fields))
            // The second report arrives after the first has been handled.
            let (second, _) = try client.begin()
            try fetcher.send(.missing(try fetcher.task().id, Self.fields))
            _ = try second.value()
            #expect(outcome.isUnset)
        }
    }

    @Test(arguments: [
        FetcherReport.token(1, TokenGrant(accessToken: Secret("t".utf8))), .notModified(1, fields),
        .failed(1, .origin("no access token", refreshToken: Secret("t".utf8))),
        .statistics(1, FetcherStatistics()), .pong(0),
    ])
    func `F65: a report that does not fit its request ends the fetcher and fails the download`(
        _ report: FetcherReport
    ) async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (outcome, _) = try client.begin()
            _ = try fetcher.task()
            try fetcher.send(report)
            #expect(try outcome.value().failure?.kind == .origin)
            #expect(fetcher.isClosed())
            _ = try fetchers.next()
        }
    }

    @Test(
        arguments: [
            [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0], [0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 0, 1, 0, 0, 0, 0, 99],
            [0, 0, 0, 2, 0, 0, 0, 0, 6, 0], [0, 0, 0, 0, 0, 0, 0, 0],
        ] as [[UInt8]])
    func `I8: an invalid or too long message ends the fetcher`(_ bytes: [UInt8]) async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (outcome, _) = try client.begin()
            _ = try fetcher.task()
            try fetcher.send(bytes)
            #expect(try outcome.value().failure != nil)
            #expect(fetcher.isClosed())
        }
    }

    @Test func `F36: bytes that are not an image within the limits fail the download`()
        async throws
    {
        try await withClient({ $0.maximumDimension = 2 }) { client, fetchers in
            let fetcher = try fetchers.next()
            for body in [Array("<svg/>".utf8), [], Self.png] {
                let (outcome, _) = try client.begin()
                try fetcher.send(.image(try fetcher.task().id, Self.fields, redirectedTo: nil), body: body)
                #expect(try outcome.value().failure?.kind == .badImage, "\(body.count) bytes")
            }
        }
    }

    @Test(arguments: ["", "a b", "a\r\nX: y", String(repeating: "a", count: 65)])
    func `I11: an invalid token is rejected`(_ token: String) async throws {
        try await withClient({ $0.maximumTokenBytes = 64 }) { client, fetchers in
            let fetcher = try fetchers.next()
            for report in [
                { id in .token(id, TokenGrant(accessToken: Secret(token.utf8))) },
                { id in .token(id, TokenGrant(accessToken: Secret("t".utf8), refreshToken: Secret("\u{7}".utf8))) },
                { id in .failed(id, .origin("", refreshToken: Secret("\n".utf8))) },
            ] as [(UInt64) -> FetcherReport] {
                let outcome = try client.beginRefresh()
                try fetcher.send(report(try fetcher.task().id))
                #expect(throws: FetchFailure.origin("the fetcher process sent an invalid token")) {
                    try outcome.value().get()
                }
            }
        }
    }

    @Test func `I8: the requests in flight of each account are limited`() async throws {
        try await withClient({ ($0.downloadsPerAccount, $0.queuePerAccount) = (1, 1) }) { client, fetchers in
            let fetcher = try fetchers.next()
            let handles = try (0..<4).map { _ in try client.begin().handle }
            let busy = FetchFailure.busy(
                "twice limits.downloads-per-uid + limits.queue-per-uid: 4 downloads and token requests of this account "
                    + "are in flight; try again later")
            #expect(throws: busy) { try client.begin() }
            _ = try client.begin(account: 1_001)
            handles[0].cancel()
            _ = try client.begin()
            _ = fetcher
        }
    }

    @Test func `a fetcher that hangs is replaced`() async throws {
        try await withClient(pingInterval: .milliseconds(500)) { client, fetchers in
            let stuck = try fetchers.next()
            let (outcome, _) = try client.begin()
            #expect(try outcome.value().failure != nil)
            #expect(stuck.isClosed())
            _ = try fetchers.next()
        }
    }

    @Test func `I8: a fetcher that answers pings but sends no statistics is replaced`() async throws {
        try await withClient(pingInterval: .milliseconds(500)) { client, fetchers in
            let fetcher = try fetchers.next()
            async let isRead: Void = client.readStatistics()
            while let request = try? fetcher.receive() {
                if case .ping(let number) = request { try? fetcher.send(.pong(number)) }
            }
            await isRead
            _ = try fetchers.next()
        }
    }

    @Test func `reading statistics ends when the fetcher hangs`() async throws {
        try await withClient(pingInterval: .milliseconds(500)) { client, fetchers in
            let stuck = try fetchers.next()
            await client.readStatistics()
            #expect(stuck.isClosed())
        }
    }

    @Test func `a new ca-file starts another fetcher; other settings are sent to the running one`()
        async throws
    {
        try await withClient { client, fetchers in
            let first = try fetchers.next()
            var settings = FetcherSettings(version: "1", logLevel: "info")
            settings.downloads = 7
            client.update(settings)
            guard case .settings(let sent) = try first.receive() else {
                Issue.record("the fetcher received another message")
                return
            }
            #expect(sent == settings)
            settings.authorities = ["/etc/own.pem"]
            client.update(settings)
            #expect(first.isClosed())
            _ = try fetchers.next()
        }
    }

    @Test func `a refusal is what the fetcher reports, or that there is no fetcher`() async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            for refusal in [nil, FetchRefusal(.circuitOpen("open"), retryIn: 7)] {
                async let refused = client.refusal()
                let (id, request) = try fetcher.task()
                guard case .check(_, let download) = request else {
                    Issue.record("the fetcher received another message")
                    return
                }
                #expect(download.account == 1_000 && download.token == nil)
                try fetcher.send(.checked(id, refusal))
                #expect(await refused == refusal)
            }
            async let refused = client.refusal()
            _ = try fetcher.task()
            fetcher.end()
            #expect(await refused?.failure.kind == .origin)
            client.shutdown()
            #expect(await client.refusal() == FetchRefusal(.shuttingDown))
        }
    }

    @Test func `statistics include the counters of earlier fetchers`() async throws {
        try await withClient { client, fetchers in
            for count in 1...2 {
                let fetcher = try fetchers.next()
                _ = try client.begin()
                _ = try fetcher.task()
                async let isRead: Void = client.readStatistics()
                var figures = FetcherStatistics()
                figures.inFlight = count
                // I8: origins that the fetcher invents are not kept.
                for name in ["test", "invented"] {
                    figures.origins[name] = .init()
                    figures.origins[name]?.counts[.requests] = count
                }
                try fetcher.send(.statistics(try fetcher.task().id, figures))
                await isRead
                #expect(client.statistics.inFlight == count)
                #expect(Array(client.statistics.origins.keys) == ["test"])
                fetcher.end()
            }
            _ = try fetchers.next()
            #expect(client.statistics[.requests] == 3)
            #expect(client.statistics.inFlight == 0)
        }
    }

    @Test func `shutdown fails requests in flight and later ones`() async throws {
        let waiting = try await withEndedClient()
        #expect(try waiting.value().failure == .shuttingDown)
    }

    private func withEndedClient() async throws -> Awaited<DownloadOutcome> {
        var waiting = Awaited<DownloadOutcome>()
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            waiting = try client.begin().outcome
            client.shutdown()
            #expect(throws: FetchFailure.shuttingDown) { try client.begin() }
            #expect(fetcher.isClosed())
        }
        return waiting
    }
}
