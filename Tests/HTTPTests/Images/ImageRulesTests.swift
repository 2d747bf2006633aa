import NIOCore
import NIOHTTP1
import Testing
import Thumbcache

@testable import thumbcached_http

/// What a request for an image leads to, and the response to each reply of the daemon.
@Suite struct ImageRulesTests {
    static let hash = "0bc83cb571cd1c50ba6f3e8a78ef1346"
    static let digest = String(repeating: "a", count: 64)

    static func rules(_ adjust: (inout ImageSettings) -> Void = { _ in }, key: String? = nil) throws -> ImageRules {
        var settings = ImageSettings()
        (settings.user, settings.perUser) = ("site", .open)
        adjust(&settings)
        return ImageRules(
            settings: settings, keys: try key.map { try SigningKeys(Array($0.utf8)) },
            check: HeadCheck(hosts: HostRule([]), hostSetting: "images.hosts"))
    }

    static func head(
        _ uri: String, _ method: HTTPMethod = .GET, _ fields: [(String, String)] = []
    ) -> HTTPRequestHead {
        HTTPRequestHead(
            version: .http1_1, method: method, uri: uri, headers: HTTPHeaders([("Host", "localhost")] + fields))
    }

    private func route(_ rules: ImageRules, _ uri: String, now: Int64 = 0) -> String {
        switch rules.route(Self.head(uri), now: now) {
        case .refused(let refusal): "\(refusal.response.status.code)"
        case .answered(let response): "default \(response.status.code)"
        case .image(let request): "\(request.user) \(request.size)"
        }
    }

    @Test func `/avatar/ is one user's, and /u/ is that of its user`() throws {
        let rules = try Self.rules()
        #expect(route(rules, "/avatar/\(Self.hash)") == "site 80")
        #expect(route(rules, "/avatar/\(Self.hash).jpg?s=200&d=mp&r=x") == "site 200")
        #expect(route(rules, "/u/alice%40example.org/avatar/\(Self.hash)?s=40") == "alice@example.org 40")
        #expect(route(rules, "/avatar/\(Self.hash)?d=mp&f=y") == "default 200")
        #expect(route(rules, "/avatar/\(Self.hash)?d=404&f=y") == "default 404")
        for path in ["/", "/metrics", "/avatar/", "/avatar/x", "/u/alice", "/u/../avatar/\(Self.hash)"] {
            #expect(route(rules, path) == "404")
        }
        #expect(route(rules, "/avatar/\(Self.hash)?d=%") == "400")
    }

    @Test func `paths are off until a setting allows them`() throws {
        let rules = try Self.rules { ($0.user, $0.perUser) = ("", .off) }
        for path in ["/avatar/\(Self.hash)", "/u/alice/avatar/\(Self.hash)", "/u/alice/avatar/\(Self.hash)?f=y"] {
            #expect(route(rules, path) == "404")
        }
        #expect(!rules.settings.servesImages && !ImageSettings().servesImages)
    }

    @Test(
        arguments: [
            ("", 80), ("s=1", 1), ("s=0", 80), ("s=2048", 2_048), ("s=4096", 2_048), ("s=x", 80), ("x=?&s=40", 40),
            ("s=40?s=50", 80), ("\u{301}&s=40", 40),
        ])
    func `the size is within the limit`(query: String, size: Int) throws {
        #expect(route(try Self.rules(), "/avatar/\(Self.hash)?\(query)") == "site \(size)")
        #expect(route(try Self.rules { $0.sizeLimit = 40 }, "/avatar/\(Self.hash)?\(query)") == "site \(min(size, 40))")
    }

    @Test func `with signed URLs, /u/ needs a signature before anything else is decided`() throws {
        let key = "0123456789abcdef0123456789abcdef"
        let rules = try Self.rules({ ($0.perUser, $0.longestUserAge) = (.signed, 600) }, key: key)
        let path = "/u/alice/avatar/\(Self.hash)"
        let signature = URLSignatureTests.sign(path, expires: 1_000, key: key)
        let signed = "\(path)?expires=1000&signature=\(signature)"
        guard case .image(let request) = rules.route(Self.head(signed + "&s=40"), now: 900) else {
            Issue.record("a signed URL is refused")
            return
        }
        #expect(request.size == 40 && request.policy == CachePolicy(longest: 600, signatureLeft: 100))
        #expect(route(rules, signed, now: 1_000) == "403")
        for uri in [
            path, path + "?f=y", signed.replacing("alice", with: "bob"), signed.replacing("=1000", with: "=2000"),
        ] {
            #expect(route(rules, uri, now: 900) == "403")
        }
        // Without a key nothing is valid.
        #expect(route(try Self.rules { $0.perUser = .signed }, signed, now: 900) == "403")
        #expect(route(rules, "/avatar/\(Self.hash)") == "site 80")
    }

    private func response(
        _ outcome: ImageOutcome, _ query: String = "d=404", tags: String? = nil,
        _ adjust: (inout ImageSettings) -> Void = { _ in }
    ) throws -> (status: UInt, fields: [String: String], body: String) {
        let rules = try Self.rules(adjust)
        let fields = tags.map { [("If-None-Match", $0)] } ?? []
        guard case .image(let request) = rules.route(Self.head("/avatar/\(Self.hash)?\(query)", .GET, fields), now: 0)
        else {
            Issue.record("no request for an image")
            return (0, [:], "")
        }
        let response = rules.response(to: request, outcome)
        let head = response.head(closes: false, at: 0)
        let named = Dictionary(head.headers.map { ($0.name.lowercased(), $0.value) }) { $0 + "; " + $1 }
        return (head.status.code, named, String(buffer: response.body))
    }

    @Test func `an image has its type, its digest as entity tag, and its remaining freshness`() throws {
        let image = try response(.image(.sample()))
        #expect(image.status == 200 && image.body == "<png>\n")
        #expect(image.fields["content-type"] == "image/png" && image.fields["etag"] == "\"\(Self.digest)\"")
        #expect(image.fields["cache-control"] == "private, max-age=60, must-revalidate")
        #expect(image.fields["x-content-type-options"] == "nosniff")
        #expect(image.fields["cross-origin-resource-policy"] == "same-site")
        #expect(image.fields["content-security-policy"]?.hasSuffix("; sandbox") == true)
        let embedded = try response(.image(.sample())) { $0.embedding = .crossOrigin }
        #expect(embedded.fields["cross-origin-resource-policy"] == "cross-origin")
    }

    @Test func `a type or digest of the daemon that is unknown does not reach a header field`() throws {
        for status in [
            ImageStatus.sample(type: "text/html"), .sample(type: "image/svg+xml"),
            .sample(type: "image/png\r\nX: y"), .sample(digest: "a\"\r\nX: y"), .sample(digest: ""),
        ] {
            #expect(try response(.image(.sample(status))).status == 502)
        }
    }

    @Test func `a browser that has the image gets 304 without a body`() throws {
        for tags in ["\"\(Self.digest)\"", "W/\"\(Self.digest)\"", "\"x\", \"\(Self.digest)\"", "*"] {
            let unchanged = try response(.image(.sample()), tags: tags)
            #expect(unchanged.status == 304 && unchanged.body == "" && unchanged.fields["content-type"] == nil)
            #expect(unchanged.fields["etag"] == "\"\(Self.digest)\"")
            #expect(unchanged.fields["cache-control"] == "private, max-age=60, must-revalidate")
        }
        let known = try response(.unchanged(digest: Self.digest, .sample()))
        #expect(known.status == 304 && known.fields["cache-control"] == "private, max-age=60, must-revalidate")
        let unknown = try response(.unchanged(digest: Self.digest, nil))
        #expect(unknown.status == 304 && unknown.fields["cache-control"] == "private, no-cache")
        #expect(try response(.image(.sample()), tags: "\"\(String(repeating: "b", count: 64))\"").status == 200)
    }

    @Test func `without an image the default image is never taken for it`() throws {
        let missing = try response(.missing, "d=404", tags: "\"\(Self.digest)\"")
        #expect(missing.status == 404 && missing.fields["cache-control"] == "no-store" && missing.fields["etag"] == nil)
        for word in ["mp", "blank", "initials&name=Ada"] {
            let drawn = try response(.missing, "d=\(word)", tags: "*")
            #expect(drawn.status == 200 && drawn.fields["content-type"] == "image/svg+xml")
            #expect(drawn.fields["cache-control"] == "private, no-cache" && drawn.fields["etag"] == nil)
            #expect(drawn.fields["content-security-policy"]?.hasPrefix("default-src 'none'") == true)
        }
        let url = "https://static.example.org/nobody.png"
        let prefixes = [try #require(URLPrefix("https://static.example.org/"))]
        let redirect = try response(.missing, "d=\(url)") { $0.defaultURLs = prefixes }
        #expect(redirect.status == 302 && redirect.fields["location"] == url && redirect.body == "")
        #expect(try response(.missing, "d=\(url)").fields["location"] == nil)
    }

    @Test(
        arguments: [
            (ImageOutcome.Failure.busy, 503), (.unavailable, 503), (.timeout, 504), (.origin, 502),
        ] as [(ImageOutcome.Failure, UInt)])
    func `a failure has its status and is not stored`(failure: ImageOutcome.Failure, status: UInt) throws {
        let text = try response(.failure(failure))
        #expect(text.status == status && text.fields["content-type"] == "text/plain; charset=utf-8")
        let drawn = try response(.failure(failure), "d=mp")
        #expect(drawn.status == status && drawn.fields["content-type"] == "image/svg+xml")
        for response in [text, drawn] {
            #expect(response.fields["cache-control"] == "no-store")
            #expect((response.fields["retry-after"] != nil) == (status == 503))
        }
    }

    @Test(
        arguments: [
            (.server(.noLogin, message: ""), .missing), (.server(.cancelled, message: ""), .missing),
            (.server(.busy, message: ""), .failure(.busy)), (.server(.timeout, message: ""), .failure(.timeout)),
            (.timeout, .failure(.timeout)), (.server(.origin, message: ""), .failure(.origin)),
            (.server(.unauthorized, message: ""), .failure(.origin)),
            (.server(.badImage, message: ""), .failure(.origin)),
            (.server(.ioError, message: ""), .failure(.unavailable)), (.connectionLost, .failure(.unavailable)),
            (.server(.shuttingDown, message: ""), .failure(.unavailable)),
            (.unreachable(path: "/s", errno: 2), .failure(.unavailable)),
        ] as [(ThumbcacheError, ImageOutcome)])
    func `a logout looks like a missing image`(error: ThumbcacheError, outcome: ImageOutcome) {
        #expect(ImageOutcome(error) == outcome)
    }
}
