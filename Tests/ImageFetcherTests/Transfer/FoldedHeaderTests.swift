import LinuxSupport
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore
@testable import ImageFetcher

/// Responses whose first header line is a continuation line. With a reused handle, libcurl 7.88 wrote to freed memory.
@Suite(.timeLimit(.minutes(5))) struct FoldedHeaderTests {
    private static let folds = [
        " X: y", "\tX: y", " : ", "  \t a:b", " " + String(repeating: "x", count: 3_000) + ": y",
    ]

    /// An origin whose breaker never opens.
    private var origin: Origin {
        var origin = Origin.test()
        (origin.breaker.failures, origin.breaker.backoff) = (1_000_000, 1)
        return origin
    }

    private static func folded(_ fold: String, status: String = "200 OK", headers: [String] = []) -> String {
        let lines = ["HTTP/1.1 \(status)", fold, "Content-Length: 0", "Connection: close"] + headers
        return lines.joined(separator: "\r\n") + "\r\n\r\n"
    }

    @Test func `F64: a response that begins with a folded line is rejected each time`() async throws {
        let count = NIOLockedValueBox(0)
        try await withOrigin([
            "/folded": { _, peer in
                let number = count.withLockedValue { count in
                    count += 1
                    return count
                }
                peer.send(Self.folded(Self.folds[number % Self.folds.count]))
                peer.hangUp()
            },
            "/many": { _, peer in
                // Header lines of many sizes, so that freed memory is allocated again in between.
                peer.answer(
                    TestImage.png, headers: (1...40).map { "X-\($0): \(String(repeating: "z", count: 17 * $0))" })
            },
        ]) { server, fetcher in
            for _ in 0..<100 {
                let good = await fetcher.outcome(server.url("/many"), of: origin)
                let bad = await fetcher.outcome(server.url("/folded"), of: origin)
                #expect([good.kind, bad.kind] == ["image", "origin"])
            }
            await withTaskGroup(of: Void.self) { group in
                for number in 0..<400 {
                    group.addTask { [origin] in
                        _ = await fetcher.outcome(server.url(number % 2 == 0 ? "/many" : "/folded"), of: origin)
                    }
                }
            }
            let last = await fetcher.outcome(server.url("/many"), of: origin)
            #expect(last.kind == "image")
            #expect(count.withLockedValue { $0 } == 300)
        }
    }

    @Test func `F64: a folded first line after or in a redirect is rejected`() async throws {
        try await withOrigin([
            "/away": { _, peer in peer.redirect(to: "/folded") },
            "/folded": { _, peer in
                peer.send(Self.folded(" X: y"))
                peer.hangUp()
            },
            "/both": { request, peer in
                peer.send(Self.folded(" X: y", status: "302 Found", headers: ["Location: /folded"]))
                peer.hangUp()
            },
        ]) { server, fetcher in
            for _ in 0..<100 {
                let away = await fetcher.outcome(server.url("/away"), of: origin)
                let both = await fetcher.outcome(server.url("/both"), of: origin)
                let good = await fetcher.outcome(server.url("/good"), of: origin)
                #expect([away.kind, both.kind, good.kind] == ["origin", "origin", "image"])
            }
            #expect(server.requests.count { $0.path == "/folded" } == 100)
        }
    }

    @Test func `F64: a folded first line on a reused connection is rejected`() async throws {
        try await withOrigin([
            "/folded": { _, peer in peer.send(Self.folded(" X: y")) },
            "/interim": { _, peer in
                peer.send("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n")
                peer.send(Self.folded(" X: y"))
            },
        ]) { server, fetcher in
            for _ in 0..<100 {
                let good = await fetcher.outcome(server.url("/good"), of: origin)
                #expect(good.kind == "image")
                for path in ["/folded", "/interim"] { _ = await fetcher.outcome(server.url(path), of: origin) }
            }
            let last = await fetcher.outcome(server.url("/good"), of: origin)
            #expect(last.kind == "image")
        }
    }

    @Test func `F64: a folded first line of a token endpoint is rejected`() async throws {
        let count = NIOLockedValueBox(0)
        let server = try TokenServer { _ in
            let number = count.withLockedValue { count in
                count += 1
                return count
            }
            return number % 2 == 0 ? TokenServer.response(TokenTests.good) : Array(Self.folded(" X: y").utf8)
        }
        defer { server.stop() }
        try await withFetcher { fetcher in
            for _ in 0..<100 {
                let endpoint = TokenEndpoint(url: server.url, clientID: "c")
                let request = TokenRequest(
                    account: 1, origin: origin, endpoint: endpoint, refreshToken: Secret("r".utf8))
                let bad = try await fetcher.token(request)
                let good = try await fetcher.token(request)
                #expect([bad.kind, good.kind] == ["origin", "grant"])
            }
        }
    }
}
