import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Fair division of the transfer loop's time.
@Suite(.timeLimit(.minutes(5))) struct TransferTurnTests {
    private func start(
        _ fetcher: CurlImageFetcher, _ url: String, of origin: Origin = .test(), account: UInt32,
        onEnd: @escaping @Sendable (DownloadOutcome) -> Void = { _ in }
    ) throws -> any DownloadHandle {
        try fetcher.start(.test(url, of: origin, account: account), onEnd: onEnd)
    }

    @Test func `I8: one download of an account does not wait for many earlier ones of another account`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        let gate = Gate()
        try await withFetcher {
            $0.hold(at: gate)
        } _: { fetcher in
            let order = NIOLockedValueBox<[UInt32]>([])
            let all = Gate()
            let ended: @Sendable (UInt32) -> Void = { account in
                if order.withLockedValue({
                    $0.append(account); return $0.count
                }) == 32 {
                    all.open()
                }
            }
            // No limit applies, so all begin at once and share only the loop's time.
            for number in 0..<31 {
                _ = try start(fetcher, server.url("/\(number)"), account: 1) { _ in ended(1) }
                if number == 0 { await gate.reached() }
            }
            _ = try start(fetcher, server.url("/one"), account: 2) { _ in ended(2) }
            gate.open()
            await all.opened()
            let paths = server.requests.map(\.path)
            #expect(paths.firstIndex(of: "/one") ?? .max < 16, "\(paths)")
        }
    }

    @Test func `I8: a download that waits for the connection of another continues when that one is cancelled`()
        async throws
    {
        let (first, second) = (Gate(), Gate())
        let count = NIOLockedValueBox(0)
        // Accepts connections and never responds, so that the TLS handshake does not complete.
        let server = try RawServer { connection in
            let number = count.withLockedValue {
                $0 += 1; return $0
            }
            (number == 1 ? first : second).open()
            _ = RawServer.read(from: connection) { _ in false }
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let url = "https://127.0.0.1:\(server.port)"
            let ahead = try start(fetcher, "\(url)/a", account: 1)
            await first.opened()
            // Waits because it may share the first connection.
            let behind = try start(fetcher, "\(url)/b", account: 2)
            // libcurl has a timer within 200 ms of the start of a connection and would then notice the cancellation by
            // itself. This pause is longer; the next timer is that of the connection, ten minutes later.
            let loop = try #require(fetcher.loop)
            try await loop.scheduleTask(in: .milliseconds(250)) {}.futureResult.get()
            #expect(count.withLockedValue { $0 } == 1)
            ahead.cancel()
            // Ends the wait if the second download does not continue.
            let end = loop.scheduleTask(in: .seconds(20)) { second.open() }
            await second.opened()
            #expect(count.withLockedValue { $0 } == 2)
            end.cancel()
            behind.cancel()
        }
    }

    @Test func `F20: a loop without work sleeps, even after a download that timed out`() async throws {
        let server = try RawServer { connection in _ = RawServer.read(from: connection) { _ in false } }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let url = "http://127.0.0.1:\(server.port)/a"
            let outcome = try await fetcher.fetch(url, of: .test(timeout: 50))
            #expect(outcome.kind == "timedOut")
            let loop = try #require(fetcher.loop)
            let before = try await loop.submit { loop.round.number }.get()
            // In 100 ms the loop wakes for this task only.
            let after = try await loop.scheduleTask(in: .milliseconds(100)) { loop.round.number }.futureResult.get()
            #expect(after - before <= 5)
        }
    }
}
