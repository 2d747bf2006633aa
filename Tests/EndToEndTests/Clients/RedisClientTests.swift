import Foundation
import Testing

extension EndToEnd.Clients {
    /// Clients that were written for Redis.
    struct RedisClientTests {
        @Test func `redis-cli stores an image from a file and prints it raw and quoted`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let image = TestImage.gif("bob", size: 3_000)
                try write(image, to: machine.path("bob.gif"))
                func cli(_ words: [String], input: [UInt8] = []) throws -> Finished {
                    try machine.run(["redis-cli", "-s", daemon.socket] + words, input: input)
                }

                #expect(try cli(["LOGIN", "alice"]).text == "OK\n")
                #expect(try cli(["-x", "PUT", "alice", "bob"], input: image).text == "OK\n")
                let quoted = try cli(["--no-raw", "GET", "alice", "bob"])
                #expect(quoted.text.hasPrefix("\"GIF89a"), "\(quoted.summary)")
                #expect(unquoted(quoted.text) == image)
                #expect(try cli(["GET", "alice", "bob"]).output == image + [10])
                #expect(try cli(["--no-raw", "GET", "alice", "eve"]).text == "(nil)\n")
                #expect(try cli(["--json", "-3", "STAT", "alice"]).text.contains("\"images\":1"))
                #expect(try cli(["GET", "eve", "bob"]).text.hasPrefix("NOLOGIN "))
                #expect(try cli(["--no-raw", "LOGOUT", "alice"]).text.contains("\"epoch\""))
            }
        }

        @Test func `redis-cli shows the documentation of commands interactively`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let shown = try machine.runSuccessfully(
                    [
                        "python3", "\(Files.repository)/Tests/EndToEndTests/python/interactive.py",
                        "redis \(daemon.socket)>", "redis-cli", "-s", daemon.socket,
                    ], input: Array("LOGIN alice\nhelp put\nUSERS\nGET alice bob\nexit\n".utf8))
                let lines = shown.text.split(whereSeparator: \.isNewline).map {
                    $0.replacing(/\u{1b}\[[0-9;]*m/, with: "").trimmingCharacters(in: .whitespaces)
                }
                #expect(lines.contains("OK"))
                #expect(lines.contains("1) \"alice\""))
                #expect(lines.contains("(nil)"))
                #expect(lines.contains { $0.hasPrefix("PUT user profile image") }, "\(lines)")
                #expect(lines.contains { $0.hasPrefix("summary: ") })
            }
        }

        @Test func `redis-cli reads commands from a pipe, line by line and with --pipe`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let lines = "LOGIN alice\nPING\nGET alice bob\nUSERS\n"
                let piped = try machine.run(["redis-cli", "-s", daemon.socket], input: Array(lines.utf8))
                #expect(piped.text == "OK\nPONG\n\nalice\n", "\(piped.summary)")

                let frames = (0..<200).flatMap {
                    RESPClient.frame(["PUT", "alice", "friend \($0)", TestImage.gif("\($0)")])
                }
                let mass = try machine.run(["redis-cli", "-s", daemon.socket, "--pipe"], input: frames)
                #expect(mass.text.contains("errors: 0, replies: 200"), "\(mass.summary)")
                #expect(try daemon.connect().call("GET", "alice", "friend 199") == .bulk(TestImage.gif("199")))
            }
        }

        @Test func `redis-cli --stat shows the values of INFO`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "1MiB" }
                let waiting = try daemon.connect()
                let client = try daemon.connect(loggedInAs: "alice")
                for profile in ["bob", "carol", "dave"] {
                    #expect(try client.call("PUT", "alice", profile, TestImage.gif(profile, size: 2_000)) == .ok)
                }
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob", size: 2_000)))
                #expect(try client.call("GET", "alice", "eve") == .null)
                let info = try #require(try client.call("INFO").text)
                for line in ["keyspace_hits:1", "keyspace_misses:1", "evicted_keys:0", "blocked_clients:0"] {
                    #expect(info.contains("\n\(line)\r\n"), "\(line)")
                }
                let before = try #require(Int(figure("total_commands_processed", in: info)))
                let connections = try #require(Int(figure("total_connections_received", in: info)))
                #expect(before >= 8 && connections >= 3, "\(info)")
                let memory = try #require(Int(figure("used_memory", in: info)))
                #expect(memory > 2_000 && memory < 1 << 20)

                // --stat does not end, so head(1) ends it. The first line includes earlier requests.
                let shown = try machine.run([
                    "sh", "-c", "stdbuf -oL redis-cli -s \(daemon.socket) --stat -i 0.05 | head -4",
                ])
                let lines = shown.text.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
                #expect(lines.count == 4 && lines[1].prefix(2) == ["keys", "mem"], "\(shown.summary)")
                // keys, memory, clients, blocked, requests, their growth, connections
                let (first, second) = (lines[2], lines[3])
                #expect(first[0] == "3" && first[2] == "3" && first[3] == "0", "\(first)")
                let readable = try figure("used_memory_human", in: info)
                #expect(first[1] == readable, "\(first)")
                #expect(first[6] == "\(connections + 1)", "\(first)")
                #expect(Int(first[4]) ?? 0 > before && Int(second[4]) == (Int(first[4]) ?? 0) + 1, "\(first) \(second)")
                #expect(second[5] == "(+1)")
                withExtendedLifetime(waiting) {}
            }
        }

        private func figure(_ name: String, in info: String) throws -> String {
            let line = info.split(whereSeparator: \.isNewline).first { $0.hasPrefix("\(name):") }
            return String(try #require(line, "\(name)").dropFirst(name.count + 1))
        }

        @Test(arguments: [2, 3])
        func `redis-py runs every command`(version: Int) throws {
            try withMachine { machine in
                let fromOrigin = TestImage.gif("origin", size: 5_000)
                let origin = try GatedOrigin.images { _ in fromOrigin }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}?s={size}")
                    daemon.settings["origins.default", "allow"] = [.string("\(origin.url)/elsewhere")]
                }
                try machine.runSuccessfully(["\(Files.repository)/tools/make-images", machine.path("images"), "1"])
                let image = machine.path("images/friend-001.png")
                try write(fromOrigin, to: image + ".origin")
                let finished = try machine.runSuccessfully([
                    try pythonWithRedis(), "\(Files.repository)/Tests/EndToEndTests/python/every_command.py",
                    daemon.socket, "\(version)", image, origin.url,
                ])
                #expect(finished.text.hasSuffix("replies were correct\n"))
            }
        }

        @Test func `F54: with a hanging origin, redis-py gets TIMEOUT with its default settings`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in [.silence] }
                defer { origin.end() }
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                _ = try daemon.connect(loggedInAs: "alice")
                let finished = try machine.run([
                    try pythonWithRedis(), "\(Files.repository)/Tests/EndToEndTests/python/default_timeouts.py",
                    daemon.socket, "alice", "bob",
                ])
                #expect(finished.text.hasPrefix("reply: TIMEOUT"), "\(finished.summary)")
                #expect(origin.requests.count == 1)
            }
        }

        @Test func `F54: a client that disconnects and returns ten times causes one request to the origin`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { _ in [.wait("gate"), .send(GatedOrigin.response(image))] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "10m"
                }
                _ = try daemon.connect(loggedInAs: "alice")
                for _ in 0..<10 {
                    let client = try daemon.connect()
                    try withExtendedLifetime(client) {
                        try client.send("GET", "alice", "bob")
                        try origin.waitForRequests(1)
                        try daemon.waitForEarlierRequests()
                    }
                    // Waits until the daemon has noticed the disconnect.
                    try daemon.waitForEarlierRequests()
                }
                let last = try daemon.connect()
                try last.send("GET", "alice", "bob")
                try daemon.waitForEarlierRequests()
                origin.open("gate")
                #expect(try last.receive() == .bulk(image))
                #expect(origin.requests.count == 1)
            }
        }
    }
}

/// A Python interpreter with redis-py, in the virtual environment that `make test` prepares.
func pythonWithRedis() throws -> String {
    let python = "\(Files.repository)/.build/python-client/bin/python"
    guard Files.exists(python) else {
        throw Failure("\(python) is missing: run tools/install-python-client, as make test does")
    }
    return python
}

/// The bytes of a string that redis-cli prints in quotes.
private func unquoted(_ text: String) -> [UInt8] {
    var bytes: [UInt8] = []
    var rest = Substring(text.trimmingCharacters(in: .newlines)).dropFirst().dropLast()
    while let character = rest.popFirst() {
        guard character == "\\", let kind = rest.popFirst() else {
            bytes += Array(String(character).utf8)
            continue
        }
        switch kind {
        case "n": bytes.append(10)
        case "r": bytes.append(13)
        case "t": bytes.append(9)
        case "a": bytes.append(7)
        case "b": bytes.append(8)
        case "x":
            bytes.append(UInt8(rest.prefix(2), radix: 16) ?? 0)
            rest = rest.dropFirst(2)
        default: bytes += Array(String(kind).utf8)
        }
    }
    return bytes
}
