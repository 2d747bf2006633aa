import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// The probe request of an open breaker. A shared breaker closes when the host can be reached, an account's breaker
/// when it answers.
@Suite(.timeLimit(.minutes(5))) struct ProbeTests {
    /// An origin whose breaker opens after one failure, for a millisecond.
    private var brief: Origin {
        var origin = Origin.test()
        origin.breaker = BreakerPolicy(failures: 1, backoff: 1, backoffMax: 1)
        return origin
    }

    @Test func `F37: exactly one probe is sent, and after its success all requests are`() async throws {
        let isBroken = NIOLockedValueBox(true)
        let release = Gate()
        try await withOrigin([
            "/a": { _, peer in
                guard !isBroken.withLockedValue({ $0 }) else { return peer.answer([], status: "500 Broken") }
                release.pass()
                peer.answer(TestImage.png)
            }
        ]) { server, fetcher in
            let origin = brief
            _ = await fetcher.outcome(server.url("/a"), of: origin)
            isBroken.withLockedValue { $0 = false }
            async let probe = outcomeOnceAdmitted(fetcher, server.url("/a"), of: origin)
            await release.reached()
            for _ in 0..<20 {
                let other = await fetcher.outcome(server.url("/a"), of: origin)
                #expect(other.reason.contains("probe request is in flight"), "\(other)")
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

    @Test func `a refusal states how long the breaker of the account stays open, and sends nothing`() async throws {
        try await withOrigin(["/a": { _, peer in peer.answer([], status: "500 Broken") }]) { server, fetcher in
            var origin = Origin.test()
            origin.breaker = BreakerPolicy(failures: 1, backoff: 3_600_000, backoffMax: 3_600_000)
            let url = server.url("/a")
            #expect(fetcher.refusal(of: .download(.test(url, of: origin))) == nil)
            _ = await fetcher.outcome(url, of: origin, account: 1)
            let refusal = try #require(fetcher.refusal(of: .download(.test(url, of: origin))))
            #expect(refusal.failure.kind == .circuitOpen && (1...3_600_000).contains(refusal.retryIn ?? 0))
            #expect(fetcher.refusal(of: .download(.test(url, of: origin, account: 1_001))) == nil)
            #expect(server.requests.count == 1)
        }
    }

    @Test func `F37: after a cancelled probe, another request is the probe`() async throws {
        let arrived = Gate()
        try await withOrigin([
            "/broken": { _, peer in peer.answer([], status: "500 Broken") },
            "/hang": TestOrigin.hanging(signaling: arrived),
        ]) { server, fetcher in
            let origin = brief.at(server.url("/"))
            _ = await fetcher.outcome(server.url("/broken"), of: origin)
            let probe = await startOnceAdmitted(fetcher, .test(server.url("/hang"), of: origin))
            await arrived.opened()
            probe.cancel()
            let next = await outcomeOnceAdmitted(fetcher, server.url("/a"), of: origin)
            #expect(next.kind == "image")
        }
    }

    @Test func `F68: a slow probe that is cancelled does not keep other accounts from the host`() async throws {
        let port = try TestSocket.freePort()
        let url = "http://127.0.0.1:\(port)"
        let origin = brief.at(url + "/")
        try await withFetcher { fetcher in
            let down = await fetcher.outcome(url + "/a", of: origin, account: 3)
            #expect(down.kind == "origin" && !down.isRejected, "\(down)")

            let arrived = Gate()
            let server = try TestOrigin(
                port: port,
                [
                    "/slow": TestOrigin.hanging(signaling: arrived)
                ])
            defer { server.stop() }
            let slow = await startOnceAdmitted(fetcher, .test(url + "/slow", of: origin))
            await arrived.opened()
            let meanwhile = await fetcher.outcome(url + "/a", of: origin, account: 2)
            #expect(meanwhile.kind == "image", "\(meanwhile)")
            slow.cancel()
            let after = await fetcher.outcome(url + "/a", of: origin, account: 2)
            #expect(after.kind == "image", "\(after)")
        }
    }

    /// The outcome of a download that is repeated until it is not rejected.
    private func outcomeOnceAdmitted(_ fetcher: CurlImageFetcher, _ url: String, of origin: Origin) async
        -> DownloadOutcome
    {
        while true {
            let outcome = await fetcher.outcome(url, of: origin)
            if !outcome.isRejected { return outcome }
            await Task.yield()
        }
    }

    /// Starts a download, repeatedly until it is not rejected.
    private func startOnceAdmitted(_ fetcher: CurlImageFetcher, _ download: Download) async -> any DownloadHandle {
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
    func `F68: a connect timeout that the client shortened does not affect other accounts`(row: Timeout) {
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
