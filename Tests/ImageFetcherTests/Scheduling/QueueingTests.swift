import CacheFakes
import Glibc
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore
@testable import HelperProtocol
@testable import ImageFetcher

/// Limits and fairness of ``TransferQueue``, as seen by an origin.
@Suite struct QueueingTests {
    @Test func `F20: many downloads of one account do not delay another account's download`() async throws {
        let release = Gate()
        try await withOrigin(["/first": TestOrigin.held(at: release)]) { server, fetcher in
            // With one connection, the origin sees the order.
            let origin = Origin.test(connections: 1)
            async let first = fetcher.fetch(server.url("/first"), of: origin, account: 1)
            await release.reached()
            try await withThrowingTaskGroup(of: String.self) { group in
                for number in 0..<30 {
                    group.addTask {
                        try await fetcher.fetch(server.url("/flood/\(number)"), of: origin, account: 1).kind
                    }
                }
                while fetcher.statistics.queued < 30 { await Task.yield() }
                group.addTask { try await fetcher.fetch(server.url("/other"), of: origin, account: 2).kind }
                while fetcher.statistics.queued < 31 { await Task.yield() }
                release.open()
                for try await kind in group { #expect(kind == "image") }
            }
            _ = try await first
            let position = try #require(server.requests.firstIndex { $0.path == "/other" })
            #expect(position <= 2)
        }
    }

    @Test(.timeLimit(.minutes(5)))
    func `F68: an origin that hangs for one account serves images and tokens to another`() async throws {
        let server = try TestOrigin(["/hang": { _, peer in peer.waitForEnd() }])
        let endpoint = try TokenServer {
            $0.form["refresh_token"] == "hang" ? [] : TokenServer.response(TokenTests.good)
        }
        defer {
            server.stop()
            endpoint.stop()
        }
        try await withFetcher { fetcher in
            let origin = Origin.test(connections: 8).at(server.url("/"))
            let handles = try (0..<30).map { _ in
                try fetcher.start(.test(server.url("/hang"), of: origin), onEnd: { _ in })
            }
            let refreshes = try (0..<30).map { _ in
                try fetcher.refresh(.to(endpoint.url, account: 1, refresh: "hang"), onEnd: { _ in })
            }
            while server.requests.count < 7 || endpoint.requests.count < 7 { await Task.yield() }
            let other = try await fetcher.fetch(server.url("/a"), of: origin, account: 2)
            #expect(other.kind == "image")
            let token = try await fetcher.token(.to(endpoint.url, account: 2))
            #expect(token.kind == "grant")
            #expect(server.requests.count == 8 && endpoint.requests.count == 8)
            for handle in handles + refreshes { handle.cancel() }
        }
    }

    @Test func `I8: concurrent requests to an origin are limited to its connections`() async throws {
        let inside = NIOLockedValueBox((now: 0, most: 0))
        let haveArrived = ConditionLock(value: false)
        let script: TestOrigin.Script = { _, peer in
            let isFourth = inside.withLockedValue { inside in
                inside.now += 1
                inside.most = max(inside.most, inside.now)
                return inside.now == 4
            }
            if isFourth {
                haveArrived.lock()
                haveArrived.unlock(withValue: true)
            }
            // Every request waits until the first four have arrived.
            haveArrived.lock(whenValue: true)
            haveArrived.unlock()
            inside.withLockedValue { $0.now -= 1 }
            peer.answer(TestImage.png)
        }
        try await withOrigin(["/a": script]) { server, fetcher in
            let origin = Origin.test(connections: 4)
            try await withThrowingTaskGroup(of: String.self) { group in
                for account: UInt32 in 0..<60 {
                    group.addTask { try await fetcher.fetch(server.url("/a"), of: origin, account: account % 3).kind }
                }
                for try await kind in group { #expect(kind == "image") }
            }
            #expect(inside.withLockedValue { $0.most } == 4)
            #expect(server.connections <= 4)
        }
    }

    @Test func `I8, F20: an account whose queue is full is BUSY, and other accounts are not`() async throws {
        let release = Gate()
        let server = try TestOrigin(["/slow": TestOrigin.held(at: release)])
        defer { server.stop() }
        try await withFetcher {
            $0.downloadsPerAccount = 1
            $0.queuePerAccount = 1
        } _: { fetcher in
            async let running = fetcher.fetch(server.url("/slow"), account: 1)
            await release.reached()
            async let waiting = fetcher.fetch(server.url("/a"), account: 1)
            while fetcher.statistics.queued < 1 { await Task.yield() }
            let busy = FetchFailure.busy("limits.queue-per-uid: 1 downloads of this account are queued; retry later")
            await #expect(throws: busy) { try await fetcher.fetch(server.url("/b"), account: 1) }
            let other = try await fetcher.fetch(server.url("/c"), account: 2)
            #expect(other.kind == "image")
            release.open()
            let kinds = try await [running.kind, waiting.kind]
            #expect(kinds == ["image", "image"])
            #expect(fetcher.statistics[.busy] == 1)
        }
    }

    @Test func `F36: a download that cannot begin within its timeout is TIMEOUT and never sent`() async throws {
        let release = Gate()
        try await withOrigin(["/slow": TestOrigin.held(at: release)]) { server, fetcher in
            async let slow = fetcher.fetch(server.url("/slow"), of: .test(connections: 1))
            await release.reached()
            let late = try await fetcher.fetch(server.url("/late"), of: .test(timeout: 200, connections: 1))
            #expect(late.kind == "timedOut" && late.reason.contains("200 ms"))
            release.open()
            let outcome = try await slow
            #expect(outcome.kind == "image")
            #expect(server.requests.map(\.path) == ["/slow"])
            #expect(fetcher.statistics[.timedOut] == 1 && fetcher.statistics.queued == 0)
        }
    }

    @Test func `F37: an origin that hangs does not delay other origins, even for the same account`() async throws {
        let hanging = try TestOrigin(["/a": { _, peer in peer.waitForEnd() }])
        let quick = try TestOrigin()
        defer {
            hanging.stop()
            quick.stop()
        }
        try await withFetcher { fetcher in
            let slow = Origin.test("slow", connections: 2)
            for _ in 0..<10 { _ = try fetcher.start(.test(hanging.url("/a"), of: slow), onEnd: { _ in }) }
            let outcome = try await fetcher.fetch(quick.url("/a"), of: .test("quick"), account: 1)
            #expect(outcome.kind == "image")
        }
    }

    @Test func `F55: concurrent downloads of different URLs each get their own image`() async throws {
        let images = (0..<40).map { TestImage.png(count: 2_000 + $0, seed: $0) }
        var scripts: [String: TestOrigin.Script] = [:]
        for (number, image) in images.enumerated() { scripts["/\(number)"] = { _, peer in peer.answer(image) } }
        try await withOrigin(scripts) { server, fetcher in
            try await withThrowingTaskGroup(of: (Int, [UInt8]?).self) { group in
                for number in images.indices {
                    group.addTask { (number, try await fetcher.fetch(server.url("/\(number)")).imageBytes) }
                }
                for try await (number, bytes) in group { #expect(bytes == images[number]) }
            }
        }
    }
}
