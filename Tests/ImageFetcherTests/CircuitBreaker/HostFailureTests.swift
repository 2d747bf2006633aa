import CacheFakes
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// Failing origins: the requests that reach them, and the effect on other origins and accounts.
@Suite struct HostFailureTests {
    /// An origin whose breaker opens after that many failures, for hours, so that no test depends on its speed.
    private func origin(_ name: String = "test", failures: Int = 3, connections: Int = 32) -> Origin {
        var origin = Origin.test(name, connections: connections)
        origin.breaker = BreakerPolicy(
            failures: failures, backoff: 86_400_000, backoffMax: 86_400_000, retryAfterMax: 86_400_000)
        return origin
    }

    enum Failure: String, CaseIterable, Sendable {
        case broken = "500 Internal Server Error"
        case badGateway = "502 Bad Gateway"
        case unavailable = "503 Service Unavailable"
        case tooMany = "429 Too Many Requests"
        case closed, reset, nonsense, halfAnImage

        func cause(on peer: Peer) {
            switch self {
            case .broken, .badGateway, .unavailable, .tooMany: peer.answer([], status: rawValue)
            case .closed: peer.hangUp()
            case .reset: peer.reset()
            case .nonsense:
                peer.send("SSH-2.0-OpenSSH\r\n")
                peer.hangUp()
            case .halfAnImage:
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc")
                peer.hangUp()
            }
        }
    }

    @Test(arguments: Failure.allCases)
    func `F37: after three failures in a row, requests to the host are suspended, but not to others`(failure: Failure)
        async throws
    {
        let broken = try TestOrigin(["/a": { _, peer in failure.cause(on: peer) }])
        let other = try TestOrigin()
        defer {
            broken.stop()
            other.stop()
        }
        try await withFetcher { fetcher in
            for _ in 0..<3 {
                let outcome = await fetcher.outcome(broken.url("/a"), of: origin())
                #expect(outcome.kind == "origin" && !outcome.isRejected, "\(outcome)")
            }
            for _ in 0..<20 {
                let outcome = await fetcher.outcome(broken.url("/a"), of: origin())
                #expect(outcome.kind == "origin" && outcome.isRejected, "\(outcome)")
                #expect(outcome.reason.contains(broken.url("")) && outcome.reason.contains("are suspended for"))
            }
            #expect(broken.requests.count == 3)
            // Requests to another host of the same origin, and of another origin to this host, are sent.
            var wide = origin()
            wide.allow = [other.url("/")]
            let elsewhere = await fetcher.outcome(other.url("/b"), of: wide, isNamedByClient: true)
            let otherwise = await fetcher.outcome(broken.url("/b"), of: origin("other"))
            #expect([elsewhere.kind, otherwise.kind] == ["image", "image"])

            let figures = fetcher.statistics
            #expect(figures[.rejected] == 20 && figures[.failedOrigin] == 23 && figures.accountsOpen == 1)
            // The failures are counted for this origin only.
            #expect(figures.hostsOpen == 0 && figures.origins["test"]?.retryIn == 0)
            let own = try #require(figures.origins["test"])
            #expect(own.counts[.failedOrigin] == 23 && own.counts[.rejected] == 20)
            #expect(own.counts[.requests] == 4 && own.longestRetryIn > 0)
            #expect(figures.origins["other"]?.longestRetryIn == 0)
        }
    }

    @Test func `F36, F37: after three timeouts in a row, requests to an origin are suspended`() async throws {
        try await withOrigin(["/a": { _, peer in peer.waitForEnd() }]) { server, fetcher in
            var origin = origin()
            origin.timeout = 300
            // A timeout is a failure of the host if at least this time remained when the request began.
            origin.connectTimeout = 1
            // On a busy machine, a download may time out before it begins, which is not a failure of the host.
            var timeouts = 0
            var last = await fetcher.outcome(server.url("/a"), of: origin)
            while last.kind == "timedOut", timeouts < 60 {
                timeouts += 1
                last = await fetcher.outcome(server.url("/a"), of: origin)
            }
            #expect(last.isRejected && timeouts >= 3, "\(timeouts) timeouts, then \(last)")
        }
    }

    @Test(arguments: [
        "404 Not Found", "410 Gone", "401 Unauthorized", "403 Forbidden", "418 Teapot", "304 Not Modified",
    ])
    func `F37: responses that are no failure do not open the breaker`(status: String) async throws {
        try await withOrigin([
            "/status": { _, peer in peer.answer([], status: status) },
            "/html": { _, peer in peer.answer(Array("<html>".utf8)) },
            "/packed": { _, peer in peer.answer(TestImage.png, headers: ["Content-Encoding: gzip"]) },
            "/longer": { _, peer in
                peer.send(Array("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n".utf8) + TestImage.png)
                peer.waitForEnd()
            },
            "/large": { _, peer in
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
                peer.waitForEnd()
            },
        ]) { server, fetcher in
            for path in ["/status", "/html", "/packed", "/longer", "/large"] {
                for _ in 0..<4 { _ = await fetcher.outcome(server.url(path), of: origin(failures: 1)) }
            }
            #expect(server.requests.count == 20)
            #expect(fetcher.statistics.hostsOpen == 0 && fetcher.statistics[.rejected] == 0)
        }
    }

    @Test func `F37: cancelled downloads and refused addresses do not open the breaker`() async throws {
        let arrived = Gate()
        try await withOrigin(["/slow": TestOrigin.hanging(signaling: arrived)]) { server, fetcher in
            let origin = origin(failures: 1).at(server.url("/"))
            let handle = try fetcher.start(.test(server.url("/slow"), of: origin), onEnd: { _ in })
            await arrived.opened()
            handle.cancel()
            let after = await fetcher.outcome(server.url("/a"), of: origin)
            #expect(after.kind == "image")
            var bound = origin
            bound.allowPrivateAddresses = false
            for _ in 0..<3 {
                let denied = await fetcher.outcome(server.url("/a"), of: bound)
                #expect(denied.kind == "denied")
            }
            #expect(fetcher.statistics.hostsOpen == 0)
        }
    }

    @Test(arguments: [
        ("503 Slow Down", "Retry-After: 3600"), ("429 Too Many", "Retry-After: 3600"),
        ("503 Slow Down", "Retry-After: Sun, 06 Nov 1994 09:49:37 GMT"),
        ("429 Too Many", "Date: Mon, 07 Nov 1994 08:00:00 GMT\r\nRetry-After: Mon, 07 Nov 1994 09:00:00 GMT"),
    ])
    func `F37: Retry-After is obeyed the first time`(status: String, field: String) async throws {
        let server = try TestOrigin(["/a": { _, peer in peer.answer([], status: status, headers: [field]) }])
        defer { server.stop() }
        try await withFetcher {
            $0.wallClock = { 784_111_777 }
            $0.draw = { $0.lowerBound }
        } _: { fetcher in
            var origin = origin(failures: 1_000)
            origin.breaker.backoff = 1
            let first = await fetcher.outcome(server.url("/a"), of: origin)
            let second = await fetcher.outcome(server.url("/b"), of: origin)
            #expect(first.reason.contains("HTTP status \(status.prefix(3))") && second.isRejected, "\(second)")
            let left = try #require(fetcher.statistics.origins["test"]).longestRetryIn
            #expect((1...3_600_000).contains(left) && server.requests.count == 1)
        }
    }

    @Test(arguments: [
        ("429 Too Many", ["Retry-After: 3600"]), ("503 Slow Down", ["Retry-After: 3600"]), ("500 Broken", []),
    ])
    func `F68: failure responses to one account do not affect other accounts`(
        status: String, headers: [String]
    ) async throws {
        try await withOrigin([
            "/a": { request, peer in
                let isBad = request.headers["authorization"] != "Bearer good"
                if isBad { peer.answer([], status: status, headers: headers) } else { peer.answer(TestImage.png) }
            }
        ]) { server, fetcher in
            let origin = origin(failures: 1)
            // Many accounts fail.
            for account in 1...20 as ClosedRange<UInt32> {
                for _ in 0..<3 {
                    let rejected = await fetcher.outcome(server.url("/a"), of: origin, account: account, token: "bad")
                    #expect(rejected.kind == "origin", "\(rejected)")
                }
            }
            #expect(server.requests.count == 20 && fetcher.statistics[.rejected] == 40)
            for _ in 0..<3 {
                let other = await fetcher.outcome(server.url("/a"), of: origin, account: 1_000, token: "good")
                #expect(other.kind == "image", "\(other)")
            }
            #expect(fetcher.statistics.accountsOpen == 20 && fetcher.statistics.hostsOpen == 0)
        }
    }

    @Test func `F68: timeouts of one account do not keep other accounts from the host`() async throws {
        try await withOrigin(["/hang": { _, peer in peer.waitForEnd() }]) { server, fetcher in
            var origin = origin(failures: 1)
            (origin.timeout, origin.connectTimeout) = (1_000, 500)
            var last = await fetcher.outcome(server.url("/hang"), of: origin, account: 1)
            // On a busy machine, a download may time out before it begins, which is not a failure of the host.
            for _ in 0..<60 where !last.isRejected {
                last = await fetcher.outcome(server.url("/hang"), of: origin, account: 1)
            }
            #expect(last.isRejected, "\(last)")
            origin.timeout = 600_000
            let other = await fetcher.outcome(server.url("/a"), of: origin, account: 2)
            #expect(other.kind == "image", "\(other)")
        }
    }

    @Test func `F68: a connection failure suspends requests of all accounts`() async throws {
        let closed = "http://127.0.0.1:\(try TestSocket.freePort())/a"
        let nginx = try Nginx(files: [:])
        let port = nginx.securePort
        defer { nginx.stop() }
        try await withFetcher {
            $0.resolverOverrides = { ["unsigned.example:\(port):127.0.0.1"] }
        } _: { fetcher in
            for url in [closed, "https://unsigned.example:\(port)/a"] {
                for account in 1...3 as ClosedRange<UInt32> {
                    let tried = await fetcher.outcome(url, of: origin(), account: account)
                    #expect(tried.kind == "origin" && !tried.isRejected, "\(tried)")
                }
                let suspended = await fetcher.outcome(url, of: origin(), account: 4)
                #expect(suspended.isRejected, "\(suspended)")
            }
            let figures = fetcher.statistics
            #expect(figures.hostsOpen == 2 && figures.accountsOpen == 0)
            let own = try #require(figures.origins["test"])
            #expect(own.retryIn > 0)
        }
    }

    @Test(arguments: ["500 Broken", "403 Forbidden", "404 Not Found"])
    func `Retry-After is ignored with other statuses`(status: String) async throws {
        try await withOrigin([
            "/a": { _, peer in peer.answer([], status: status, headers: ["Retry-After: 3600"]) }
        ]) { server, fetcher in
            for _ in 0..<2 { _ = await fetcher.outcome(server.url("/a"), of: origin()) }
            #expect(server.requests.count == 2)
        }
    }

    @Test(.timeLimit(.minutes(5)))
    func `F37, F68: when a breaker opens, queued downloads of its account fail at once, and others continue`()
        async throws
    {
        let release = Gate()
        try await withOrigin([
            "/first": { _, peer in
                release.pass()
                peer.answer([], status: "500 Broken")
            }
        ]) { server, fetcher in
            let origin = origin(failures: 1, connections: 1)
            async let first = fetcher.outcome(server.url("/first"), of: origin)
            await release.reached()
            await withTaskGroup(of: DownloadOutcome.self) { group in
                for number in 0..<30 {
                    group.addTask {
                        await fetcher.outcome(server.url("/\(number)"), of: origin, account: number < 20 ? 1_000 : 1)
                    }
                }
                while fetcher.statistics.queued < 30 { await Task.yield() }
                release.open()
                var kinds: [String: Int] = [:]
                for await outcome in group { kinds[outcome.isRejected ? "rejected" : outcome.kind, default: 0] += 1 }
                #expect(kinds == ["rejected": 20, "image": 10])
            }
            _ = await first
            #expect(server.requests.count == 11)
            #expect(fetcher.statistics.queued == 0 && fetcher.statistics[.rejected] == 20)
        }
    }

    @Test func `F37: a redirect to a host with an open breaker is not followed`() async throws {
        let broken = try TestOrigin(["/a": { _, peer in peer.answer([], status: "500 Broken") }])
        let fine = try TestOrigin(["/away": { _, peer in peer.redirect(to: broken.url("/a")) }])
        defer {
            broken.stop()
            fine.stop()
        }
        try await withFetcher { fetcher in
            var origin = origin(failures: 1)
            origin.url = fine.url("/{profile}")
            origin.allow = [broken.url("/")]
            let first = await fetcher.outcome(fine.url("/away"), of: origin)
            let second = await fetcher.outcome(fine.url("/away"), of: origin)
            #expect(first.reason.contains("500") && second.isRejected)
            #expect(fine.requests.count == 2 && broken.requests.count == 1)
            let near = await fetcher.outcome(fine.url("/b"), of: origin)
            #expect(near.kind == "image")
        }
    }
}
