import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

@Suite struct StressTests {
    @Test(arguments: [false, true])
    func `F40: with concurrent starts, cancellations and shutdown, each download ends once or is cancelled`(
        shutsDownEarly: Bool
    ) async throws {
        let body = TestImage.png(count: 3_000)
        let server = try TestOrigin([
            "/ok": { _, peer in peer.answer(body) },
            "/none": { _, peer in peer.answer([], status: "404 Not Found") },
            "/reset": { _, peer in peer.reset() },
            "/hang": { _, peer in peer.waitForEnd() },
            "/away": { _, peer in peer.redirect(to: "/ok") },
        ])
        defer { server.stop() }
        let paths = ["/ok", "/none", "/reset", "/hang", "/away", "/ok"]
        let counts = NIOLockedValueBox<[Int: Int]>([:])
        let cancelled = NIOLockedValueBox<Set<Int>>([])
        let refused = NIOLockedValueBox<Set<Int>>([])
        let perTask = 150
        try await withFetcher {
            $0.downloads = 24
            $0.downloadsPerAccount = 10
            $0.queuePerAccount = 100
        } _: { fetcher in
            await withTaskGroup(of: Void.self) { group in
                for task in 0..<8 {
                    group.addTask {
                        var handles: [(Int, any DownloadHandle)] = []
                        for number in 0..<perTask {
                            let id = task * perTask + number
                            let path = paths[id % paths.count]
                            var origin = Origin.test(
                                "origin \(id % 2)", timeout: path == "/hang" ? 200 : 600_000, connections: 8
                            ).at(server.url("/"))
                            // Some downloads run while the fetcher shuts down.
                            origin.breaker = BreakerPolicy(failures: 50, backoff: 20, backoffMax: 20)
                            let download = Download.test(server.url(path), of: origin, account: UInt32(task % 4))
                            do {
                                let handle = try fetcher.start(download) { outcome in
                                    if case .image(let image) = outcome { #expect(image.bytes.count == body.count) }
                                    counts.withLockedValue { $0[id, default: 0] += 1 }
                                }
                                handles.append((id, handle))
                            } catch {
                                refused.withLockedValue { _ = $0.insert(id) }
                            }
                            if id % 3 == 0, let (id, handle) = handles.popLast() {
                                handle.cancel()
                                cancelled.withLockedValue { _ = $0.insert(id) }
                            }
                            if number % 16 == 0 { await Task.yield() }
                        }
                        if shutsDownEarly { fetcher.shutdown() }
                    }
                }
            }
            if !shutsDownEarly {
                while fetcher.statistics.inFlight + fetcher.statistics.queued > 0 { await Task.yield() }
            }
            fetcher.shutdown()
            #expect(fetcher.statistics.inFlight == 0 && fetcher.statistics.queued == 0)
        }
        let ended = counts.withLockedValue { $0 }
        for id in 0..<(8 * perTask) {
            let wasCancelled = cancelled.withLockedValue { $0.contains(id) }
            let wasRefused = refused.withLockedValue { $0.contains(id) }
            let times = ended[id, default: 0]
            #expect(wasCancelled ? times <= 1 : times == (wasRefused ? 0 : 1), "download \(id): \(times) outcomes")
        }
    }
}
