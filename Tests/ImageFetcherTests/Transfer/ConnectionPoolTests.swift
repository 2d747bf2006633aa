import CacheCore
import NIOConcurrencyHelpers
import Testing

@testable import ImageFetcher

/// How many idle connections are kept, and whose.
@Suite(.timeLimit(.minutes(5))) struct ConnectionPoolTests {
    @Test(
        arguments: [
            (256, 0, nil, 256), (256, 1, nil, 256), (256, 4, nil, 64), (256, 3, nil, 85), (2, 5, nil, 1),
            (256, 1, ["a", "b"], 128), (256, 3, ["a", "b"], 85), (256, 0, [], 256),
        ] as [(Int, Int, Set<String>?, Int)])
    func `F15: all pools together keep no more idle connections than there are downloads`(
        downloads: Int, pools: Int, origins: Set<String>?, most: Int
    ) {
        var configuration = FetcherConfiguration()
        configuration.downloads = downloads
        configuration.origins = origins
        #expect(configuration.idleConnections(pools: pools) == most)
    }

    @Test func `F15: the pool of an origin that is configured no more goes, but not while a request has it`() throws {
        let pools = ConnectionPools()
        defer { pools.close() }
        do {
            let (old, new) = (try EasyHandle(), try EasyHandle())
            try pools.attach(old, to: .test("old"))
            try pools.attach(new, to: .test("new"))
            withExtendedLifetime((old, new)) { pools.prune(keeping: ["new"]) }
            #expect(pools.count == 2)
        }
        pools.prune(keeping: ["new"])
        #expect(pools.count == 1)
        pools.prune(keeping: ["new"])
        #expect(pools.count == 1)
    }

    @Test func `F15: a reload closes the idle connections of an origin that is gone, and no other's`() async throws {
        let server = try TokenServer { _ in
            let head = "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n"
            return Array(head.utf8)
        }
        defer { server.stop() }
        try await withFetcher {
            $0.origins = ["old", "new"]
        } _: { fetcher in
            let url = "http://127.0.0.1:\(server.port)/a"
            for name in ["old", "new"] { _ = await fetcher.outcome(url, of: .test(name)) }
            #expect(server.connections == 2 && server.ended == 0)
            var configuration = FetcherConfiguration(userAgent: "thumbcached-tests")
            configuration.origins = ["new"]
            fetcher.update(configuration)
            while server.ended == 0 { try await Task.sleep(for: .milliseconds(5)) }
            #expect(server.ended == 1)
        }
    }
}
