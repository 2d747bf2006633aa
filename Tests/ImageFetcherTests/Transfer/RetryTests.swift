import CacheCore
import NIOCore
import Testing

@testable import HelperProtocol
@testable import ImageFetcher

/// A request that is sent again: when, and how often. Every request is a GET, so that sending one twice changes nothing
/// at the origin.
@Suite struct RetryTests {
    @Test func `F37: a request whose used connection ended without an answer is sent once more`() async throws {
        let server = try TestOrigin([
            "/a": { _, peer in peer.requests == 1 ? peer.answer(TestImage.png) : peer.hangUp() }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            for _ in 0..<2 {
                let outcome = try await fetcher.fetch(server.url("/a"))
                #expect(outcome.kind == "image", "\(outcome)")
            }
            #expect(server.requests.count == 3 && server.connections == 2)
            #expect(fetcher.statistics[.requests] == 3)
        }
    }

    @Test func `I8, F37: however many used connections end like this, it is sent once more and on a new one`()
        async throws
    {
        let release = Gate()
        let server = try TestOrigin([
            "/a": { _, peer in
                guard peer.requests == 1 else { return peer.hangUp() }
                release.block()
                peer.answer(TestImage.png)
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
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

    @Test func `F37: a request on a new connection is not sent again`() async throws {
        let server = try TestOrigin(["/a": { _, peer in peer.hangUp() }])
        defer { server.stop() }
        try await withFetcher { fetcher in
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "origin" && server.requests.count == 1)
        }
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 103 Hints\r\n\r\n",
    ])
    func `F37: a request is not sent again once something of an answer came`(start: String) async throws {
        let server = try TestOrigin([
            "/a": { _, peer in
                guard peer.requests > 1 else { return peer.answer(TestImage.png) }
                peer.send(start)
                peer.hangUp()
            }
        ])
        defer { server.stop() }
        try await withFetcher { fetcher in
            _ = try await fetcher.fetch(server.url("/a"))
            let outcome = try await fetcher.fetch(server.url("/a"))
            #expect(outcome.kind == "origin" && server.requests.count == 2, "\(outcome)")
        }
    }
}
