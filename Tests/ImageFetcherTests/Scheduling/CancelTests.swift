import CacheFakes
import Logging
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

@Suite struct CancelTests {
    /// Starts a download whose outcome is recorded.
    private func start(
        _ fetcher: CurlImageFetcher, _ url: String, of origin: Origin = .test(), account: UInt32 = 1000,
        into outcomes: NIOLockedValueBox<[String]>
    ) throws -> any DownloadHandle {
        try fetcher.start(.test(url, of: origin, account: account)) { outcome in
            outcomes.withLockedValue { $0.append(outcome.kind) }
        }
    }

    @Test(arguments: [
        "", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\u{89}PNG",
    ])
    func `F40: a cancelled download reports no outcome, and its connection is closed`(start answer: String) async throws
    {
        let arrived = Gate()
        let ended = Gate()
        let server = try TestOrigin([
            "/a": { _, peer in
                peer.send(answer)
                arrived.open()
                peer.waitForEnd()
                ended.open()
            }
        ])
        defer { server.stop() }
        let outcomes = NIOLockedValueBox<[String]>([])
        try await withFetcher { fetcher in
            let handle = try start(fetcher, server.url("/a"), into: outcomes)
            await arrived.opened()
            handle.cancel()
            handle.cancel()
            await ended.opened()
            // The fetcher still works.
            let after = try await fetcher.fetch(server.url("/b"))
            #expect(after.kind == "image")
            #expect(fetcher.statistics.inFlight == 0 && fetcher.statistics[.cancelled] == 1)
        }
        #expect(outcomes.withLockedValue { $0 } == [])
    }

    @Test func `F40: cancelling a download that has ended does nothing`() async throws {
        try await withOrigin { server, fetcher in
            let ended = Gate()
            let handle = try fetcher.start(.test(server.url("/a"))) { _ in ended.open() }
            await ended.opened()
            handle.cancel()
            #expect(fetcher.statistics[.images] == 1 && fetcher.statistics[.cancelled] == 0)
        }
    }

    @Test func `F40: cancelling does not wait for a fetcher's thread that is blocked in libcurl`() async throws {
        let server = try TestOrigin()
        defer { server.stop() }
        let gate = Gate()
        let outcomes = NIOLockedValueBox<[String]>([])
        try await withFetcher {
            $0.hold(at: gate)
        } _: { fetcher in
            let first = try start(fetcher, server.url("/a"), into: outcomes)
            await gate.reached()
            let second = try start(fetcher, server.url("/b"), into: outcomes)
            // If one of these waited for the thread, the gate would never open.
            first.cancel()
            second.cancel()
            gate.open()
            let after = try await fetcher.fetch(server.url("/c"))
            #expect(after.kind == "image")
            #expect(server.requests.map(\.path) == ["/c"])
        }
        #expect(outcomes.withLockedValue { $0 } == [])
    }

    @Test func `a queued download that is cancelled is removed and never sent`() async throws {
        let release = Gate()
        let server = try TestOrigin(["/slow": TestOrigin.held(at: release)])
        defer { server.stop() }
        let outcomes = NIOLockedValueBox<[String]>([])
        try await withFetcher { fetcher in
            let origin = Origin.test(connections: 1)
            async let slow = fetcher.fetch(server.url("/slow"), of: origin)
            await release.reached()
            let waiting = try start(fetcher, server.url("/never"), of: origin, into: outcomes)
            #expect(fetcher.statistics.queued == 1)
            waiting.cancel()
            #expect(fetcher.statistics.queued == 0)
            async let next = fetcher.fetch(server.url("/next"), of: origin)
            release.open()
            let kinds = try await [slow.kind, next.kind]
            #expect(kinds == ["image", "image"])
            #expect(server.requests.map(\.path) == ["/slow", "/next"])
        }
        #expect(outcomes.withLockedValue { $0 } == [])
    }

    @Test func `shutdown ends each active or queued download once and rejects later ones`() async throws {
        let arrived = Gate()
        let server = try TestOrigin(["/slow": TestOrigin.hanging(signaling: arrived)])
        defer { server.stop() }
        let outcomes = NIOLockedValueBox<[String]>([])
        try await withFetcher { fetcher in
            let origin = Origin.test(connections: 2)
            let cancelled = try start(fetcher, server.url("/slow"), of: origin, into: outcomes)
            for _ in 0..<5 { _ = try start(fetcher, server.url("/slow"), of: origin, into: outcomes) }
            await arrived.opened()
            cancelled.cancel()
            fetcher.shutdown()
            #expect(outcomes.withLockedValue { $0 } == Array(repeating: "shuttingDown", count: 5))
            #expect(throws: FetchFailure.shuttingDown) { try start(fetcher, server.url("/a"), into: outcomes) }
            fetcher.shutdown()
            let statistics = fetcher.statistics
            #expect(statistics.inFlight == 0 && statistics.queued == 0)
        }
    }

    @Test func `a fetcher that was not started rejects downloads and can be shut down`() throws {
        let fetcher = CurlImageFetcher(
            settings: FetcherSettings(version: "tests", logLevel: "info"), log: Logger(label: "tests"))
        let outcomes = NIOLockedValueBox<[String]>([])
        #expect(throws: FetchFailure.shuttingDown) { try start(fetcher, "http://127.0.0.1:1/", into: outcomes) }
        fetcher.shutdown()
        #expect(throws: FetcherError.self) { try fetcher.start() }
    }

    @Test func `a fetcher can be started only once`() async throws {
        try await withFetcher { fetcher in
            #expect(throws: FetcherError.self) { try fetcher.start() }
        }
    }
}
