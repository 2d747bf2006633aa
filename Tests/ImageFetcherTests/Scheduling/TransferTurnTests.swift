import NIOConcurrencyHelpers
import NIOCore
import SocketLoops
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// How the downloads' loop shares out its time.
@Suite(.timeLimit(.minutes(5))) struct TransferTurnTests {
    private func start(
        _ fetcher: CurlImageFetcher, _ url: String, of origin: Origin = .test(), uid: UInt32,
        onEnd: @escaping @Sendable (DownloadOutcome) -> Void = { _ in }
    ) throws -> any DownloadHandle {
        let target = DownloadTarget(url: url, isNamedByClient: false)
        let download = Download(uid: uid, origin: origin.at(url), target: target, token: nil, framing: .bare)
        return try fetcher.start(download, onEnd: onEnd)
    }

    @Test func `I8: who downloads one image does not wait for the many that another began with before`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        let (stuck, release) = (Gate(), Gate())
        try await withFetcher {
            $0.hold(at: stuck, until: release)
        } _: { fetcher in
            let order = NIOLockedValueBox<[UInt32]>([])
            let all = Gate()
            let ended: @Sendable (UInt32) -> Void = { uid in
                if order.withLockedValue({
                    $0.append(uid); return $0.count
                }) == 32 {
                    all.open()
                }
            }
            // No place is short, so all begin at once: what is shared out is the loop's time.
            for number in 0..<31 {
                _ = try start(fetcher, server.url("/\(number)"), uid: 1) { _ in ended(1) }
                if number == 0 { await stuck.opened() }
            }
            _ = try start(fetcher, server.url("/one"), uid: 2) { _ in ended(2) }
            release.open()
            await all.opened()
            let asked = server.requests.map(\.path)
            #expect(asked.firstIndex(of: "/one") ?? .max < 16, "\(asked)")
        }
    }

    @Test func `I8: who waits for another's connection goes on when that one is cancelled`() async throws {
        let (first, second) = (Gate(), Gate())
        let count = NIOLockedValueBox(0)
        // Takes connections and never answers: TLS does not come about.
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
            let ahead = try start(fetcher, "\(url)/a", uid: 1)
            await first.opened()
            // May share the connection, and so waits for what comes of it.
            let behind = try start(fetcher, "\(url)/b", uid: 2)
            // Within 200 ms of a connection's begin libcurl wants to be called, and would see what nobody told it. This
            // comes after that on the loop's own clock; the next timer is that of the connection, ten minutes off.
            let loop = try #require(fetcher.loop)
            try await loop.scheduleTask(in: .milliseconds(250)) {}.futureResult.get()
            #expect(count.withLockedValue { $0 } == 1)
            ahead.cancel()
            // Not to wait for ever where nobody goes on.
            let end = loop.scheduleTask(in: .seconds(20)) { second.open() }
            await second.opened()
            #expect(count.withLockedValue { $0 } == 2)
            end.cancel()
            behind.cancel()
        }
    }

    @Test func `F20: a loop with nothing to do sleeps, also when its last download ended by its time`() async throws {
        let server = try RawServer { connection in _ = RawServer.read(from: connection) { _ in false } }
        defer { server.stop() }
        try await withFetcher { fetcher in
            let url = "http://127.0.0.1:\(server.port)/a"
            let outcome = try await fetcher.fetch(url, of: .test(timeout: 50))
            #expect(outcome.kind == "timedOut")
            let loop = try #require(fetcher.loop)
            let before = try await loop.submit { loop.round.number }.get()
            // A tenth of a second of the loop's own clock: it comes round for this, and for nothing else.
            let after = try await loop.scheduleTask(in: .milliseconds(100)) { loop.round.number }.futureResult.get()
            #expect(after - before <= 5)
        }
    }
}
