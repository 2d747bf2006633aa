import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// The one request that finds out whether a host is back: for all whether it can be reached, for a uid whether it
/// answers.
@Suite(.timeLimit(.minutes(5))) struct ProbeTests {
    /// Not asked after one failure, for a millisecond.
    private var brief: Origin {
        var origin = Origin.test()
        origin.breaker = BreakerPolicy(failures: 1, backoff: 1, backoffMax: 1)
        return origin
    }

    @Test func `F37: exactly one request finds out whether a host is back, and then all are sent`() async throws {
        let isBroken = NIOLockedValueBox(true)
        let arrived = Gate()
        let release = Gate()
        let server = try TestOrigin([
            "/a": { _, peer in
                guard !isBroken.withLockedValue({ $0 }) else { return peer.answer([], status: "500 Broken") }
                arrived.open()
                release.block()
                peer.answer(TestImage.png)
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let origin = brief
            _ = await fetcher.outcome(server.url("/a"), of: origin)
            isBroken.withLockedValue { $0 = false }
            async let probe = asked(fetcher, server.url("/a"), of: origin)
            await arrived.opened()
            for _ in 0..<20 {
                let other = await fetcher.outcome(server.url("/a"), of: origin)
                #expect(other.sentence.contains("one request is finding out"), "\(other)")
            }
            #expect(server.requests.count == 2)
            release.open()
            let found = await probe
            #expect(found.kind == "image")
            for _ in 0..<5 {
                let after = await fetcher.outcome(server.url("/a"), of: origin)
                #expect(after.kind == "image")
            }
            #expect(fetcher.statistics.hostsOpen == 0)
        }
    }

    @Test func `F37: when the request that finds out is cancelled, another finds out`() async throws {
        let arrived = Gate()
        let server = try TestOrigin([
            "/broken": { _, peer in peer.answer([], status: "500 Broken") },
            "/hang": { _, peer in
                arrived.open()
                peer.waitForEnd()
            },
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let origin = brief.at(server.url("/"))
            _ = await fetcher.outcome(server.url("/broken"), of: origin)
            let target = DownloadTarget(url: server.url("/hang"), isNamedByClient: false)
            let download = Download(uid: 1, origin: origin, target: target, token: nil, framing: .bare)
            let probe = await start(fetcher, download)
            await arrived.opened()
            probe.cancel()
            let next = await asked(fetcher, server.url("/a"), of: origin)
            #expect(next.kind == "image")
        }
    }

    @Test func `F68: who finds out with something slow, and cancels it, keeps nobody else from the host`() async throws
    {
        let port = try TestSocket.freePort()
        let url = "http://127.0.0.1:\(port)"
        let origin = brief.at(url + "/")
        try await withFetcher { fetcher in
            let down = await fetcher.outcome(url + "/a", of: origin, uid: 3)
            #expect(down.kind == "origin" && !down.isRejected, "\(down)")

            let arrived = Gate()
            let server = try TestOrigin(
                port: port,
                [
                    "/slow": { _, peer in
                        arrived.open()
                        peer.waitForEnd()
                    }
                ])
            defer { server.stop() }
            let target = DownloadTarget(url: url + "/slow", isNamedByClient: false)
            let download = Download(uid: 1, origin: origin, target: target, token: nil, framing: .bare)
            let slow = await start(fetcher, download)
            await arrived.opened()
            let meanwhile = await fetcher.outcome(url + "/a", of: origin, uid: 2)
            #expect(meanwhile.kind == "image", "\(meanwhile)")
            slow.cancel()
            let after = await fetcher.outcome(url + "/a", of: origin, uid: 2)
            #expect(after.kind == "image", "\(after)")
        }
    }

    /// What becomes of a download that the host is asked for, after as many as are rejected.
    private func asked(_ fetcher: CurlImageFetcher, _ url: String, of origin: Origin) async -> DownloadOutcome {
        while true {
            let outcome = await fetcher.outcome(url, of: origin)
            if !outcome.isRejected { return outcome }
            await Task.yield()
        }
    }

    /// A download that the host is asked for, after as many as are rejected.
    private func start(_ fetcher: CurlImageFetcher, _ download: Download) async -> any DownloadHandle {
        while true {
            do {
                return try fetcher.start(download, onEnd: { _ in })
            } catch {
                await Task.yield()
            }
        }
    }

    struct Timeout: Sendable {
        let given: Int64
        let isUnreachable: Bool
        let connectTimeout: Int64
        let timeout: Int64
    }

    @Test(arguments: [
        Timeout(given: 2_000, isUnreachable: true, connectTimeout: 2_000, timeout: 4_000),
        Timeout(given: 1_999, isUnreachable: false, connectTimeout: 2_000, timeout: 4_000),
        Timeout(given: 2_900, isUnreachable: false, connectTimeout: 3_000, timeout: 4_000),
        Timeout(given: 4_499, isUnreachable: false, connectTimeout: 9_000, timeout: 5_000),
        Timeout(given: 4_999, isUnreachable: true, connectTimeout: 9_000, timeout: 5_000),
    ])
    func `F68: no connection in a time that the asker itself cut short says nothing to others`(row: Timeout) {
        var origin = Origin.test(timeout: row.timeout)
        origin.connectTimeout = row.connectTimeout
        let finding = Transfer.finding(
            afterTimeout: row.given, of: origin.timeout, hasSentNothing: true, connectTimeout: origin.connectTimeout)
        #expect(finding == (row.isUnreachable ? .unreachable : .nothing))
        let short = Transfer.finding(
            afterTimeout: 1, of: origin.timeout, hasSentNothing: false, connectTimeout: origin.connectTimeout)
        #expect(short == .nothing)
        let sent = Transfer.finding(
            afterTimeout: row.timeout, of: origin.timeout, hasSentNothing: false,
            connectTimeout: origin.connectTimeout)
        #expect(sent == .failed(retryAfter: nil))
    }
}
