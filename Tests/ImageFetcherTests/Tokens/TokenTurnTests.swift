import CacheFakes
import HelperProtocol
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Order, number and timeouts of token requests.
@Suite(.timeLimit(.minutes(5))) struct TokenTurnTests {
    @Test func `I4: a token request has its full timeout once it begins, so that a new refresh token is not lost`()
        async throws
    {
        let late = Gate()
        let server = try TokenServer { _ in
            late.pass()
            return TokenServer.response(TokenTests.good)
        }
        defer {
            late.open()
            server.stop()
        }
        try await withFetcher {
            $0.minimumTokenTimeout = 600_000
        } _: { fetcher in
            async let outcome = fetcher.token(server.url, timeout: 3_000)
            await late.reached()
            // Waits until the time has passed within which the request had to begin.
            let end = NIODeadline.now() + .milliseconds(3_100)
            while NIODeadline.now() < end { try await Task.sleep(for: .milliseconds(5)) }
            late.open()
            let result = try await outcome
            #expect(result == .success(TokenTests.grant("t1", 3_600, "r2")))
        }
    }

    @Test func `F37: an endpoint that hangs does not delay other origins, and its own requests time out`()
        async throws
    {
        let silent = try TokenServer { _ in [] }
        let server = try TokenServer { _ in TokenServer.response(TokenTests.good) }
        defer {
            silent.stop()
            server.stop()
        }
        try await withFetcher { fetcher in
            let hanging = try (0..<3 * TokenTransfer.maximumPerOrigin).map { _ in
                try fetcher.refresh(.to(silent.url, origin: "silent")) { _ in
                    Issue.record("a silent endpoint causes an outcome before the timeout")
                }
            }
            check(try await fetcher.token(server.url), "grant")
            #expect(silent.connections <= TokenTransfer.maximumPerOrigin)
            // A queued request gets its failure when it times out.
            let late = try await fetcher.token(silent.url, origin: "silent", timeout: 50)
            #expect(late.kind == "timedOut" && late.reason.contains("in the queue"), "\(late)")
            for handle in hanging { handle.cancel() }
            check(try await fetcher.token(server.url, origin: "silent"), "grant")
        }
    }

    @Test(
        arguments: [
            ("503 Busy", ["Retry-After: 600"], 1_000, 1), ("429 Slow", ["Retry-After: 600"], 1_000, 1),
            ("500 Broken", [], 1, 1), ("500 Broken", [], 1_000, 3), ("400 Bad", [], 1, 1), ("401 No", [], 1, 1),
            ("403 No", [], 1_000, 3),
            ("200 OK", [], 1, 3),
        ] as [(String, [String], Int, Int)])
    func `F37, F68: failures, rejections and Retry-After of an endpoint suspend requests of that account only`(
        status: String, headers: [String], failures: Int, requests: Int
    ) async throws {
        let server = try TokenServer { _ in TokenServer.response("{}", status: status, headers: headers) }
        defer { server.stop() }
        try await withFetcher {
            $0.draw = { $0.upperBound }
        } _: { fetcher in
            func request(as name: String, account: UInt32 = 1) async throws -> Result<TokenGrant, FetchFailure> {
                var origin = Origin.test(name)
                (origin.breaker.failures, origin.breaker.backoff) = (failures, 600_000)
                (origin.breaker.backoffMax, origin.breaker.retryAfterMax) = (600_000, 600_000)
                let endpoint = TokenEndpoint(url: server.url, clientID: "c")
                return try await fetcher.token(
                    TokenRequest(account: account, origin: origin, endpoint: endpoint, refreshToken: Secret("r".utf8)))
            }
            for number in 1...3 {
                let outcome = try await request(as: "one")
                #expect((outcome.kind == "circuitOpen") == (number > requests), "\(outcome)")
            }
            #expect(server.requests.count == requests)
            #expect(try await request(as: "one", account: 2).kind != "circuitOpen")
            // Failures with one origin's settings do not affect another origin.
            #expect(try await request(as: "other").kind != "circuitOpen")
        }
    }

    @Test(.timeLimit(.minutes(5)))
    func `F37, F68: when a breaker opens, queued token requests of its account fail at once, and others continue`()
        async throws
    {
        let open = Gate()
        let server = try TokenServer { request in
            open.pass()
            guard request.form["refresh_token"] == "bad" else { return TokenServer.response(TokenTests.good) }
            return TokenServer.response("{}", status: "503 Busy", headers: ["Retry-After: 600"])
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            @Sendable func request(_ refresh: String, account: UInt32) async throws -> String {
                let outcome = try await fetcher.token(.to(server.url, account: account, refresh: refresh))
                return outcome.kind == "circuitOpen" ? "rejected" : outcome.kind
            }
            try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 0..<500 { group.addTask { try await request("bad", account: 1) } }
                for _ in 0..<20 { group.addTask { try await request("good", account: 2) } }
                while server.requests.isEmpty { await Task.yield() }
                open.open()
                var kinds: [String: Int] = [:]
                for try await kind in group { kinds[kind, default: 0] += 1 }
                #expect(kinds["grant"] == 20)
                // The requests that were in flight at the first response.
                #expect((1...TokenTransfer.maximumPerOrigin).contains(kinds["origin"] ?? 0), "\(kinds)")
                #expect(kinds["rejected"] == 500 - (kinds["origin"] ?? 0))
            }
            #expect(server.requests.count { $0.form["refresh_token"] == "bad" } <= TokenTransfer.maximumPerOrigin)
        }
    }

    @Test func `I8: token requests of one account do not delay those of another, and their number is limited`()
        async throws
    {
        let open = Gate()
        let server = try TokenServer { _ in
            open.pass()
            return TokenServer.response(TokenTests.good)
        }
        defer { server.stop() }
        try await withFetcher {
            ($0.downloadsPerAccount, $0.queuePerAccount) = (1, 99)
        } _: { fetcher in
            let order = NIOLockedValueBox<[UInt32]>([])
            let all = Gate()
            @Sendable func ended(_ account: UInt32) {
                let count = order.withLockedValue { order in
                    order.append(account)
                    return order.count
                }
                if count == 101 { all.open() }
            }
            for _ in 0..<100 { _ = try fetcher.refresh(.to(server.url, account: 1)) { _ in ended(1) } }
            let busy = FetchFailure.busy(
                "limits.downloads-per-uid + limits.queue-per-uid: 100 token requests of this account are queued or "
                    + "active; retry later")
            #expect(throws: busy) { _ = try fetcher.refresh(.to(server.url, account: 1)) { _ in } }
            _ = try fetcher.refresh(.to(server.url, account: 2)) { _ in ended(2) }
            open.open()
            await all.opened()
            // After the requests in flight and those that began while they ended, but long before its place in the
            // queue.
            let position = try #require(order.withLockedValue { $0.firstIndex(of: 2) })
            #expect(position < 4 * TokenTransfer.maximumPerOrigin, "\(position)")
            _ = try await fetcher.token(server.url)
        }
    }
}
