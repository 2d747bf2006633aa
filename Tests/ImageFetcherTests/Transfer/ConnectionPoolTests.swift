import CacheCore
import HelperProtocol
import NIOConcurrencyHelpers
import Testing

@testable import ImageFetcher

/// Number and owners of idle connections.
@Suite(.timeLimit(.minutes(5))) struct ConnectionPoolTests {
    @Test(
        arguments: [
            (256, 0, nil, 256), (256, 1, nil, 256), (256, 4, nil, 64), (256, 3, nil, 85), (2, 5, nil, 1),
            (256, 1, ["a", "b"], 128), (256, 3, ["a", "b"], 85), (256, 0, [], 256),
        ] as [(Int, Int, Set<String>?, Int)])
    func `F15: all pools together keep at most as many idle connections as there may be downloads`(
        downloads: Int, pools: Int, origins: Set<String>?, most: Int
    ) {
        var settings = FetcherSettings(version: "tests", logLevel: "info")
        settings.downloads = downloads
        settings.origins = origins
        #expect(settings.idleConnections(pools: pools) == most)
    }

    @Test func `F15: the pool of a removed origin is released after its last request`() throws {
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

    @Test func `F15: a reload closes the idle connections of removed origins only`() async throws {
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
            var settings = FetcherSettings(version: "tests", logLevel: "info")
            settings.origins = ["new"]
            fetcher.update(settings)
            while server.ended == 0 { try await Task.sleep(for: .milliseconds(5)) }
            #expect(server.ended == 1)
        }
    }
}
