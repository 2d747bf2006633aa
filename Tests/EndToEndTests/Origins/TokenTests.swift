import Foundation
import Testing

extension EndToEnd {
    /// Access tokens, with a daemon, an origin that shows its pictures to their bearers only, and the endpoint that
    /// issues them.
    struct TokenTests {
        /// - Parameter allow: where else than its own host the origin may lead.
        private func withDaemon(
            allow: [Settings.Value] = [], _ body: (Machine, Daemon, TokenOrigin) throws -> Void
        ) throws {
            try withMachine { machine in
                let origin = try TokenOrigin(refresh: "first-refresh")
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    origin.configure(&daemon.settings)
                    if !allow.isEmpty { daemon.settings["origins.default", "allow"] = .array(allow) }
                    daemon.settings["log", "level"] = "trace"
                }
                try body(machine, daemon, origin)
            }
        }

        @Test func `I6: 200 concurrent misses with an expired token make one token request, and each gets its image`()
            throws
        {
            try withDaemon { _, daemon, origin in
                #expect(
                    try daemon.connect().call("LOGIN", "alice", "TOKEN", "expired", "REFRESH", "first-refresh") == .ok)
                let socket = daemon.socket
                try concurrently(200) { number in
                    let reply = try RESPClient(socket).call("GET", "alice", "\(number)")
                    guard reply == .bulk(TokenOrigin.picture("/\(number)")) else { throw Failure(reply.brief) }
                }
                #expect(origin.current.asked == ["first-refresh"])
                let bearers = Dictionary(grouping: origin.current.bearers) { $0 }.mapValues(\.count)
                #expect(bearers["Bearer \(origin.current.access)"] == 200)
                #expect(Set(bearers.keys).isSubset(of: ["Bearer expired", "Bearer \(origin.current.access)"]))
                #expect(try daemon.info("token_refreshes") == "1")
                #expect(try daemon.info("token_refresh_failures") == "0")
            }
        }

        @Test
        func `I4: with REFRESH alone, each new token outlives kill -9 the moment an image that needed it was served`()
            throws
        {
            try withDaemon { _, daemon, origin in
                #expect(try daemon.connect().call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                for round in 1...5 {
                    let reply = try daemon.connect().call("GET", "alice", "\(round)")
                    #expect(reply == .bulk(TokenOrigin.picture("/\(round)")), "round \(round): \(reply.brief)")
                    #expect(origin.current.asked.count == round)
                    if round % 2 == 0 {
                        try daemon.restart()
                    } else {
                        daemon.kill()
                        try daemon.start()
                    }
                    // The access token is still good, and known.
                    #expect(
                        try daemon.connect().call("GET", "alice", "\(round)-again")
                            == .bulk(TokenOrigin.picture("/\(round)-again")))
                    #expect(origin.current.asked.count == round)
                    origin.expire()
                }
                #expect(
                    origin.current.asked == ["first-refresh"] + (1...4).map { "refresh-of-the-origin-\($0)" })
                #expect(!origin.current.bearers.contains("nobody"))
            }
        }

        @Test func `a refused refresh is UNAUTHORIZED and is not asked for again until a log-in brings another token`()
            throws
        {
            try withDaemon { _, daemon, origin in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", "expired", "REFRESH", "wrong-refresh") == .ok)
                for profile in ["bob", "eve", "dan"] {
                    #expect(try client.call("GET", "alice", profile).code == "UNAUTHORIZED")
                }
                #expect(origin.current.asked == ["wrong-refresh"])
                #expect(origin.current.bearers == ["Bearer expired"])
                #expect(try daemon.info("token_refresh_failures") == "1")
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.picture("/bob")))
            }
        }

        @Test func `F37: an endpoint that is down is ORIGIN and loses no token`() throws {
            try withDaemon { _, daemon, origin in
                origin.answer(.fail)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                origin.answer(.grant)
                try eventually("the endpoint is asked again") {
                    try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.picture("/bob"))
                }
                #expect(Set(origin.current.asked) == ["first-refresh"])
            }
        }

        @Test func `F40: a log-out while the endpoint hangs is prompt, and takes the request and the tokens with it`()
            throws
        {
            try withDaemon { _, daemon, origin in
                origin.answer(.hang)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                try client.send("GET", "alice", "bob")
                try origin.server.waitForRequests(1)
                try client.send("LOGOUT", "alice")
                #expect(try client.receive().code == "CANCELLED")
                #expect(try client.receive()["users"] == .integer(1))
                try origin.server.waitForAbandoned(1)
                #expect(daemon.loginFiles.isEmpty)
                // The next log-in has no token of the one before.
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "UNAUTHORIZED")
                #expect(origin.current.bearers == ["nobody"])
                #expect(origin.current.asked.count == 1)
            }
        }

        @Test func `F39: a renewed token goes to the origin's own host, and not with a redirect to another`() throws {
            let other = try GatedOrigin.images { _ in Picture.gif("elsewhere") }
            defer { other.end() }
            try withDaemon(allow: [.string(other.url)]) { _, daemon, origin in
                origin.redirectAway(to: "\(other.url)/elsewhere")
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "away") == .bulk(Picture.gif("elsewhere")))
                #expect(origin.current.bearers == ["Bearer access-of-the-origin-1"])
                #expect(other.requests.map { $0.headers["authorization"] } == [nil])
            }
        }

        @Test func `I11: neither token, old or new, nor the client's secret is in a log, on disk or in INFO`() throws {
            try withMachine { machine in
                let origin = try TokenOrigin(refresh: "first-refresh")
                defer { origin.end() }
                let secret = "secret-of-the-client"
                try write(secret + "\n", to: machine.path("secret"))
                let daemon = try machine.daemon { daemon in
                    origin.configure(&daemon.settings, secretFile: machine.path("secret"))
                    daemon.settings["log", "level"] = "trace"
                }
                let client = try daemon.connect()
                #expect(
                    try client.call("LOGIN", "alice", "TOKEN", "expired-access", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.picture("/bob")))
                let credentials = Data("thumbcached:\(secret)".utf8).base64EncodedString()
                let request = try #require(origin.server.requests.first { $0.path == "/token" })
                #expect(request.headers["authorization"] == "Basic \(credentials)")
                #expect(!request.body.contains(secret) && !request.body.contains("client_id"))
                origin.answer(.refuse)
                origin.expire()
                #expect(try client.call("GET", "alice", "eve").code == "UNAUTHORIZED")
                let told = try ["INFO", "USERS"].map { try client.call($0).text ?? "" }
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "dan").code == "UNAUTHORIZED")

                let needles =
                    ["expired-access", "first-refresh", "access-of-the-origin", "refresh-of-the-origin", secret]
                    + [credentials]
                for needle in needles {
                    #expect(!daemon.log.contains(needle), "the log says \(needle)")
                    for text in told { #expect(!text.contains(needle)) }
                    let encoded = Data(needle.utf8).base64EncodedString()
                    for file in daemon.files {
                        let bytes = Data(try read(file))
                        #expect(bytes.range(of: Data(needle.utf8)) == nil, "\(file) holds \(needle)")
                        #expect(bytes.range(of: Data(encoded.utf8)) == nil, "\(file) holds \(needle)")
                    }
                }
                #expect(daemon.log.contains("could not be renewed"))
                #expect(!daemon.loginFiles.isEmpty)
            }
        }

        @Test func `REFRESH for an origin without a token endpoint is an error that says what is missing`() throws {
            try withMachine { machine in
                let origin = try TokenOrigin(refresh: "first-refresh")
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.server.url)/{profile}") }
                let reply = try daemon.connect().call("LOGIN", "alice", "REFRESH", "first-refresh")
                #expect(
                    reply
                        == .error(
                            "ERR",
                            "REFRESH: origin default has no token endpoint; "
                                + "origins.default.token in the configuration would name it"))
            }
        }
    }
}
