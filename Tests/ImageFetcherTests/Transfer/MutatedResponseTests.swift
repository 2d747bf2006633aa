import CacheCore
import Glibc
import NIOConcurrencyHelpers
import TestSupport
import Testing

@testable import ImageFetcher

/// Valid responses with random mutations. Each must have an outcome, and the fetcher must continue to work.
@Suite(.timeLimit(.minutes(5))) struct MutatedResponseTests {
    private static let rounds = 300

    /// Fragments that often break header parsers.
    private static let pieces: [[UInt8]] =
        [
            " \r\n", "\t no-store\r\n", ": \r\n", "\r\n", "\n", "\r", "\0", ":", " ", "\r\n ", "Content-Length: 5\r\n",
            "content-length: 99999999999999999999\r\n", "Transfer-Encoding: chunked\r\n", "Content-Encoding: gzip\r\n",
            "HTTP/1.1 103 Early Hints\r\n\r\n", "HTTP/1.1 100\r\n\r\n", "Location: //\0\r\n", "\u{e4}", "Vary: *,\r\n",
        ].map { Array($0.utf8) } + [Array(repeating: UInt8(ascii: "y"), count: 9_000), [0xFF, 0xFE]]

    private static let http1 =
        Array(
            ("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nCache-Control: max-age=60,\r\n private\r\nETag: \"a\"\r\n"
                + "Vary: Accept\r\nContent-Length: \(TestImage.png.count)\r\n\r\n").utf8) + TestImage.png

    private static func mutated(_ answer: [UInt8], by seed: UInt64) -> [UInt8] {
        var dice = SeededRandom(seed: seed)
        var answer = answer
        for _ in 0..<Int.random(in: 0...4, using: &dice) {
            let index = Int.random(in: 0..<answer.count, using: &dice)
            switch Int.random(in: 0..<5, using: &dice) {
            case 0: answer[index] = .random(in: 0...255, using: &dice)
            case 1: answer.insert(contentsOf: pieces.randomElement(using: &dice) ?? [], at: index)
            case 2: answer.remove(at: index)
            case 3:
                let end = min(answer.count, index + .random(in: 1...40, using: &dice))
                answer.insert(contentsOf: answer[index..<end], at: .random(in: 0..<answer.count, using: &dice))
            default: answer[index] ^= 1 << UInt8.random(in: 0..<8, using: &dice)
            }
        }
        return answer
    }

    /// Sends many requests, then one whose response is not mutated.
    private func sendRequests(
        _ url: String, _ origin: Origin, _ fetcher: CurlImageFetcher, until isOver: NIOLockedValueBox<Bool>
    )
        async
    {
        var origin = origin
        (origin.breaker.failures, origin.breaker.backoff, origin.breaker.backoffMax) = (1_000_000, 1, 1)
        var kinds: [String: Int] = [:]
        for _ in 0..<Self.rounds {
            // A response that stalls ends at its timeout. Its effect on the breaker does not matter here.
            origin.timeout = 2_000
            kinds[await fetcher.outcome(url, of: origin).kind, default: 0] += 1
        }
        // Many mutations are harmless, and many are not.
        #expect((kinds["image"] ?? 0) > 20 && kinds.values.reduce(0, +) - (kinds["image"] ?? 0) > 20, "\(kinds)")
        isOver.withLockedValue { $0 = true }
        origin.timeout = 600_000
        let last = await fetcher.outcome(url, of: origin)
        #expect(last.imageBytes == TestImage.png, "\(last)")
    }

    /// Serves one response on each connection: the next mutation, or the unchanged response once `isOver` is set.
    private func server(
        _ isOver: NIOLockedValueBox<Bool>, answer: @escaping @Sendable (Int32, (([UInt8]) -> [UInt8])) -> Void
    ) throws -> RawServer {
        let seed = NIOLockedValueBox<UInt64>(0)
        return try RawServer { connection in
            let number = seed.withLockedValue { seed in
                seed += 1
                return seed
            }
            answer(connection) { isOver.withLockedValue { $0 } ? $0 : Self.mutated($0, by: number) }
        }
    }

    private func http1Server(_ isOver: NIOLockedValueBox<Bool>) throws -> RawServer {
        try server(isOver) { connection, mutate in
            let end = Array("\r\n\r\n".utf8)
            guard RawServer.read(from: connection, until: { $0.suffix(4).elementsEqual(end) }) != nil else { return }
            RawServer.write(mutate(Self.http1), to: connection)
        }
    }

    @Test func `F34, F64: over HTTP, each mutated response has an outcome, and each valid one an image`() async throws {
        let isOver = NIOLockedValueBox(false)
        let server = try http1Server(isOver)
        defer { server.stop() }
        try await withFetcher { fetcher in
            await sendRequests("http://127.0.0.1:\(server.port)/a", .test(), fetcher, until: isOver)
        }
    }
}
