import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import ImageFetcher
@testable import ThumbnailCache

/// The one request that finds out for all whether a host can be reached again.
@Suite(.timeLimit(.minutes(3))) struct ProbeTests {
    @Test func `F68: who finds out with something slow, and cancels it, keeps nobody else from the host`() async throws
    {
        let port = try TestSocket.freePort()
        let url = "http://127.0.0.1:\(port)"
        var origin = Origin.test().at(url + "/")
        origin.breaker = BreakerPolicy(failures: 1, backoff: 1, backoffMax: 1)
        try await withFetcher { [origin] fetcher in
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
            var slow: (any DownloadHandle)?
            while slow == nil {
                do { slow = try fetcher.start(download, onEnd: { _ in }) } catch { await Task.yield() }
            }
            await arrived.opened()
            let meanwhile = await fetcher.outcome(url + "/a", of: origin, uid: 2)
            #expect(meanwhile.kind == "image", "\(meanwhile)")
            slow?.cancel()
            let after = await fetcher.outcome(url + "/a", of: origin, uid: 2)
            #expect(after.kind == "image", "\(after)")
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
        let finding = Transfer.finding(afterTimeout: row.given, hasSentNothing: true, of: origin)
        #expect(finding == (row.isUnreachable ? .unreachable : .nothing))
        #expect(Transfer.finding(afterTimeout: 1, hasSentNothing: false, of: origin) == .nothing)
        let sent = Transfer.finding(afterTimeout: row.timeout, hasSentNothing: false, of: origin)
        #expect(sent == .failed(retryAfter: nil))
    }
}
