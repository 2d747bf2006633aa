import CacheFakes
import HelperProtocol
import Logging
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Health checks of the fetcher's thread, which feed the watchdog (F48).
@Suite(.timeLimit(.minutes(5))) struct AliveTests {
    private func checkHealth(_ fetcher: CurlImageFetcher) async {
        await withCheckedContinuation { continuation in fetcher.callOnLoop { continuation.resume() } }
    }

    @Test func `F48: a running thread answers health checks, even without work`() async throws {
        try await withFetcher { fetcher in
            for _ in 0..<100 { await checkHealth(fetcher) }
        }
    }

    @Test func `F48: a blocked thread answers no health check until it continues`() async throws {
        try await withOrigin([
            "/a": { _, peer in peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") }
        ]) { server, fetcher in
            let gate = Gate()
            let answers = NIOLockedValueBox(0)
            // The end of a download is reported on the fetcher's thread.
            _ = try fetcher.start(.test(server.url("/a"))) { _ in
                gate.pass()
            }
            await gate.reached()
            fetcher.callOnLoop { answers.withLockedValue { $0 += 1 } }
            #expect(answers.withLockedValue { $0 } == 0)
            gate.open()
            await checkHealth(fetcher)
            #expect(answers.withLockedValue { $0 } == 1)
        }
    }

    @Test func `health checks are answered at once before the start and after the stop`()
        async throws
    {
        let fetcher = CurlImageFetcher(
            settings: FetcherSettings(version: "tests", logLevel: "info"),
            log: Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() }))
        await checkHealth(fetcher)
        try fetcher.start()
        // Checks during the stop are answered, too.
        await withTaskGroup { group in
            for _ in 0..<50 { group.addTask { await checkHealth(fetcher) } }
            group.addTask { fetcher.shutdown() }
        }
        await checkHealth(fetcher)
    }
}
