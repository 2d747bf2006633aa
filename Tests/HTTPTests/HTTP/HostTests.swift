import NIOHTTP1
import Testing

@testable import thumbcached_http

/// Validation of the field Host, and routes.
@Suite struct HostTests {
    @Test(arguments: [
        ("localhost", true), ("LOCALHOST:9420", true), ("127.0.0.1", true), ("127.0.0.1:9420", true),
        ("127.255.255.254:1", true), ("[::1]", true), ("[::1]:9420", true), ("[0:0:0:0:0:0:0:1]:9420", true),
        ("metrics.example.org", true), ("Metrics.Example.org:443", true), ("192.0.2.7:9420", true),
        ("[2001:db8::7]:9420", true),
        // Names of a DNS rebinding attack.
        ("evil.example", false), ("evil.example:9420", false), ("localhost.evil.example", false),
        ("127.0.0.1.evil.example", false), ("127.0.0.1:9420.evil.example", false), ("127.evil.example", false),
        ("evil.example/localhost", false), ("evil@localhost", false), ("localhost@evil.example", false),
        // Malformed hosts.
        ("", false), (":9420", false), ("::1", false), ("[::1", false), ("::1]", false), ("[127.0.0.1]", false),
        ("[localhost]", false), ("localhost:", true), ("localhost:99999999", false), ("localhost:http", false),
        ("localhost:-1", false), ("127.1", false), ("2130706433", false), ("0x7f.1", false), ("[::1%lo]", false),
        ("[::ffff:127.0.0.1]", false), ("0.0.0.0", false), ("192.0.2.8", false), ("local host", false),
        ("localhost.", false), ("localh\u{f6}st", false), (String(repeating: "a", count: 10_000), false),
    ])
    func `loopback hosts and hosts named with --host are valid`(
        field: String, isAllowed: Bool
    ) {
        let names = ["metrics.example.org", "192.0.2.7", "[2001:db8::7]"].compactMap { HostName($0) }
        #expect(names.count == 3)
        #expect(HostRule(names).allows(field) == isAllowed)
    }

    @Test(
        arguments: [
            ("127.0.0.1:9420", "127.0.0.1:9420"), ("[::1]:9420", "[::1]:9420"), ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::]:0", "[::]:0"), ("[2001:DB8:0::7]:65535", "[2001:db8::7]:65535"),
            // A resolver could map a name to an address of another machine.
            ("localhost:9420", nil), ("example.org:9420", nil), ("9420", nil), (":9420", nil), ("127.0.0.1", nil),
            ("::1:9420", nil), ("[127.0.0.1]:9420", nil), ("127.0.0.1:65536", nil), ("127.0.0.1:+80", nil),
            ("127.0.0.1:", nil), ("[::1%lo]:9420", nil), ("", nil),
            ("/run/thumbcached-http/images.sock", "/run/thumbcached-http/images.sock"), ("images.sock", nil),
            ("/\(String(repeating: "a", count: 107))", nil), ("/a\0b", nil),
        ] as [(String, String?)])
    func `a listener has a literal address or the path of a socket`(text: String, address: String?) {
        #expect(ListenAddress(text)?.description == address)
    }

    @Test func `the address of the listener is a valid host, and every host is valid on a Unix socket`() throws {
        let tcp = ListeningPlace.address(try #require(ListenAddress("192.0.2.7:80")))
        #expect(HostRule(tcp, []).allows("192.0.2.7") && !HostRule(tcp, []).allows("avatars.example.org"))
        #expect(HostRule(tcp, [try #require(HostName("avatars.example.org"))]).allows("avatars.example.org:443"))
        for place in [.address(.unix(path: "/s")), ListeningPlace.passed(3, isUnix: true)] {
            #expect(HostRule(place, []).allows("avatars.example.org"))
        }
        #expect(!HostRule(.passed(3, isUnix: false), []).allows("avatars.example.org"))
    }

    struct Request: Sendable {
        var method = HTTPMethod.GET
        var uri = "/"
        var fields: [(String, String)] = [("Host", "localhost")]
        let expected: String

        init(
            _ expected: String, _ method: HTTPMethod = .GET, _ uri: String = "/",
            _ fields: [(String, String)] = [("Host", "localhost")]
        ) {
            (self.expected, self.method, self.uri, self.fields) = (expected, method, uri, fields)
        }
    }

    private static let host = ("Host", "localhost")

    @Test(arguments: [
        Request("page"), Request("page", .HEAD), Request("page", .GET, "/?a=/metrics"),
        Request("metrics", .GET, "/metrics"), Request("metrics", .HEAD, "/metrics?collect=all"),
        Request("404", .GET, "/metrics/"), Request("404", .GET, "//"),
        Request("404", .GET, "/../metrics"), Request("404", .GET, "/%6detrics"), Request("404", .HEAD, "/favicon.ico"),
        Request("400, closes", .GET, "http://localhost/metrics"), Request("400, closes", .GET, "*"),
        Request("400, closes", .GET, ""), Request("400, closes", .GET, "/metrics", []),
        Request("400, closes", .GET, "/metrics", [host, host]),
        Request("403, closes", .GET, "/metrics", [("Host", "a")]),
        Request("405, closes", .POST), Request("405, closes", .PUT), Request("405, closes", .CONNECT, "localhost:80"),
        Request("405, closes", .OPTIONS, "*"), Request("405, closes", .DELETE, "/metrics"),
        Request("405, closes", .RAW(value: "get")),
        // The host is checked before the method.
        Request("403, closes", .POST, "/", [("Host", "evil.example")]),
        Request("page", .GET, "/", [host, ("Content-Length", "0")]),
        Request("400, closes", .GET, "/", [host, ("Content-Length", "1")]),
        Request("400, closes", .GET, "/nothing", [host, ("Content-Length", "00")]),
        Request("400, closes", .GET, "/", [host, ("Content-Length", "0"), ("Content-Length", "5")]),
        Request("400, closes", .HEAD, "/metrics", [host, ("Transfer-Encoding", "chunked")]),
    ])
    func `the head decides the route`(request: Request) {
        let head = HTTPRequestHead(
            version: .http1_1, method: request.method, uri: request.uri, headers: HTTPHeaders(request.fields))
        let found =
            switch FiguresRoute(head, HeadCheck(hosts: HostRule([]), hostSetting: "figures.hosts")) {
            case .page: "page"
            case .metrics: "metrics"
            case .refused(let refusal): "\(refusal.response.status.code)" + (refusal.closes ? ", closes" : "")
            }
        #expect(found == request.expected)
    }
}
