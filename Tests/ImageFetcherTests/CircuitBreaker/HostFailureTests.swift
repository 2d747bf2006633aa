import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// An origin that fails, seen from it: how often it is asked, and who waits for it meanwhile.
@Suite struct HostFailureTests {
    /// Not asked after so many failures: for hours, so that nothing in here depends on how fast it runs.
    private func origin(_ name: String = "test", failures: Int = 3, connections: Int = 32) -> Origin {
        var origin = Origin.test(name, connections: connections)
        origin.breaker = BreakerPolicy(
            failures: failures, backoff: 86_400_000, backoffMax: 86_400_000, retryAfterMax: 86_400_000)
        return origin
    }

    enum Trouble: String, CaseIterable, Sendable {
        case broken = "500 Internal Server Error"
        case badGateway = "502 Bad Gateway"
        case unavailable = "503 Service Unavailable"
        case tooMany = "429 Too Many Requests"
        case closed, reset, nonsense, halfAnImage

        func happen(to peer: Peer) {
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

    @Test(arguments: Trouble.allCases)
    func `F37: a host that fails three times in a row is not asked again, and others are`(trouble: Trouble) async throws
    {
        let broken = try TestOrigin(["/a": { _, peer in trouble.happen(to: peer) }])
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
                #expect(outcome.sentence.contains(broken.url("")) && outcome.sentence.contains(" ms more"))
            }
            #expect(broken.requests.count == 3)
            // Neither another host of the same origin nor another origin's way to this host is held up.
            var wide = origin()
            wide.allow = [other.url("/")]
            let elsewhere = await fetcher.outcome(other.url("/b"), of: wide, isNamedByClient: true)
            let otherwise = await fetcher.outcome(broken.url("/b"), of: origin("other"))
            #expect([elsewhere.kind, otherwise.kind] == ["image", "image"])

            let figures = fetcher.statistics
            #expect(figures[.rejected] == 20 && figures[.failedOrigin] == 23 && figures.uidsOpen == 1)
            // Nobody else is told, or held up.
            #expect(figures.hostsOpen == 0 && figures.origins["test"]?.retryIn == 0)
            let own = try #require(figures.origins["test"])
            #expect(own.counts.failures == 23 && own.counts[.rejected] == 20)
            #expect(own.counts[.requests] == 4 && own.longestRetryIn > 0)
            #expect(figures.origins["other"]?.longestRetryIn == 0)
        }
    }

    @Test func `F36, F37: an origin that hangs three times in a row is not asked again`() async throws {
        let server = try TestOrigin(["/a": { _, peer in peer.waitForEnd() }])
        defer { server.stop() }
        try await withFetcher { fetcher in
            var origin = origin()
            origin.timeout = 300
            // What is left of the time when its turn comes is enough to blame the host for.
            origin.connectTimeout = 1
            // On a busy machine, a download's time may be up before it begins: then it says nothing of the host.
            var hung = 0
            var last = await fetcher.outcome(server.url("/a"), of: origin)
            while last.kind == "timedOut", hung < 60 {
                hung += 1
                last = await fetcher.outcome(server.url("/a"), of: origin)
            }
            #expect(last.isRejected && hung >= 3, "\(hung) times, then \(last)")
        }
    }

    @Test(arguments: [
        "404 Not Found", "410 Gone", "401 Unauthorized", "403 Forbidden", "418 Teapot", "304 Not Modified",
    ])
    func `F37: what is not the host's failure is not held against it`(status: String) async throws {
        let server = try TestOrigin([
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
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            for path in ["/status", "/html", "/packed", "/longer", "/large"] {
                for _ in 0..<4 { _ = await fetcher.outcome(server.url(path), of: origin(failures: 1)) }
            }
            #expect(server.requests.count == 20)
            #expect(fetcher.statistics.hostsOpen == 0 && fetcher.statistics[.rejected] == 0)
        }
    }

    @Test func `F37: neither a cancelled download nor a refused address is held against a host`() async throws {
        let arrived = Gate()
        let server = try TestOrigin([
            "/slow": { _, peer in
                arrived.open()
                peer.waitForEnd()
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let origin = origin(failures: 1).at(server.url("/"))
            let target = DownloadTarget(url: server.url("/slow"), isNamedByClient: false)
            let handle = try fetcher.start(
                Download(uid: 1, origin: origin, target: target, token: nil, framing: .bare), onEnd: { _ in })
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
            #expect(first.sentence.contains("HTTP status \(status.prefix(3))") && second.isRejected, "\(second)")
            let left = try #require(fetcher.statistics.origins["test"]).longestRetryIn
            #expect((1...3_600_000).contains(left) && server.requests.count == 1)
        }
    }

    @Test(arguments: [
        ("429 Too Many", ["Retry-After: 3600"]), ("503 Slow Down", ["Retry-After: 3600"]), ("500 Broken", []),
    ])
    func `F68: what an origin answers one uid's token is that uid's own matter`(
        status: String, headers: [String]
    ) async throws {
        let server = try TestOrigin([
            "/a": { request, peer in
                let isHated = request.headers["authorization"] != "Bearer good"
                if isHated { peer.answer([], status: status, headers: headers) } else { peer.answer(TestImage.png) }
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let origin = origin(failures: 1)
            // Many uids, which one account may have.
            for uid in 1...20 as ClosedRange<UInt32> {
                for _ in 0..<3 {
                    let hated = await fetcher.outcome(server.url("/a"), of: origin, uid: uid, token: "bad")
                    #expect(hated.kind == "origin", "\(hated)")
                }
            }
            #expect(server.requests.count == 20 && fetcher.statistics[.rejected] == 40)
            for _ in 0..<3 {
                let loved = await fetcher.outcome(server.url("/a"), of: origin, uid: 1_000, token: "good")
                #expect(loved.kind == "image", "\(loved)")
            }
            #expect(fetcher.statistics.uidsOpen == 20 && fetcher.statistics.hostsOpen == 0)
        }
    }

    @Test func `F68: one uid's hanging requests keep no other uid from the host`() async throws {
        let server = try TestOrigin(["/hang": { _, peer in peer.waitForEnd() }])
        defer { server.stop() }
        try await withFetcher { fetcher in
            var origin = origin(failures: 1)
            (origin.timeout, origin.connectTimeout) = (1_000, 500)
            var last = await fetcher.outcome(server.url("/hang"), of: origin, uid: 1)
            // On a busy machine, a download's time may be up before it begins: then it says nothing of the host.
            for _ in 0..<60 where !last.isRejected {
                last = await fetcher.outcome(server.url("/hang"), of: origin, uid: 1)
            }
            #expect(last.isRejected, "\(last)")
            origin.timeout = 600_000
            let other = await fetcher.outcome(server.url("/a"), of: origin, uid: 2)
            #expect(other.kind == "image", "\(other)")
        }
    }

    @Test func `F68: a host that cannot be reached is not asked by anybody, whoever found out`() async throws {
        let nobody = "http://127.0.0.1:\(try TestSocket.freePort())/a"
        let nginx = try Nginx(files: [:])
        let port = nginx.securePort
        defer { nginx.stop() }
        try await withFetcher {
            $0.resolverOverrides = { ["unsigned.example:\(port):127.0.0.1"] }
        } _: { fetcher in
            for url in [nobody, "https://unsigned.example:\(port)/a"] {
                for uid in 1...3 as ClosedRange<UInt32> {
                    let tried = await fetcher.outcome(url, of: origin(), uid: uid)
                    #expect(tried.kind == "origin" && !tried.isRejected, "\(tried)")
                }
                let spared = await fetcher.outcome(url, of: origin(), uid: 4)
                #expect(spared.isRejected, "\(spared)")
            }
            let figures = fetcher.statistics
            #expect(figures.hostsOpen == 2 && figures.uidsOpen == 0)
            let own = try #require(figures.origins["test"])
            #expect(own.retryIn > 0)
        }
    }

    @Test(arguments: ["500 Broken", "403 Forbidden", "404 Not Found"])
    func `Retry-After means nothing with another status`(status: String) async throws {
        let server = try TestOrigin([
            "/a": { _, peer in peer.answer([], status: status, headers: ["Retry-After: 3600"]) }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            for _ in 0..<2 { _ = await fetcher.outcome(server.url("/a"), of: origin()) }
            #expect(server.requests.count == 2)
        }
    }

    @Test(.timeLimit(.minutes(5)))
    func `F37, F68: when a breaker opens, those of its uid that wait are told at once, and others' go on`()
        async throws
    {
        let arrived = Gate()
        let release = Gate()
        let server = try TestOrigin([
            "/first": { _, peer in
                arrived.open()
                release.block()
                peer.answer([], status: "500 Broken")
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let origin = origin(failures: 1, connections: 1)
            async let first = fetcher.outcome(server.url("/first"), of: origin)
            await arrived.opened()
            await withTaskGroup(of: DownloadOutcome.self) { group in
                for number in 0..<30 {
                    group.addTask {
                        await fetcher.outcome(server.url("/\(number)"), of: origin, uid: number < 20 ? 1_000 : 1)
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

    @Test func `F37: a redirect to a host that may not be asked is not followed`() async throws {
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
            #expect(first.sentence.contains("500") && second.isRejected)
            #expect(fine.requests.count == 2 && broken.requests.count == 1)
            let near = await fetcher.outcome(fine.url("/b"), of: origin)
            #expect(near.kind == "image")
        }
    }
}
