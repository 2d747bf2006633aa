import Foundation
import Testing

extension EndToEnd.Origins {
    /// Access tokens and their renewal.
    struct TokenTests {
        /// - Parameter allow: URLs on other hosts that the origin allows.
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

        @Test func `I6: 200 concurrent misses with an expired token cause one token request`() throws {
            try withDaemon { _, daemon, origin in
                #expect(
                    try daemon.connect().call("LOGIN", "alice", "TOKEN", "expired", "REFRESH", "first-refresh") == .ok)
                let socket = daemon.socket
                try concurrently(200) { number in
                    let reply = try RESPClient(socket).call("GET", "alice", "\(number)")
                    guard reply == .bulk(TokenOrigin.image("/\(number)")) else { throw Failure(reply.brief) }
                }
                #expect(origin.current.receivedRefreshTokens == ["first-refresh"])
                let authorizations = Dictionary(grouping: origin.current.authorizations) { $0 }.mapValues(\.count)
                #expect(authorizations["Bearer \(origin.current.access)"] == 200)
                #expect(Set(authorizations.keys).isSubset(of: ["Bearer expired", "Bearer \(origin.current.access)"]))
                #expect(try daemon.info("token_refreshes_succeeded") == "1")
                #expect(try daemon.info("token_refreshes_failed") == "0")
            }
        }

        @Test func `I4: a new refresh token survives a kill as soon as an image was served with it`() throws {
            try withDaemon { _, daemon, origin in
                #expect(try daemon.connect().call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                for round in 1...5 {
                    let reply = try daemon.connect().call("GET", "alice", "\(round)")
                    #expect(reply == .bulk(TokenOrigin.image("/\(round)")), "round \(round): \(reply.brief)")
                    #expect(origin.current.receivedRefreshTokens.count == round)
                    if round % 2 == 0 {
                        try daemon.restart()
                    } else {
                        daemon.kill()
                        try daemon.start()
                    }
                    // The access token is stored, too.
                    #expect(
                        try daemon.connect().call("GET", "alice", "\(round)-again")
                            == .bulk(TokenOrigin.image("/\(round)-again")))
                    #expect(origin.current.receivedRefreshTokens.count == round)
                    origin.expire()
                }
                let later = (1...4).map { "refresh-of-the-origin-\($0)" }
                #expect(origin.current.receivedRefreshTokens == ["first-refresh"] + later)
                #expect(!origin.current.authorizations.contains("none"))
            }
        }

        @Test func `a rejected refresh token is UNAUTHORIZED and is not sent again`() throws {
            try withDaemon { _, daemon, origin in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "TOKEN", "expired", "REFRESH", "wrong-refresh") == .ok)
                for profile in ["bob", "eve", "dan"] {
                    #expect(try client.call("GET", "alice", profile).code == "UNAUTHORIZED")
                }
                #expect(origin.current.receivedRefreshTokens == ["wrong-refresh"])
                #expect(origin.current.authorizations == ["Bearer expired"])
                #expect(try daemon.info("token_refreshes_failed") == "1")
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.image("/bob")))
            }
        }

        @Test func `F37: a failing token endpoint is ORIGIN and does not invalidate the refresh token`() throws {
            try withDaemon { _, daemon, origin in
                origin.setEndpoint(.fail)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "ORIGIN")
                origin.setEndpoint(.grant)
                try eventually("the token is refreshed") {
                    try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.image("/bob"))
                }
                #expect(Set(origin.current.receivedRefreshTokens) == ["first-refresh"])
            }
        }

        @Test func `F40: a logout cancels a hanging token request and removes the tokens`() throws {
            try withDaemon { _, daemon, origin in
                origin.setEndpoint(.hang)
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                try client.send("GET", "alice", "bob")
                try origin.server.waitForRequests(1)
                try client.send("LOGOUT", "alice")
                #expect(try client.receive().code == "CANCELLED")
                #expect(try client.receive()["users"] == .integer(1))
                try origin.server.waitForAbandoned(1)
                #expect(daemon.loginFiles.isEmpty)
                // The next login has no token.
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob").code == "UNAUTHORIZED")
                #expect(origin.current.authorizations == ["none"])
                #expect(origin.current.receivedRefreshTokens.count == 1)
            }
        }

        @Test func `F39: a renewed token is not sent to the target of a redirect to another host`() throws {
            let other = try GatedOrigin.images { _ in TestImage.gif("elsewhere") }
            defer { other.end() }
            try withDaemon(allow: [.string(other.url)]) { _, daemon, origin in
                origin.redirectAway(to: "\(other.url)/elsewhere")
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "REFRESH", "first-refresh") == .ok)
                #expect(try client.call("GET", "alice", "away") == .bulk(TestImage.gif("elsewhere")))
                #expect(origin.current.authorizations == ["Bearer access-of-the-origin-1"])
                #expect(other.requests.map { $0.headers["authorization"] } == [nil])
            }
        }

        @Test func `I11: no token and no client secret is in the log, on disk or in INFO`() throws {
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
                #expect(try client.call("GET", "alice", "bob") == .bulk(TokenOrigin.image("/bob")))
                let credentials = Data("thumbcached:\(secret)".utf8).base64EncodedString()
                let request = try #require(origin.server.requests.first { $0.path == "/token" })
                #expect(request.headers["authorization"] == "Basic \(credentials)")
                #expect(!request.body.contains(secret) && !request.body.contains("client_id"))
                origin.setEndpoint(.refuse)
                origin.expire()
                #expect(try client.call("GET", "alice", "eve").code == "UNAUTHORIZED")
                let replies = try ["INFO", "USERS"].map { try client.call($0).text ?? "" }
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "dan").code == "UNAUTHORIZED")

                let needles =
                    ["expired-access", "first-refresh", "access-of-the-origin", "refresh-of-the-origin", secret]
                    + [credentials]
                for needle in needles {
                    #expect(!daemon.log.contains(needle), "the log contains \(needle)")
                    for text in replies { #expect(!text.contains(needle)) }
                    let encoded = Data(needle.utf8).base64EncodedString()
                    for file in daemon.files {
                        let bytes = Data(try read(file))
                        #expect(bytes.range(of: Data(needle.utf8)) == nil, "\(file) contains \(needle)")
                        #expect(bytes.range(of: Data(encoded.utf8)) == nil, "\(file) contains \(needle)")
                    }
                }
                #expect(daemon.log.contains("token refresh failed"))
                #expect(!daemon.loginFiles.isEmpty)
            }
        }

        @Test func `REFRESH for an origin without a token endpoint is an error`() throws {
            try withMachine { machine in
                let origin = try TokenOrigin(refresh: "first-refresh")
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.server.url)/{profile}") }
                let reply = try daemon.connect().call("LOGIN", "alice", "REFRESH", "first-refresh")
                #expect(
                    reply
                        == .error(
                            "ERR",
                            "REFRESH: origin default has no token endpoint; set origins.default.token"))
            }
        }
    }
}
