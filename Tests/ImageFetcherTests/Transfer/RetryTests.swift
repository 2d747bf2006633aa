import CacheCore
import CacheFakes
import NIOCore
import Testing

@testable import HelperProtocol
@testable import ImageFetcher

/// Repeated requests. Repeating is safe, because every request is a GET.
@Suite struct RetryTests {
    @Test func `F37: a request is repeated if a reused connection was closed without a response`() async throws {
        try await withOrigin([
            "/a": { _, peer in peer.requests == 1 ? peer.answer(TestImage.png) : peer.hangUp() }
        ]) { server, fetcher in
            for _ in 0..<2 {
                let outcome = try await fetcher.fetch(server.url("/a"))
                #expect(outcome.kind == "image", "\(outcome)")
            }
            #expect(server.requests.count == 3 && server.connections == 2)
            #expect(fetcher.statistics[.requests] == 3)
        }
    }

    @Test func `I8, F37: a request is repeated once only, on a new connection`()
        async throws
    {
        let release = Gate()
        try await withOrigin([
            "/a": { _, peer in
                guard peer.requests == 1 else { return peer.hangUp() }
                release.pass()
                peer.answer(TestImage.png)
            }
        ]) { server, fetcher in
            try await withThrowingTaskGroup(of: String.self) { group in
                for _ in 0..<5 { group.addTask { try await fetcher.fetch(server.url("/a")).kind } }
                while server.requests.count < 5 { await Task.yield() }
                release.open()
                for try await kind in group { #expect(kind == "image") }
            }
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "image", "\(outcome)")
            #expect(server.requests.count == 7 && server.connections == 6)
        }
    }

    @Test func `F37: a request on a new connection is not repeated`() async throws {
        try await withOrigin(["/a": { _, peer in peer.hangUp() }]) { server, fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "origin" && server.requests.count == 1)
        }
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 103 Hints\r\n\r\n",
    ])
    func `F37: a request is not repeated after the first byte of a response`(start: String) async throws {
        try await withOrigin([
            "/a": { _, peer in
                guard peer.requests > 1 else { return peer.answer(TestImage.png) }
                peer.send(start)
                peer.hangUp()
            }
        ]) { server, fetcher in
            _ = try await fetcher.fetch(server.url("/a"))
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "origin" && server.requests.count == 2, "\(outcome)")
        }
    }
}
