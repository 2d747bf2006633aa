import Logging
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Signs of life of the fetcher's thread, which systemd's watchdog rests on (F48).
@Suite(.timeLimit(.minutes(5))) struct AliveTests {
    private func sign(_ fetcher: CurlImageFetcher) async {
        await withCheckedContinuation { continuation in fetcher.whenAlive { continuation.resume() } }
    }

    @Test func `F48: a thread that comes round says so, also when it has nothing to do`() async throws {
        try await withFetcher { fetcher in
            for _ in 0..<100 { await sign(fetcher) }
        }
    }

    @Test func `F48: a thread that is stuck says nothing until it goes on`() async throws {
        let server = try TestOrigin([
            "/a": { _, peer in peer.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n") }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let (reached, gate) = (Gate(), Gate())
            let answers = NIOLockedValueBox(0)
            // It is told of the end of a download on the thread itself.
            let target = DownloadTarget(url: server.url("/a"), isNamedByClient: false)
            _ = try fetcher.start(
                Download(uid: 1000, origin: .test(), target: target, token: nil, framing: .bare)
            ) { _ in
                reached.open()
                gate.block()
            }
            await reached.opened()
            fetcher.whenAlive { answers.withLockedValue { $0 += 1 } }
            #expect(answers.withLockedValue { $0 } == 0)
            gate.open()
            await sign(fetcher)
            #expect(answers.withLockedValue { $0 } == 1)
        }
    }

    @Test func `what is not running is not stuck: a sign is given at once, before the start and behind the stop`()
        async throws
    {
        let fetcher = CurlImageFetcher(
            configuration: FetcherConfiguration(userAgent: "thumbcached-tests"),
            log: Logger(label: "tests", factory: { _ in SwiftLogNoOpLogHandler() }))
        await sign(fetcher)
        try fetcher.start()
        // Whoever asks while it stops is answered, too.
        await withTaskGroup { group in
            for _ in 0..<50 { group.addTask { await sign(fetcher) } }
            group.addTask { fetcher.shutdown() }
        }
        await sign(fetcher)
    }
}
