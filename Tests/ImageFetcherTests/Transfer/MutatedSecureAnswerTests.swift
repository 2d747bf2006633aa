import CacheCore
import Testing

@testable import ImageFetcher

/// Answers that are nearly right, over TLS: whatever libcurl makes of a header, or nghttp2 of frames, the fetcher tells
/// an outcome and goes on.
@Suite(.timeLimit(.minutes(5))) struct MutatedSecureAnswerTests {
    /// In each, nine seeds, three at once, and then a good answer.
    private static let rounds = 24

    private func origin(_ name: String, _ server: HostileOrigin, timeout: Int64) -> Origin {
        // Two connections, so that an answer comes over one that has carried others, as long as that lives.
        var origin = Origin.test(name, timeout: timeout, connections: 2)
        (origin.breaker.failures, origin.breaker.backoff, origin.breaker.backoffMax) = (1_000_000, 1, 1)
        origin.caFile = server.caFile
        return origin
    }

    private func ask(_ version: HostileOrigin.Version) async throws {
        let server = try HostileOrigin()
        defer { server.stop() }
        var kinds: [String: Int] = [:]
        try await withFetcher { fetcher in
            // Good answers come over connections of their own: what came before on another may have to be its end.
            let good = origin("good", server, timeout: 120_000)
            for round in 0..<Self.rounds {
                for seeds in [[1, 2, 3], [4, 5, 6], [7, 8, 9]] {
                    await withTaskGroup(of: DownloadOutcome.self) { group in
                        for seed in seeds {
                            let url = server.url(version, seed: round * 10 + seed)
                            // Some are given up early, and their answers come when nobody waits for them.
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
        // Each has ended, and the seeds do what they are for.
        #expect(kinds.values.reduce(0, +) == Self.rounds * 9)
        #expect((kinds["image"] ?? 0) > 0 && (kinds["origin"] ?? 0) > 0, "\(kinds)")
    }

    @Test func `F64: over TLS, mutated answers end in an outcome each, and good ones in an image`() async throws {
        try await ask(.http1)
    }

    @Test func `over HTTP/2, mutated frames end in an outcome each, and good ones in an image`() async throws {
        try await ask(.http2)
    }
}
