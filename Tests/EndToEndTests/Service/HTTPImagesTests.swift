import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Images over HTTP, in the form of Gravatar and Libravatar.
    struct HTTPImagesTests {
        private static let hash = "0bc83cb571cd1c50ba6f3e8a78ef1346"
        private static let other = String(repeating: "0", count: 32)
        private static let site = "user = \"site\"\nper-user = \"open\"\n"

        /// Runs a test with an origin that has an image for `hash` only, a daemon, and images on a port.
        private func withImages(
            _ settings: String = HTTPImagesTests.site, maxAge: Int = 600,
            _ body: (Machine, Daemon, GatedOrigin, _ url: String) throws -> Void
        ) throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    if request.path.hasPrefix("/slow/") {
                        return [.wait("gate"), .send(GatedOrigin.response(TestImage.gif("slow")))]
                    }
                    guard request.path.contains(Self.hash) else {
                        return [.send(GatedOrigin.response([], status: "404 Not Found"))]
                    }
                    return [
                        .send(
                            GatedOrigin.response(
                                TestImage.gif("image"), headers: ["Cache-Control: max-age=\(maxAge)", "ETag: \"1\""]))
                    ]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings.setOrigin("\(origin.url)/slow/{profile}", name: "slow")
                    for name in ["default", "slow"] { daemon.settings["origins.\(name)", "renditions"] = "never" }
                }
                let port = try freePort()
                _ = try HTTPService(machine, daemon, port: port, settings)
                try body(machine, daemon, origin, "http://127.0.0.1:\(port)")
            }
        }

        @Test func `a browser gets an image, revalidates it, and gets the default image after a logout`() throws {
            try withImages { machine, daemon, origin, url in
                let client = try daemon.connect()
                for (user, path) in [
                    ("site", "/avatar/\(Self.hash)"),
                    ("alice@example.org", "/u/alice%40example.org/avatar/\(Self.hash)"),
                ] {
                    #expect(try Curl(machine, url + path + "?d=404").status == 404)
                    #expect(try client.call("LOGIN", user) == .ok)
                    let image = try Curl(machine, url + path + ".png?d=404&s=80")
                    #expect(image.status == 200 && image.body == TestImage.gif("image"))
                    #expect(image.fields["content-type"] == "image/gif")
                    let isUser = user != "site"
                    let control = try #require(image.fields["cache-control"])
                    if isUser {
                        #expect(control == "private, no-cache")
                    } else {
                        #expect(control.contains(/^private, max-age=(600|59[0-9]), must-revalidate$/), "\(control)")
                    }
                    let tag = try #require(image.fields["etag"])
                    let revalidate = ["-H", "If-None-Match: \(tag)"]
                    let unchanged = try Curl(machine, revalidate[0], revalidate[1], url + path)
                    #expect(unchanged.status == 304 && unchanged.body == [] && unchanged.fields["etag"] == tag)
                    #expect(
                        unchanged.fields["cache-control"]?.hasPrefix(isUser ? "private, no-cache" : "private, max-age=")
                            == true)
                    let head = try Curl(machine, "--head", url + path)
                    #expect(
                        head.status == 200 && head.fields["etag"] == tag
                            && head.fields["content-length"] == "\(image.body.count)")

                    let missing = try Curl(machine, url + path.replacing(Self.hash, with: Self.other) + "?d=404")
                    #expect(missing.status == 404 && missing.fields["cache-control"] == "no-store")
                    let drawn = try Curl(
                        machine, url + path.replacing(Self.hash, with: Self.other) + "?d=initials&name=A+%3Cb%3E&s=40")
                    #expect(drawn.status == 200 && drawn.fields["content-type"] == "image/svg+xml")
                    #expect(drawn.text.contains(">A&lt;</text>") && drawn.text.contains("width=\"40\""))

                    #expect(try client.call("LOGOUT", user)["users"] == .integer(1))
                    let after = try Curl(machine, revalidate[0], revalidate[1], url + path + "?d=404")
                    #expect(after.status == 404 && after.fields["cache-control"] == "no-store")
                    let person = try Curl(machine, revalidate[0], revalidate[1], url + path + "?d=mp")
                    #expect(person.status == 200 && person.fields["content-type"] == "image/svg+xml")
                    #expect(person.fields["cache-control"] == "private, no-cache" && person.fields["etag"] == nil)
                }
                #expect(try Curl(machine, "\(url)/u/bob/avatar/\(Self.hash)?d=404").status == 404)
            }
        }

        @Test func `I9: an image in the cache does not wait for downloads`() throws {
            try withImages(Self.site + "wait = \"30s\"\n") { machine, daemon, origin, url in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "ORIGIN", "slow") == .ok)
                #expect(try client.call("PUT", "alice", Self.hash, TestImage.gif("alice"), "SIZE", "80") == .ok)
                // More than may wait at a time.
                let downloads = (100..<200).map { "\(url)/u/alice/avatar/\(Self.other.dropLast(3))\($0)?d=404" }
                let waiting = try machine.start(
                    [
                        "curl", "--noproxy", "*", "--silent", "--parallel", "--parallel-immediate", "--parallel-max",
                        "100",
                    ]
                        + downloads, output: .file(machine.path("downloads")))
                try eventually("sixteen requests wait") { try daemon.info("blocked_clients", client) == "16" }
                let image = try Curl(machine, "\(url)/u/alice/avatar/\(Self.hash)?d=404")
                #expect(image.status == 200 && image.body == TestImage.gif("alice"))
                let tag = try #require(image.fields["etag"])
                #expect(
                    try Curl(machine, "-H", "If-None-Match: \(tag)", "\(url)/u/alice/avatar/\(Self.hash)").status == 304
                )
                #expect(try daemon.info("blocked_clients", client) == "16")
                origin.open("gate")
                #expect(try waiting.waitForExit() == 0)
            }
        }

        @Test func `I3: a request in flight gets the default image when its user is logged out`() throws {
            try withImages { machine, daemon, origin, url in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "ORIGIN", "slow") == .ok)
                let before = origin.requests.count
                let base = machine.path("in-flight")
                let waiting = try machine.start(
                    [
                        "curl", "--noproxy", "*", "--silent", "-o", "\(base).body", "-w", "%{http_code}",
                        "\(url)/u/alice/avatar/\(Self.hash)?d=404",
                    ],
                    output: .file("\(base).status"))
                try origin.waitForRequests(before + 1)
                #expect(try client.call("LOGOUT", "alice")["cancelled"] == .integer(1))
                // The origin is still blocked.
                #expect(try waiting.waitForExit() == 0)
                #expect(String(decoding: try read("\(base).status"), as: UTF8.self) == "404")
                #expect(try Curl(machine, "\(url)/u/alice/avatar/\(Self.hash)?d=404").status == 404)
                origin.open("gate")
                #expect(try client.call("LOGIN", "alice", "ORIGIN", "slow") == .ok)
                #expect(try Curl(machine, "\(url)/u/alice/avatar/\(Self.hash)?d=404").status == 200)
            }
        }

        @Test func `one connection serves several requests, and other paths serve nothing`() throws {
            try withImages { machine, daemon, _, url in
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "site") == .ok)
                let image = "\(url)/avatar/\(Self.hash)"
                let run = try machine.run([
                    "curl", "--noproxy", "*", "--silent", "-w", "%{num_connects} ", "-o", "/dev/null", image, "-o",
                    "/dev/null", image,
                ])
                #expect(run.text == "1 0 ", "\(run.summary)")
                for path in [
                    "/", "/metrics", "/avatar/", "/avatar/../avatar/\(Self.hash)", "/u/site%2Favatar/\(Self.hash)",
                    "/u/site/../site/avatar/\(Self.hash)", "//avatar/\(Self.hash)", "/avatar/\(Self.hash)%00",
                    "/u/%2e%2e/avatar/\(Self.hash)",
                ] {
                    let found = try Curl(machine, url + path)
                    #expect(
                        found.status == 404 && found.fields["content-type"] == "text/plain; charset=utf-8", "\(path)")
                }
                #expect(try Curl(machine, "-X", "POST", image).status == 405)
                #expect(try Curl(machine, "-H", "Host: evil.example", image).status == 403)
                let redirect = try Curl(machine, "\(url)/avatar/\(Self.other)?d=https://evil.example/&f=y")
                #expect(redirect.status == 200 && redirect.fields["location"] == nil)
                #expect(redirect.fields["content-type"] == "image/svg+xml")
            }
        }

        @Test func `a URL of a user needs a signature that the application makes with any HMAC`() throws {
            try withMachine { machine in
                let key = "5a9c8d3b0f6e41278a9c8d3b0f6e4127"
                try write(key + "\n", to: machine.path("key"))
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                for user in ["alice", "bob"] {
                    #expect(try client.call("LOGIN", user) == .ok)
                    #expect(try client.call("PUT", user, Self.hash, TestImage.gif(user), "SIZE", "80") == .ok)
                }
                let port = try freePort()
                let service = try HTTPService(
                    machine, daemon, port: port,
                    "per-user = \"signed\"\nsigning-key = \"\(machine.path("key"))\"\nuser-max-age = \"1h\"")
                let url = "http://127.0.0.1:\(port)"
                func signed(_ user: String, expires: Int) throws -> String {
                    let text = "/u/\(user)/avatar/\(Self.hash)?expires=\(expires)"
                    let run = try machine.run(["openssl", "dgst", "-sha256", "-hmac", key], input: Array(text.utf8))
                    return text + "&signature="
                        + (run.text.split(separator: " ").last ?? "").trimmingCharacters(in: .newlines)
                }
                let end = Int(time(nil)) + 60
                let alice = try signed("alice", expires: end)
                let image = try Curl(machine, url + alice)
                #expect(image.status == 200 && image.body == TestImage.gif("alice"))
                let age = try #require(image.fields["cache-control"]?.firstMatch(of: /max-age=([0-9]+)/)?.output.1)
                #expect(try #require(Int(age)) <= 60)
                for wrong in [
                    alice.replacing("alice", with: "bob"), alice.replacing("expires=", with: "expires=1"),
                    String(alice.dropLast()), "/u/alice/avatar/\(Self.hash)", try signed("alice", expires: 1),
                ] {
                    let refused = try Curl(machine, url + wrong)
                    #expect(refused.status == 403 && refused.fields["cache-control"] == "no-store", "\(wrong)")
                }
                #expect(!(try service.log()).contains(key))
            }
        }

        @Test func `F28: users of another uid do not exist`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers()
                let words = ["redis-cli", "-s", daemon.socket]
                for account in [Account(4_001), Account(4_002)] {
                    #expect(try machine.run(account.running(words + ["LOGIN", "alice"])).text == "OK\n")
                }
                let put = words + ["-x", "PUT", "alice", Self.hash]
                #expect(try machine.run(Account(4_001).running(put), input: TestImage.gif("secret")).text == "OK\n")
                for (uid, status) in [(4_001, 200), (4_002, 404)] as [(uid_t, Int)] {
                    let port = try freePort()
                    _ = try HTTPService(machine, daemon, port: port, Self.site, wrapper: Account(uid).running([]))
                    let found = try Curl(machine, "http://127.0.0.1:\(port)/u/alice/avatar/\(Self.hash)?d=404")
                    #expect(found.status == status)
                }
            }
        }

        @Test func `nginx in front of a Unix socket asks the application about each user`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                for user in ["alice", "bob"] {
                    #expect(try client.call("LOGIN", user) == .ok)
                    #expect(try client.call("PUT", user, Self.hash, TestImage.gif(user), "SIZE", "80") == .ok)
                }
                let socket = machine.path("images.sock")
                _ = try HTTPService(
                    machine, "socket = \"\(daemon.socket)\"\nimages = { listen = \"\(socket)\", per-user = \"open\" }\n"
                ) { try Files.kind(of: socket) == S_IFSOCK }
                var status = stat()
                #expect(stat(socket, &status) == 0 && status.st_mode & 0o777 == 0o660)
                // Stands for an application that knows alice's session only.
                let nginx = try Nginx(
                    machine, serving: try machine.makeDirectory("application"),
                    directives: """
                        proxy_max_temp_file_size 0;
                        proxy_buffers 16 64k;
                        location /u/ {
                            auth_request /session;
                            proxy_pass http://unix:\(socket);
                        }
                        location = /session {
                            internal;
                            if ($request_uri ~ "^/u/alice/") { return 204; }
                            return 403;
                        }
                        """)
                #expect(try Curl(machine, "\(nginx.url)/u/alice/avatar/\(Self.hash)").body == TestImage.gif("alice"))
                for path in ["/u/bob/avatar/\(Self.hash)", "/u/alice%2F..%2Fbob/avatar/\(Self.hash)"] {
                    #expect(try Curl(machine, nginx.url + path).status == 403, "\(path)")
                }
                for path in ["/u/alice/../bob/avatar/\(Self.hash)", "/u/alice/%2e%2e/bob/avatar/\(Self.hash)"] {
                    #expect(try Curl(machine, nginx.url + path).status == 404, "\(path)")
                }
            }
        }

        @Test func `F49: thumbcached-http replaces a stale socket only`() throws {
            try withMachine { machine in
                let socket = machine.path("images.sock")
                let settings = "images = { listen = \"\(socket)\", user = \"site\" }\n"
                func start() throws -> HTTPService {
                    try HTTPService(machine, settings) {
                        try Curl(machine, "--unix-socket", socket, "http://localhost/").status == 404
                    }
                }
                func failure() throws -> String {
                    try write(settings, to: machine.path("second.toml"))
                    let second = try machine.run([
                        "\(Files.programs)/thumbcached-http", "--config", machine.path("second.toml"),
                    ])
                    #expect(second.status == 1)
                    return second.errors
                }
                try write("precious", to: socket)
                #expect(
                    try failure().contains("\(socket) is taken by a file; move it away, or set images.listen"))
                #expect(try readText(socket) == "precious")
                unlink(socket)
                let other = try listenUnix(socket)
                #expect(try failure().contains("\(socket) is in use: another process listens on it"))
                // Closed without removing the file, as after a crash of its program.
                close(other)
                let first = try start()
                #expect(try failure().contains("another process uses \(socket)"))
                #expect(try Curl(machine, "--unix-socket", socket, "http://localhost/").status == 404)
                first.process.end()
                #expect(try Files.kind(of: socket) == S_IFSOCK)
                _ = try start()
            }
        }

        @Test func `a socket of systemd and the login at the start need no other setting`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let socket = machine.path("images.sock")
                let listener = try listenUnix(socket)
                defer { close(listener) }
                // systemd sets LISTEN_PID to the process that it starts; here a shell does so for itself.
                let wrapper = [
                    "sh", "-c", "export LISTEN_FDS=1 LISTEN_FDNAMES=images LISTEN_PID=$$; exec \"$@\"", "sh",
                ]
                _ = try HTTPService(
                    machine, "socket = \"\(daemon.socket)\"\nimages = { user = \"site\", log-in = true }\n",
                    wrapper: wrapper, passing: [listener]
                ) { try daemon.connect().call("USERS").elements?.count == 1 }
                let image = "http://localhost/avatar/\(Self.hash)?d=404"
                #expect(try Curl(machine, "--unix-socket", socket, image).status == 404)
                let client = try daemon.connect()
                #expect(try client.call("PUT", "site", Self.hash, TestImage.gif("image"), "SIZE", "80") == .ok)
                #expect(try Curl(machine, "--unix-socket", socket, image).body == TestImage.gif("image"))
                // A logout is not undone.
                #expect(try client.call("LOGOUT", "site")["users"] == .integer(1))
                #expect(try Curl(machine, "--unix-socket", socket, image).status == 404)
                #expect(try client.call("USERS").elements?.count == 0)
            }
        }

        @Test func `without the daemon a request fails at once, and succeeds when the daemon is back`() throws {
            try withImages { machine, daemon, _, url in
                #expect(try daemon.connect().call("LOGIN", "site") == .ok)
                let image = "\(url)/avatar/\(Self.hash)"
                #expect(try Curl(machine, image).status == 200)
                #expect(try daemon.stop() == 0)
                let down = try Curl(machine, image + "?d=404")
                #expect(down.status == 503 && down.fields["cache-control"] == "no-store")
                try daemon.start()
                try eventually("images are served again") { try Curl(machine, image).status == 200 }
            }
        }

        @Test func `without a listener or a key the program does not start, and --check-config reports errors`() throws
        {
            try withMachine { machine in
                func run(_ text: String, _ arguments: String...) throws -> Finished {
                    try write(text, to: machine.path("http.toml"))
                    let command = ["\(Files.programs)/thumbcached-http", "--config", machine.path("http.toml")]
                    return try machine.run(command + arguments)
                }
                let none = try run("")
                #expect(none.status == 1 && none.errors.contains("no listener: set figures.listen or images.listen"))
                let key = try run("[images]\nlisten = \"127.0.0.1:0\"\nper-user = \"signed\"")
                #expect(key.status == 1 && key.errors.contains("images.per-user = \"signed\" needs a key"))
                #expect(try run("", "--check-config").status == 0)
                let open = try run("[images]\nlisten = \"127.0.0.1:0\"\nper-user = \"open\"", "--check-config")
                #expect(
                    open.status == 0 && open.text.contains("warning: images.per-user: is \"open\" with a TCP address"))
                let wrong = try run("[images]\nlisten = \"localhost:80\"\ndefault = \"robohash\"", "--check-config")
                #expect(wrong.status == 1)
                for name in ["images.listen", "images.default"] { #expect(wrong.errors.contains(name)) }
            }
        }
    }
}
