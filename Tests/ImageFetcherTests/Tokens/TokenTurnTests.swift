import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Which token requests are sent, when, and for how long each may take.
@Suite(.timeLimit(.minutes(5))) struct TokenTurnTests {
    @Test func `I4: a request that has begun has all its time, so that a refresh token replaced meanwhile is not lost`()
        async throws
    {
        let (arrived, late) = (Gate(), Gate())
        let server = try TokenServer { _ in
            arrived.open()
            late.block()
            return TokenServer.response(TokenTests.good)
        }
        defer {
            late.open()
            server.stop()
        }
        try await withFetcher {
            $0.leastTokenTime = 600_000
        } _: { fetcher in
            async let outcome = fetcher.token(server.url, timeout: 3_000)
            await arrived.opened()
            // Past the moment until which it might have begun.
            let end = NIODeadline.now() + .milliseconds(3_100)
            while NIODeadline.now() < end { try await Task.sleep(for: .milliseconds(5)) }
            late.open()
            let told = try await outcome
            #expect(told == .success(TokenTests.grant("t1", 3_600, "r2")))
        }
    }

    @Test func `F37: an endpoint that hangs holds up no other origin's, and none of its own for longer than it may`()
        async throws
    {
        let silent = try TokenServer { _ in [] }
        let server = try TokenServer { _ in TokenServer.response(TokenTests.good) }
        defer {
            silent.stop()
            server.stop()
        }
        try await withFetcher { fetcher in
            let hanging = try (0..<3 * TokenTransfer.mostAtOncePerOrigin).map { _ in
                try fetcher.refresh(.to(silent.url, origin: "silent")) { _ in Issue.record("nobody answered") }
            }
            check(try await fetcher.token(server.url), "grant")
            #expect(silent.connections <= TokenTransfer.mostAtOncePerOrigin)
            // One that must wait for those before it is answered when its time is up.
            let late = try await fetcher.token(silent.url, origin: "silent", timeout: 50)
            #expect(late.kind == "timedOut" && late.sentence.contains("could not begin"), "\(late)")
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
    func `F37, F68: an endpoint that fails, refuses, or asks for it, is not asked by that uid, and by others is`(
        status: String, headers: [String], failures: Int, requests: Int
    ) async throws {
        let server = try TokenServer { _ in TokenServer.response("{}", status: status, headers: headers) }
        defer { server.stop() }
        try await withFetcher {
            $0.draw = { $0.upperBound }
        } _: { fetcher in
            func ask(as name: String, uid: UInt32 = 1) async throws -> Result<TokenGrant, TransferFailure> {
                var origin = Origin.test(name)
                (origin.breaker.failures, origin.breaker.backoff) = (failures, 600_000)
                (origin.breaker.backoffMax, origin.breaker.retryAfterMax) = (600_000, 600_000)
                let endpoint = TokenEndpoint(url: server.url, clientID: "c")
                return try await fetcher.token(
                    TokenRequest(uid: uid, origin: origin, endpoint: endpoint, refreshToken: Secret("r".utf8)))
            }
            for number in 1...3 {
                let outcome = try await ask(as: "one")
                #expect((outcome.kind == "notAsked") == (number > requests), "\(outcome)")
            }
            #expect(server.requests.count == requests)
            #expect(try await !ask(as: "one", uid: 2).sentence.contains("is not asked for"))
            // What fails for one origin's settings says nothing about another's.
            #expect(try await !ask(as: "other").sentence.contains("is not asked for"))
        }
    }

    @Test(.timeLimit(.minutes(5)))
    func `F37, F68: when a breaker opens, what its uid has waiting is told at once, and others' goes on`() async throws
    {
        let open = Gate()
        let server = try TokenServer { request in
            open.block()
            guard request.form["refresh_token"] == "bad" else { return TokenServer.response(TokenTests.good) }
            return TokenServer.response("{}", status: "503 Busy", headers: ["Retry-After: 600"])
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            @Sendable func ask(_ refresh: String, uid: UInt32) async throws -> String {
                let outcome = try await fetcher.token(.to(server.url, uid: uid, refresh: refresh))
                return outcome.sentence.contains("is not asked for") ? "rejected" : outcome.kind
            }
            try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 0..<500 { group.addTask { try await ask("bad", uid: 1) } }
                for _ in 0..<20 { group.addTask { try await ask("good", uid: 2) } }
                while server.requests.isEmpty { await Task.yield() }
                open.open()
                var kinds: [String: Int] = [:]
                for try await kind in group { kinds[kind, default: 0] += 1 }
                #expect(kinds["grant"] == 20)
                // Those that were under way when the first was answered.
                #expect((1...TokenTransfer.mostAtOncePerOrigin).contains(kinds["origin"] ?? 0), "\(kinds)")
                #expect(kinds["rejected"] == 500 - (kinds["origin"] ?? 0))
            }
            #expect(server.requests.count { $0.form["refresh_token"] == "bad" } <= TokenTransfer.mostAtOncePerOrigin)
        }
    }

    @Test func `I8: one uid's many users keep no other uid waiting, and their own number has a limit`() async throws {
        let open = Gate()
        let server = try TokenServer { _ in
            open.block()
            return TokenServer.response(TokenTests.good)
        }
        defer { server.stop() }
        try await withFetcher {
            ($0.downloadsPerUID, $0.queuePerUID) = (1, 99)
        } _: { fetcher in
            let order = NIOLockedValueBox<[UInt32]>([])
            let all = Gate()
            @Sendable func ended(_ uid: UInt32) {
                let count = order.withLockedValue { order in
                    order.append(uid)
                    return order.count
                }
                if count == 101 { all.open() }
            }
            for _ in 0..<100 { _ = try fetcher.refresh(.to(server.url, uid: 1)) { _ in ended(1) } }
            #expect(throws: TransferFailure.self) { _ = try fetcher.refresh(.to(server.url, uid: 1)) { _ in } }
            _ = try fetcher.refresh(.to(server.url, uid: 2)) { _ in ended(2) }
            open.open()
            await all.opened()
            // Behind those that were under way, and those that began while they ended, but long before its place in the
            // line.
            let position = try #require(order.withLockedValue { $0.firstIndex(of: 2) })
            #expect(position < 4 * TokenTransfer.mostAtOncePerOrigin, "\(position)")
            _ = try await fetcher.token(server.url)
        }
    }
}
