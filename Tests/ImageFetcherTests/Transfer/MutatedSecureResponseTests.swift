import CacheCore
import Testing

@testable import ImageFetcher

/// Responses with random mutations over TLS: of header lines for libcurl, of frames for nghttp2. Each must have an
/// outcome, and the fetcher must continue to work.
@Suite(.timeLimit(.minutes(5))) struct MutatedSecureResponseTests {
    /// Each round has nine mutated responses, three at a time, and then a valid one.
    private static let rounds = 24

    private func origin(_ name: String, _ server: HostileOrigin, timeout: Int64) -> Origin {
        // Two connections, so that a response uses a connection that has carried others, if it is still open.
        var origin = Origin.test(name, timeout: timeout, connections: 2)
        (origin.breaker.failures, origin.breaker.backoff, origin.breaker.backoffMax) = (1_000_000, 1, 1)
        origin.caFile = server.caFile
        return origin
    }

    private func sendRequests(_ version: HostileOrigin.Version) async throws {
        let server = try HostileOrigin()
        defer { server.stop() }
        var kinds: [String: Int] = [:]
        try await withFetcher { fetcher in
            // Valid responses use separate connections, because a mutated one may end its connection.
            let good = origin("good", server, timeout: 120_000)
            for round in 0..<Self.rounds {
                for seeds in [[1, 2, 3], [4, 5, 6], [7, 8, 9]] {
                    await withTaskGroup(of: DownloadOutcome.self) { group in
                        for seed in seeds {
                            let url = server.url(version, seed: round * 10 + seed)
                            // Some requests time out early, so that their responses arrive late.
                            let origin = origin("hostile", server, timeout: seed == 9 ? 20 : 5_000)
                            group.addTask { await fetcher.outcome(url, of: origin) }
                        }
                        for await outcome in group { kinds[outcome.kind, default: 0] += 1 }
                    }
                }
                let outcome = await fetcher.outcome(server.url(version, seed: round * 10), of: good)
                #expect(outcome.imageBytes == server.image, "round \(round): \(outcome)")
            }
        }
        // All requests have ended, and the seeds caused both successes and failures.
        #expect(kinds.values.reduce(0, +) == Self.rounds * 9)
        #expect((kinds["image"] ?? 0) > 0 && (kinds["origin"] ?? 0) > 0, "\(kinds)")
    }

    @Test func `F64: over TLS, each mutated response has an outcome, and each valid one an image`() async throws {
        try await sendRequests(.http1)
    }

    @Test func `over HTTP/2, each mutated frame has an outcome, and each valid one an image`() async throws {
        try await sendRequests(.http2)
    }
}
