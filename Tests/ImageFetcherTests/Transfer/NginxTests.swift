import CacheCore
import HelperProtocol
import NIOCore
import Testing

@testable import ImageFetcher

/// Downloads from nginx.
@Suite struct NginxTests {
    private func withNginx(
        files: [String: [UInt8]] = ["a.png": TestImage.png(count: 8_000)],
        _ body: (Nginx, CurlImageFetcher, Origin) async throws -> Void
    ) async throws {
        let nginx = try Nginx(files: files)
        defer { nginx.stop() }
        let ports = [nginx.securePort, nginx.securePlainPort]
        try await withFetcher {
            $0.resolverOverrides = {
                ports.flatMap { port in
                    ["images", "other", "expired", "unsigned"].map { "\($0).example:\(port):127.0.0.1" }
                }
            }
        } _: { fetcher in
            var origin = Origin.test()
            origin.caFile = nginx.caFile
            try await body(nginx, fetcher, origin)
        }
    }

    /// Downloads all files concurrently and compares them.
    private func fetchAll(
        _ files: [String: [UInt8]], from base: String, _ fetcher: CurlImageFetcher, _ origin: Origin
    ) async throws {
        try await withThrowingTaskGroup(of: (String, [UInt8]?).self) { group in
            for name in files.keys {
                group.addTask { (name, try await fetcher.fetch("\(base)/\(name)", of: origin).imageBytes) }
            }
            for try await (name, bytes) in group { #expect(bytes == files[name], "\(name)") }
        }
    }

    private static func manyFiles() -> [String: [UInt8]] {
        Dictionary(
            uniqueKeysWithValues: (0..<120).map { number in
                ("\(number).png", TestImage.png(count: 100 + number * number * 5, seed: number))
            })
    }

    @Test func `many concurrent images arrive complete, over no more connections than the origin allows`() async throws
    {
        let files = Self.manyFiles()
        try await withNginx(files: files) { nginx, fetcher, origin in
            var origin = origin
            origin.connections = 8
            try await fetchAll(files, from: "http://127.0.0.1:\(nginx.plainPort)", fetcher, origin)
            let requests = try nginx.requests()
            #expect(requests.count == files.count)
            #expect(Set(requests.map { $0[0] }).count <= 8)
            #expect(Set(requests.map { $0[1] }) == ["HTTP/1.1"])
        }
    }

    @Test func `over HTTP/2 many concurrent images share one connection`() async throws {
        let files = Self.manyFiles()
        try await withNginx(files: files) { nginx, fetcher, origin in
            try await fetchAll(files, from: "https://images.example:\(nginx.securePort)", fetcher, origin)
            let requests = try nginx.requests()
            #expect(requests.count == files.count)
            #expect(Set(requests.map { $0[1] }) == ["HTTP/2.0"])
            #expect(Set(requests.map { $0[0] }).count == 1)
        }
    }

    @Test func `over TLS without HTTP/2 connections are reused`() async throws {
        let files = Self.manyFiles()
        try await withNginx(files: files) { nginx, fetcher, origin in
            var origin = origin
            origin.connections = 4
            try await fetchAll(files, from: "https://images.example:\(nginx.securePlainPort)", fetcher, origin)
            let requests = try nginx.requests()
            #expect(requests.count == files.count)
            #expect(Set(requests.map { $0[1] }) == ["HTTP/1.1"])
            #expect(Set(requests.map { $0[0] }).count <= 4)
        }
    }

    @Test func `F34: nginx does not compress, because the request does not ask for it`() async throws {
        try await withNginx { nginx, fetcher, origin in
            let outcome = try await fetcher.fetch("http://127.0.0.1:\(nginx.plainPort)/a.png", of: origin)
            #expect(outcome.imageBytes == TestImage.png(count: 8_000))
            let headers = try #require(outcome.image).headers
            #expect(headers["etag"] != nil && headers["last-modified"] != nil && headers["content-type"] == "image/png")
        }
    }

    @Test func `F37: a certificate of an unknown authority or for another host is a failure of the origin`()
        async throws
    {
        try await withNginx { nginx, fetcher, origin in
            let url = "https://images.example:\(nginx.securePort)/a.png"
            let trusted = try await fetcher.fetch(url, of: origin)
            #expect(trusted.kind == "image")
            // Not even over the open connection.
            let untrusted = try await fetcher.fetch(url, of: .test())
            #expect(untrusted.kind == "origin" && untrusted.reason.contains("images.example"))
            #expect(untrusted.reason.lowercased().contains("certificate"))
            let other = try await fetcher.fetch("https://other.example:\(nginx.securePort)/a.png", of: origin)
            #expect(other.kind == "origin" && other.reason.contains("other.example"))
            #expect(try nginx.requests().count == 1)
        }
    }

    @Test func `F37: an expired or self-signed certificate is a failure of the origin`()
        async throws
    {
        try await withNginx { nginx, fetcher, origin in
            let expired = try await fetcher.fetch("https://expired.example:\(nginx.securePort)/a.png", of: origin)
            #expect(expired.kind == "origin" && expired.reason.contains("expired"), "\(expired)")
            let unsigned = try await fetcher.fetch("https://unsigned.example:\(nginx.securePort)/a.png", of: origin)
            #expect(unsigned.kind == "origin" && unsigned.reason.contains("self-signed"), "\(unsigned)")
            #expect(try nginx.requests().isEmpty)
        }
    }

    @Test func `F58: over HTTP/2 each origin has its own connection`() async throws {
        try await withNginx { nginx, fetcher, origin in
            var other = origin
            other.name = "other"
            for _ in 0..<5 {
                for origin in [origin, other] {
                    let url = "https://images.example:\(nginx.securePort)/a.png"
                    let outcome = try await fetcher.fetch(url, of: origin)
                    #expect(outcome.kind == "image", "\(outcome)")
                }
            }
            let requests = try nginx.requests()
            #expect(requests.count == 10 && Set(requests.map { $0[0] }).count == 2)
        }
    }

    @Test func `F58: over HTTP/2 the permission to use a connection is checked for each request`() async throws {
        try await withNginx { nginx, fetcher, origin in
            let url = "https://images.example:\(nginx.securePort)/a.png"
            let allowed = try await fetcher.fetch(url, of: origin)
            var bound = origin
            // As after a reload. An origin of another name would not share connections.
            bound.allowPrivateAddresses = false
            let refused = try await fetcher.fetch(url, of: bound)
            let again = try await fetcher.fetch(url, of: origin)
            #expect([allowed.kind, refused.kind, again.kind] == ["image", "denied", "image"])
            #expect(try nginx.requests().count == 2)
        }
    }

    @Test func `F30: a redirect from https to http is rejected`() async throws {
        let nginx = try Nginx(
            files: ["a.png": TestImage.png],
            locations: """
                location = /down { return 302 http://127.0.0.1/a.png; }
                location = /same { return 302 /a.png; }
                """)
        defer { nginx.stop() }
        let port = nginx.securePort
        try await withFetcher {
            $0.resolverOverrides = { ["images.example:\(port):127.0.0.1"] }
        } _: { fetcher in
            var origin = Origin.test()
            origin.caFile = nginx.caFile
            let down = try await fetcher.fetch("https://images.example:\(port)/down", of: origin)
            #expect(down.kind == "denied" && down.reason.contains("from https to http"))
            let same = try await fetcher.fetch("https://images.example:\(port)/same", of: origin)
            #expect(same.kind == "image")
        }
    }

    @Test func `a connection resumes TLS sessions of its own origin only`()
        async throws
    {
        let nginx = try Nginx(
            files: ["a.png": TestImage.png],
            locations: """
                ssl_session_cache shared:all:1m;
                location / { etag off; add_header ETag '"$ssl_session_reused"'; keepalive_timeout 0; }
                """)
        defer { nginx.stop() }
        let port = nginx.securePlainPort
        for _ in 0..<3 {
            try await withFetcher {
                $0.resolverOverrides = { ["images.example:\(port):127.0.0.1"] }
            } _: { fetcher in
                func reused(_ origin: String) async throws -> String? {
                    var origin = Origin.test(origin)
                    origin.caFile = nginx.caFile
                    let outcome = try await fetcher.fetch("https://images.example:\(port)/a.png", of: origin)
                    return outcome.image?.headers["etag"]
                }
                let (new, known) = ("\".\"", "\"r\"")
                let first = [try await reused("one"), try await reused("one"), try await reused("one")]
                #expect(first == [new, known, known])
                let other = [try await reused("two"), try await reused("two")]
                #expect(other == [new, known])
                // Removing a connection pool also removes its sessions.
                var settings = FetcherSettings(version: "tests", logLevel: "info")
                settings.origins = ["one"]
                fetcher.update(settings)
                let after = [try await reused("one"), try await reused("two")]
                #expect(after == [known, new])
            }
        }
    }
}
