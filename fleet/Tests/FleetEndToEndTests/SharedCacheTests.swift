import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// A shared HTTP cache in front of the origin: nginx and Varnish with the files of `fleet/config`.
    struct SharedCacheTests {
        private static let forTenMinutes = "Cache-Control: max-age=600"

        /// Starts hosts that use a shared cache in front of one origin; alice is logged in on each.
        private func withHosts(
            _ kind: SharedCache.Kind, hosts count: Int = 2,
            _ answer: @escaping @Sendable (GatedOrigin.Request) -> [UInt8],
            _ body: (GatedOrigin, SharedCache, [Daemon]) throws -> Void
        ) throws {
            try withMachine { machine in
                let origin = try GatedOrigin { [.send(answer($0))] }
                defer { origin.end() }
                let cache = try SharedCache(machine, kind, origin: origin.port)
                let hosts = try (0..<count).map { number in
                    try machine.daemon("host\(number)") { daemon in
                        cache.configure(&daemon.settings)
                        daemon.settings.setOrigin("\(origin.url)/{profile}", name: "direct")
                    }
                }
                for host in hosts { #expect(try host.connect().call("LOGIN", "alice") == .ok) }
                try body(origin, cache, hosts)
            }
        }

        /// fleet/docs/fleet.md cites these numbers.
        @Test(arguments: SharedCache.Kind.allCases)
        func `4 hosts request the same 100 images, 10 of them missing: the origin gets 100 requests instead of 400`(
            kind: SharedCache.Kind
        ) throws {
            let answer: @Sendable (GatedOrigin.Request) -> [UInt8] = { request in
                if request.path.hasSuffix("0") { return GatedOrigin.response([], status: "404 Not Found") }
                return GatedOrigin.response(TestImage.gif(request.path, size: 1_000), headers: [Self.forTenMinutes])
            }
            try withHosts(kind, hosts: 4, answer) { origin, _, hosts in
                let sockets = hosts.map(\.socket)
                let names = (0..<100).map { "friend-\($0)" }
                let wanted = names.map { name in
                    name.hasSuffix("0") ? Reply.null : .bulk(TestImage.gif("/\(name)", size: 1_000))
                }
                func requestAll(_ user: String) throws {
                    try concurrently(sockets.count) { number in
                        let client = try RESPClient(sockets[number])
                        try client.send(["MGET", user, "\(names.count)"] + names)
                        let reply = try client.receive()
                        guard reply == .array(wanted) else { throw Failure("host \(number) has \(reply.brief)") }
                    }
                }
                try requestAll("alice")
                #expect(origin.requests.count == 100)
                #expect(Set(origin.requests.map(\.path)).count == 100)
                // Without the shared cache.
                for host in hosts { #expect(try host.connect().call("LOGIN", "bob", "ORIGIN", "direct") == .ok) }
                try requestAll("bob")
                #expect(origin.requests.count == 100 + 400)
            }
        }

        /// The origin sends `public`, with which RFC 9111 section 3.5 permits sharing.
        @Test(arguments: SharedCache.Kind.allCases)
        func `I1: responses to requests with a token or other client header fields are not shared`(
            kind: SharedCache.Kind
        ) throws {
            let answer: @Sendable (GatedOrigin.Request) -> [UInt8] = { request in
                let isMisled = request.headers.values.contains { $0.contains("evil") }
                let bearer = request.headers["authorization"] ?? (isMisled ? "evil" : "anonymous")
                return GatedOrigin.response(TestImage.gif(bearer), headers: ["Cache-Control: public, max-age=600"])
            }
            try withHosts(kind, answer) { origin, cache, hosts in
                // Any user of a host can send this request; the shared cache must not store its header fields' effect.
                let asked = try cache.get(
                    "/carol", "X-Forwarded-Host: evil", "Cookie: evil", "Accept: evil", "Accept-Language: evil",
                    "Range: evil", "User-Agent: evil", "X-Original-URL: /evil", "Host: evil")
                #expect(asked == TestImage.gif("anonymous"))
                for round in ["once", "again"] {
                    for (number, host) in hosts.enumerated() {
                        let client = try host.connect()
                        let token = "token-\(number)-\(round)"
                        #expect(try client.call("LOGIN", "bob", "TOKEN", token) == .ok)
                        #expect(try client.call("GET", "bob", "carol") == .bulk(TestImage.gif("Bearer \(token)")))
                        #expect(try client.call("LOGOUT", "bob").code == nil)
                        // Without a token, over the same connection between cache and origin.
                        #expect(try client.call("GET", "alice", "carol") == .bulk(TestImage.gif("anonymous")))
                    }
                }
                #expect(origin.requests.count == 4 + 1)
            }
        }

        /// The last three header fields control nginx or Varnish itself unless they are ignored.
        @Test(arguments: SharedCache.Kind.allCases)
        func `private and uncacheable responses are not shared`(kind: SharedCache.Kind)
            throws
        {
            let fields = [
                "private": ["Cache-Control: private, max-age=600"],
                "nothing": ["Cache-Control: no-store"],
                "validated": ["Cache-Control: no-cache, max-age=600"],
                "cookie": ["Set-Cookie: who=one", Self.forTenMinutes],
                "varies": ["Vary: *", Self.forTenMinutes],
                "accel": ["X-Accel-Expires: 600", "Cache-Control: private"],
                "surrogate": ["Surrogate-Control: max-age=600", "Cache-Control: private"],
                "expires": ["Cache-Control: private", "Expires: Thu, 01 Jan 2099 00:00:00 GMT"],
            ]
            let answer: @Sendable (GatedOrigin.Request) -> [UInt8] = { request in
                GatedOrigin.response(
                    TestImage.gif("\(request.number)"), headers: fields[String(request.path.dropFirst())] ?? [])
            }
            try withHosts(kind, answer) { origin, _, hosts in
                for name in fields.keys {
                    let images = try hosts.map { try $0.connect().call("GET", "alice", name) }
                    #expect(images[0].bytes != nil && images[0] != images[1], "\(name) was shared")
                }
                #expect(origin.requests.count == 2 * fields.count)
            }
        }

        @Test(arguments: SharedCache.Kind.allCases)
        func `I3: a logout deletes the host's cache with and without the shared cache`(
            kind: SharedCache.Kind
        ) throws {
            let picture = TestImage.gif("bob")
            let answer: @Sendable (GatedOrigin.Request) -> [UInt8] = { _ in
                GatedOrigin.response(picture, headers: [Self.forTenMinutes])
            }
            try withHosts(kind, answer) { origin, cache, hosts in
                for host in hosts { #expect(try host.connect().call("GET", "alice", "bob") == .bulk(picture)) }
                let client = try hosts[0].connect()
                func logOut(_ user: String) throws {
                    #expect(try client.call("LOGOUT", user).code == nil)
                    #expect(try client.call("GET", user, "bob").code == "NOLOGIN")
                    #expect(hosts[0].loginFiles == [])
                    try eventually("the image files are deleted") { hosts[0].imageFiles == [] }
                }
                try logOut("alice")
                // The shared cache keeps the public image after the logout.
                #expect(try client.call("LOGIN", "dan") == .ok)
                #expect(try client.call("GET", "dan", "bob") == .bulk(picture))
                #expect(origin.requests.count == 1)
                cache.process.end()
                try logOut("dan")
                // The other host still has its copy and sends no request.
                #expect(try hosts[1].connect().call("GET", "alice", "bob") == .bulk(picture))
            }
        }

        @Test(arguments: SharedCache.Kind.allCases)
        func `a stale image in the shared cache is revalidated, and served while the origin fails`(
            kind: SharedCache.Kind
        ) throws {
            let (picture, fails, failures) = (TestImage.gif("bob"), Watched(false), Watched(0))
            let answer: @Sendable (GatedOrigin.Request) -> [UInt8] = { request in
                if fails.current {
                    failures.change { $0 += 1 }
                    return GatedOrigin.response([], status: "503 Service Unavailable")
                }
                let fields = ["ETag: \"1\"", "Cache-Control: max-age=1"]
                let isSame = request.headers["if-none-match"] != nil
                return GatedOrigin.response(
                    isSame ? [] : picture, status: isSame ? "304 Not Modified" : "200 OK", headers: fields)
            }
            try withHosts(kind, hosts: 1, answer) { origin, _, hosts in
                let client = try hosts[0].connect()
                /// Requests the image from a host that has no copy.
                func request() throws {
                    #expect(try client.call("PURGE", "alice").code == nil)
                    #expect(try client.call("GET", "alice", "bob") == .bulk(picture))
                }
                try eventually("the stale image is revalidated") {
                    try request()
                    return origin.requests.count >= 2
                }
                #expect(origin.requests[1].headers["if-none-match"] == "\"1\"")
                fails.change { $0 = true }
                try eventually("the origin has failed") {
                    try request()
                    return failures.current > 0
                }
                try request()
            }
        }
    }
}
