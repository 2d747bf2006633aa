import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// OpenID Connect Back-Channel Logout 1.0, from the provider's POST to the logout on the hosts.
    struct BackChannelLogoutTests {
        private static let rules =
            "on >secret ~thumbcached:fleet -@all +xadd +time +hello +role +wait".split(separator: " ").map(String.init)

        @Test func `a provider's logout logs the user out on every host, with permission only to publish`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine, "redis", ["--user", "oidc"] + Self.rules)
                let client = try redis.connect()
                try write("secret\n", to: machine.path("password"))
                let hosts = try ["one", "two"].map { try FleetHost(machine, $0, redis) }
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice@example.org", "bob@example.org")
                }
                let receiver = try LogoutReceiver(machine, redis) {
                    $0.settings["redis", "user"] = "oidc"
                    $0.settings["redis", "password-file"] = .string(machine.path("password"))
                }
                #expect(try receiver.provider.logOut("alice", at: receiver.url) == "200 no-store ")
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    let daemon = try host.daemon.connect()
                    guard case .error("NOLOGIN", _) = try daemon.call("GET", "alice@example.org", "bob") else {
                        Issue.record("alice is still logged in")
                        return
                    }
                    #expect(try host.users() == ["bob@example.org"])
                }
                // The log contains no part of a token.
                #expect(receiver.log.contains("message=\"logout published\""), "\(receiver.log)")
                #expect(!receiver.log.contains("alice") && !receiver.log.contains("eyJ"))
            }
        }

        @Test func `F85: a logout that was not published is answered with 400 and can be sent again`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let receiver = try LogoutReceiver(machine, redis)
                let token = try receiver.provider.token("alice")
                redis.kill()
                let failed = try receiver.post(token)
                #expect(failed.status == 400 && failed.text.contains("temporarily_unavailable"), "\(failed.text)")
                try redis.start()
                #expect(try receiver.post(token).status == 200)
                #expect(try receiver.post(token).status == 400)
                #expect(try redis.connect().call("XLEN", FleetHost.stream) == .integer(1))
                #expect(receiver.log.contains("logout not published"))
            }
        }

        @Test func `F85: with replicas = 1, a logout fails without a replica`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let receiver = try LogoutReceiver(machine, redis) {
                    $0.settings["", "replicas"] = 1
                    $0.settings["", "wait"] = "1s"
                }
                let answer = try receiver.provider.logOut("alice", at: receiver.url)
                #expect(answer.hasPrefix("400 no-store ") && answer.contains("was not published"), "\(answer)")
                #expect(receiver.log.contains("0 of 1 replicas have it"))
            }
        }

        @Test(arguments: [
            ("broken", "answered 500"), ("moved", "answered 302"), ("large", "more than 262144 bytes"),
            ("slow", "timed out"), ("nested", "is not a JSON Web Key Set"),
        ])
        func `F84: known keys are kept while the JWKS endpoint fails, and new ones are found afterwards`(
            _ how: String, _ reason: String
        ) throws {
            try withMachine { machine in
                let receiver = try LogoutReceiver(machine, try RedisServer(machine)) {
                    $0.settings["oidc", "keys-timeout"] = "1s"
                    $0.settings["oidc", "keys-pause"] = "1s"
                    $0.settings["oidc", "keys-lifetime"] = "1s"
                }
                try receiver.provider.setKeys(how)
                try eventually("the keys are downloaded again") {
                    let answer = try receiver.provider.logOut("alice", at: receiver.url)
                    guard answer == "200 no-store " else { throw Failure("a valid token was answered with \(answer)") }
                    return receiver.log.contains(reason)
                }
                #expect(receiver.log.contains("key download failed; keeping the previous keys"), "\(receiver.log)")
                try receiver.provider.setKeys("usual")
                try receiver.provider.rotate()
                try eventually("the new key is known") {
                    try receiver.provider.logOut("alice", at: receiver.url) == "200 no-store "
                }
            }
        }

        @Test(arguments: [
            ("localhost", true, nil), ("127.0.0.1", true, "no alternative certificate subject name"),
            ("localhost", false, "SSL certificate problem"),
        ])
        func `F84: the certificate of the JWKS endpoint is verified with oidc.authorities, else the system's`(
            _ host: String, _ hasAuthority: Bool, _ reason: String?
        ) throws {
            try withMachine { machine in
                let files = try makeCertificates(machine)
                let receiver = try LogoutReceiver(machine, try RedisServer(machine)) {
                    let port = try $0.provider.serveTLS(certificate: files.certificate, key: files.key)
                    $0.settings["oidc", "jwks"] = .string("https://\(host):\(port)/keys")
                    if hasAuthority { $0.settings["oidc", "authorities"] = .string(files.authority) }
                }
                let answer = try receiver.provider.logOut("alice", at: receiver.url)
                #expect(answer.hasPrefix(reason == nil ? "200 " : "400 "), "\(answer) \(receiver.log)")
                if let reason { #expect(receiver.log.contains(reason), "\(receiver.log)") }
            }
        }

        @Test func `F84: invalid and incomplete requests are rejected and do not block others`() throws {
            try withMachine { machine in
                let receiver = try LogoutReceiver(machine, try RedisServer(machine)) {
                    $0.settings["http", "request-time"] = "500ms"
                    $0.settings["http", "connections"] = 4
                }
                let head = "POST /backchannel-logout HTTP/1.1\r\nHost: localhost\r\n"
                let form = "Content-Type: application/x-www-form-urlencoded\r\n"
                let long = String(repeating: "x", count: 20_000)
                let body = String(repeating: "x", count: 70_000)
                for (request, status) in [
                    ("GET /backchannel-logout HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
                    ("nonsense\r\n\r\n", 400), ("\(head)X: \(long)\r\n\r\n", 431),
                    ("\(head)\(form)Content-Length: 70000\r\n\r\nlogout_token=x", 413),
                    ("\(head)\(form)Transfer-Encoding: chunked\r\n\r\n11170\r\n\(body)", 413),
                    ("\(head)\(form)Content-Length: 3\r\n\r\nx=y", 400),
                ] {
                    let answer = try receiver.send(request)
                    #expect(answer.status == status, "\(request.prefix(200)): \(answer.text)")
                    #expect(answer.text.lowercased().contains("cache-control: no-store"), "\(answer.text)")
                }
                // All connections in use with incomplete requests: they are closed, and the next one is served.
                let idle = try (0..<8).map { _ in try connectTCP(receiver.port) }
                defer { for connection in idle { close(connection) } }
                for connection in idle { _ = head.withCString { write(connection, $0, strlen($0)) } }
                #expect(try receiver.post(try receiver.provider.token("alice")).status == 200)
                for connection in idle { #expect(try readToEnd(connection) == "") }
            }
        }

        @Test func `F84: nested JSON, invalid requests and silent connections do not block a logout`() throws {
            try withMachine { machine in
                let receiver = try LogoutReceiver(machine, try RedisServer(machine)) {
                    // So that a silent connection is closed only to make room for another.
                    $0.settings["http", "request-time"] = "10m"
                }
                let header = Data(String(repeating: "[", count: 513).utf8).base64EncodedString()
                #expect(try receiver.post("\(header).e30.eA").status == 400)
                let provider = "203.0.113.1"
                for _ in 0..<70 { _ = try receiver.post("x", forwardedFor: provider) }
                #expect(try receiver.post("x", forwardedFor: provider).status == 429)
                var silent: [CInt] = []
                defer { for connection in silent { close(connection) } }
                for _ in 0..<300 { silent.append(try connectTCP(receiver.port)) }
                let token = try receiver.provider.token("alice")
                #expect(try receiver.post(token, forwardedFor: provider).status == 200)
            }
        }

        @Test func `F84: a proxy connects to a Unix socket with mode 0660, and its X-Forwarded-For is logged`() throws {
            try withMachine { machine in
                let path = machine.path("oidc.sock")
                let receiver = try LogoutReceiver(machine, try RedisServer(machine)) {
                    $0.settings["http", "listen"] = .string(path)
                    $0.socket = path
                }
                var status = stat()
                #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o660)
                #expect(try receiver.post("x", forwardedFor: "203.0.113.1, 198.51.100.7").status == 400)
                #expect(receiver.log.contains("client=198.51.100.7"), "\(receiver.log)")
                #expect(try receiver.post(try receiver.provider.token("alice")).status == 200)
            }
        }

        @Test func `the receiver serves TLS, and --check-config names an invalid value`() throws {
            try withMachine { machine in
                let files = try makeCertificates(machine)
                let redis = try RedisServer(machine)
                let receiver = try LogoutReceiver(machine, redis) {
                    $0.settings["http", "certificate"] = .string(files.certificate)
                    $0.settings["http", "key"] = .string(files.key)
                }
                let url = "https://localhost:\(receiver.port)/backchannel-logout"
                let answer = try receiver.provider.logOut("alice", at: url, authority: files.authority)
                #expect(answer == "200 no-store ", "\(answer) \(receiver.log)")

                let path = machine.path("other.toml")
                func check(_ text: String) throws -> Finished {
                    try write(text, to: path)
                    return try machine.run([LogoutReceiver.program, "--check-config", "--config", path])
                }
                #expect(try check(receiver.settings.toml).status == 0)
                let wrong = try check("[oidc]\nalgorithms = [\"none\"]\n")
                #expect(wrong.status == 1, "\(wrong.summary)")
                #expect(wrong.errors.contains("oidc.algorithms[0]: \"none\""), "\(wrong.summary)")
            }
        }

        @Test func `without a provider every logout is answered with 501`() throws {
            try withMachine { machine in
                let receiver = try LogoutReceiver(machine, try RedisServer(machine)) { receiver in
                    for key in ["issuer", "client-id", "jwks", "user"] { receiver.settings["oidc", key] = nil }
                }
                #expect(try receiver.post("x").status == 501)
            }
        }
    }
}
