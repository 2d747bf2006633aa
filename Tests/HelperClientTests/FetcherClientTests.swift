import CacheCore
import HelperClient
import LinuxSupport
import NIOCore
import Testing

@testable import HelperProtocol

/// What the daemon has of a fetcher: also of one that ends, is stuck, or is in the hands of somebody else.
@Suite struct FetcherClientTests {
    /// A PNG of 3 by 2 pixels, as far as anybody looks who does not draw it.
    private static let png: [UInt8] =
        [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A, 0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52]
        + [0, 0, 0, 3, 0, 0, 0, 2, 8, 2, 0, 0, 0] + [UInt8](repeating: 0, count: 16)

    private static let fields = ResponseHeaders(
        ["etag": ["\"1\""], "cache-control": ["max-age=5", "private"]], delay: 3,
        redirects: [ResponseHeaders(["vary": ["accept"]], delay: 1)])

    @Test func `a download is asked for with all that it needs, and its image is what came`() async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let condition = DownloadCondition(url: "https://origin.test/old", etag: "\"0\"", lastModified: nil)
            let (outcome, _) = try client.begin(condition: condition)
            guard case .origin(let origin) = try fetcher.hear() else {
                Issue.record("the origin comes first")
                return
            }
            #expect(origin.url == "https://origin.test/{profile}")
            let (id, request) = try fetcher.task()
            guard case .download(_, let download) = request else {
                Issue.record("then the download")
                return
            }
            #expect(download.origin == "test" && download.uid == 1_000)
            #expect(download.target.url == "https://origin.test/bob")
            #expect(download.token == Secret("token".utf8))
            #expect(download.condition == condition)
            #expect(client.isBusy)
            try fetcher.say(.image(id, Self.fields, redirectedTo: "https://cdn.test/x"), body: Self.png)
            guard case .image(let image) = try outcome.value() else {
                Issue.record("no image came")
                return
            }
            #expect(Array(image.bytes.image.readableBytesView) == Self.png)
            #expect(image.shape == ImageShape(kind: .png, width: 3, height: 2))
            #expect(image.headers == Self.fields)
            #expect(image.redirectedTo == "https://cdn.test/x")
            #expect(!client.isBusy)
        }
    }

    @Test func `a fetcher that ends fails what was under way, and the next one is asked for what follows`() async throws
    {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (first, _) = try client.begin()
            let token = try client.beginRefresh()
            _ = try fetcher.task()
            fetcher.end()
            guard case .origin = try first.value().failure else {
                Issue.record("the download goes on")
                return
            }
            #expect(throws: TransferFailure.self) { try token.value().get() }
            let next = try fetchers.next()
            let (second, _) = try client.begin()
            let (id, _) = try next.task()
            try next.say(.missing(id, Self.fields))
            guard case .missing(let headers) = try second.value() else {
                Issue.record("the second fetcher is not heard")
                return
            }
            #expect(headers == Self.fields)
        }
    }

    @Test func `I9: one that cannot be had is tried again, and who asks meanwhile is told so at once`() async throws {
        try await withClient(refusals: 3) { client, fetchers in
            #expect(throws: CacheFailure.self) { try client.begin() }
            let fetcher = try fetchers.next()
            let (outcome, _) = try client.begin()
            try fetcher.say(.missing(try fetcher.task().id, Self.fields))
            _ = try outcome.value()
        }
    }

    @Test func `what is cancelled is told to the fetcher, and nobody is told of it any more`() async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (outcome, handle) = try client.begin()
            let (id, _) = try fetcher.task()
            handle.cancel()
            let (cancelled, request) = try fetcher.task()
            guard case .cancel = request else {
                Issue.record("it is not told")
                return
            }
            #expect(cancelled == id)
            try fetcher.say(.missing(id, Self.fields))
            // Behind it: what came of the first has been looked at by then.
            let (second, _) = try client.begin()
            try fetcher.say(.missing(try fetcher.task().id, Self.fields))
            _ = try second.value()
            #expect(outcome.isUntold)
        }
    }

    @Test(arguments: [
        FetcherReport.token(1, .success(TokenGrant(accessToken: Secret("t".utf8)))), .notModified(1, fields),
        .statistics(1, FetcherStatistics()), .alive(0),
    ])
    func `F65: who answers something else than was asked is left, and the download fails`(
        _ report: FetcherReport
    ) async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (outcome, _) = try client.begin()
            _ = try fetcher.task()
            try fetcher.say(report)
            guard case .origin = try outcome.value().failure else {
                Issue.record("the download did not fail")
                return
            }
            #expect(fetcher.isLeft())
            _ = try fetchers.next()
        }
    }

    @Test(
        arguments: [
            [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0], [0, 0, 0, 1, 0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 0, 1, 0, 0, 0, 0, 99],
            [0, 0, 0, 2, 0, 0, 0, 0, 6, 0], [0, 0, 0, 0, 0, 0, 0, 0],
        ] as [[UInt8]])
    func `I8: who says what is no message, or too much, is left`(_ bytes: [UInt8]) async throws {
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            let (outcome, _) = try client.begin()
            _ = try fetcher.task()
            try fetcher.say(bytes)
            #expect(try outcome.value().failure != nil)
            #expect(fetcher.isLeft())
        }
    }

    @Test func `F36: what the fetcher takes for an image is one, within its limits, or the download fails`()
        async throws
    {
        try await withClient({ $0.maximumDimension = 2 }) { client, fetchers in
            let fetcher = try fetchers.next()
            for body in [Array("<svg/>".utf8), [], Self.png] {
                let (outcome, _) = try client.begin()
                try fetcher.say(.image(try fetcher.task().id, Self.fields, redirectedTo: nil), body: body)
                guard case .badImage = try outcome.value().failure else {
                    Issue.record("\(body.count) bytes are taken for an image")
                    return
                }
            }
        }
    }

    @Test(arguments: ["", "a b", "a\r\nX: y", String(repeating: "a", count: 65)])
    func `I11: a token that is none is not taken`(_ token: String) async throws {
        try await withClient({ $0.maximumTokenBytes = 64 }) { client, fetchers in
            let fetcher = try fetchers.next()
            for report in [
                Result<TokenGrant, TransferFailure>.success(TokenGrant(accessToken: Secret(token.utf8))),
                .success(TokenGrant(accessToken: Secret("t".utf8), refreshToken: Secret("\u{7}".utf8))),
                .failure(.unusable("", refreshToken: Secret("\n".utf8))),
            ] {
                let outcome = try client.beginRefresh()
                try fetcher.say(.token(try fetcher.task().id, report))
                #expect(throws: TransferFailure.origin("the process that downloads sent what is no token")) {
                    try outcome.value().get()
                }
            }
        }
    }

    @Test func `I8: a uid has no more under way than there may be of it, and others have theirs`() async throws {
        try await withClient({ ($0.downloadsPerUID, $0.queuePerUID) = (1, 1) }) { client, fetchers in
            let fetcher = try fetchers.next()
            let handles = try (0..<4).map { _ in try client.begin().handle }
            #expect(throws: CacheFailure.self) { try client.begin() }
            _ = try client.begin(uid: 1_001)
            handles[0].cancel()
            _ = try client.begin()
            _ = fetcher
        }
    }

    @Test func `one that is stuck is left for another`() async throws {
        try await withClient(patience: .milliseconds(20)) { client, fetchers in
            let stuck = try fetchers.next()
            let (outcome, _) = try client.begin()
            #expect(try outcome.value().failure != nil)
            #expect(stuck.isLeft())
            _ = try fetchers.next()
        }
    }

    @Test func `I8: one that gives signs of life but no figures is left`() async throws {
        try await withClient(patience: .milliseconds(20)) { client, fetchers in
            let fetcher = try fetchers.next()
            async let isRead: Void = client.readStatistics()
            while let request = try? fetcher.hear() {
                if case .isAlive(let number) = request { try? fetcher.say(.alive(number)) }
            }
            await isRead
            _ = try fetchers.next()
        }
    }

    @Test func `nobody waits for the figures of one that is stuck`() async throws {
        try await withClient(patience: .milliseconds(20)) { client, fetchers in
            let stuck = try fetchers.next()
            await client.readStatistics()
            #expect(stuck.isLeft())
        }
    }

    @Test func `another file of authorities takes another fetcher; other limits are told to the one that there is`()
        async throws
    {
        try await withClient { client, fetchers in
            let first = try fetchers.next()
            var settings = FetcherSettings(version: "1", logLevel: "info")
            settings.downloads = 7
            client.update(settings)
            guard case .settings(let told) = try first.hear() else {
                Issue.record("it is not told")
                return
            }
            #expect(told == settings)
            settings.authorities = ["/etc/own.pem"]
            client.update(settings)
            #expect(first.isLeft())
            _ = try fetchers.next()
        }
    }

    @Test func `figures are those of now, and of the fetchers before`() async throws {
        try await withClient { client, fetchers in
            for count in 1...2 {
                let fetcher = try fetchers.next()
                _ = try client.begin()
                _ = try fetcher.task()
                async let isRead: Void = client.readStatistics()
                var figures = FetcherStatistics()
                figures.inFlight = count
                // I8: names that the fetcher was never told are not kept.
                for name in ["test", "invented"] {
                    figures.origins[name] = .init()
                    figures.origins[name]?.counts[.requests] = count
                }
                try fetcher.say(.statistics(try fetcher.task().id, figures))
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

    @Test func `behind the end nothing is taken, and what was under way is told so`() async throws {
        let waiting = try await withEndedClient()
        #expect(try waiting.value().failure == .shuttingDown)
    }

    private func withEndedClient() async throws -> Waited<DownloadOutcome> {
        var waiting = Waited<DownloadOutcome>()
        try await withClient { client, fetchers in
            let fetcher = try fetchers.next()
            waiting = try client.begin().outcome
            client.shutdown()
            #expect(throws: CacheFailure.shuttingDown) { try client.begin() }
            #expect(fetcher.isLeft())
        }
        return waiting
    }
}
