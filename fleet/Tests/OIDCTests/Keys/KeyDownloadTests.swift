import Testing

@testable import thumbcached_oidc

/// Downloads from a real server. Those with TLS are in BackChannelLogoutTests.
@Suite struct KeyDownloadTests {
    private static let most = HTTPSKeyDownload.longestResponse

    /// Returns the result of a download, and the requests that the server received.
    private func download(
        _ response: String, closes: Bool = true, limit: Int64 = 60_000
    ) async throws -> (result: Result<String, KeyFailure>, requests: [String]) {
        let server = try await KeyServer(response, closes: closes)
        let result = await download(from: server.url, limit: limit)
        let requests = server.requests
        try await server.stop()
        return (result, requests)
    }

    private func download(from url: String, limit: Int64 = 60_000) async -> Result<String, KeyFailure> {
        do throws(KeyFailure) {
            let bytes = try await HTTPSKeyDownload(url: url, authorities: "", limit: limit).download()
            return .success(String(decoding: bytes, as: UTF8.self))
        } catch {
            return .failure(error)
        }
    }

    private static func response(_ status: String, _ fields: [String] = [], body: String) -> String {
        (["HTTP/1.1 \(status)", "Content-Length: \(body.utf8.count)"] + fields + ["", body]).joined(separator: "\r\n")
    }

    @Test func `a response with status 200 is returned, and each download has its own connection`() async throws {
        let server = try await KeyServer(Self.response("200 OK", body: "{\"keys\":[]}"), closes: false)
        for _ in 0..<2 { #expect(await download(from: server.url) == .success("{\"keys\":[]}")) }
        let requests = server.requests
        try await server.stop()
        try #require(requests.count == 2)
        var lines = requests[0].split(separator: "\r\n")
        #expect(lines.removeFirst() == "GET /keys HTTP/1.1")
        #expect(lines.removeFirst().hasPrefix("Host: 127.0.0.1:"))
        #expect(
            Set(lines) == ["User-Agent: thumbcached-oidc", "Accept: application/jwk-set+json, application/json"])
    }

    @Test(arguments: [
        "204 No Content", "301 Moved Permanently", "302 Found", "307 Temporary Redirect", "404 Not Found",
        "500 Internal Server Error",
    ])
    func `F84: any status other than 200 is a failure, and no redirect is followed`(_ status: String) async throws {
        let fields = ["Location: /token"]
        for body in status.hasPrefix("204") ? [""] : ["{\"keys\":[]}", String(repeating: " ", count: Self.most + 1)] {
            let (result, requests) = try await download(Self.response(status, fields, body: body))
            #expect(result == .failure(KeyFailure("the JWKS endpoint answered \(status.prefix(3))")))
            #expect(requests.count == 1)
        }
    }

    @Test func `F84: a response is limited to 262144 bytes, with and without its length`() async throws {
        let (longest, tooLong) = (
            String(repeating: "x", count: Self.most), String(repeating: "x", count: Self.most + 1)
        )
        let failure = KeyFailure("the JWKS endpoint's response has more than 262144 bytes")
        let forms: [(String) -> String] = [
            { Self.response("200 OK", body: $0) },
            { "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n\($0)" },
            {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    + "\(String($0.utf8.count, radix: 16))\r\n\($0)\r\n0\r\n\r\n"
            },
        ]
        for form in forms {
            #expect(try await download(form(longest)).result == .success(longest))
            #expect(try await download(form(tooLong)).result == .failure(failure))
        }
    }

    @Test(arguments: ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
    func `F84: an incomplete response ends at the time limit`(_ response: String) async throws {
        let result = try await download(response, closes: false, limit: 200).result
        #expect(result == .failure(KeyFailure("the JWKS endpoint timed out")))
    }

    @Test func `F84: a failed request is reported with libcurl's reason`() async throws {
        let cut = try await download("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx").result
        let start = "request to the JWKS endpoint failed: "
        #expect(cut == .failure(KeyFailure(start + "transfer closed with 8 bytes remaining to read")))
        // No program listens on port 1.
        for (url, reason) in [
            ("http://127.0.0.1:1/keys", "Failed to connect to 127.0.0.1 port 1"),
            ("file:///dev/null", "Protocol \"file\" "),
        ] {
            guard case .failure(let failure) = await download(from: url) else {
                Issue.record("\(url): no failure")
                continue
            }
            #expect(failure.description.hasPrefix(start + reason), "\(failure)")
        }
    }
}
