import Foundation
import Glibc
import Testing

extension EndToEnd.Clients {
    /// Misbehaving clients and unusual ids.
    struct ClientFaultTests {
        @Test func `I8, F17: a client that never reads is disconnected and uses bounded memory`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings["limits", "output"] = "2MiB"
                    daemon.settings["limits", "stall"] = "1s"
                }
                let other = try daemon.connect(loggedInAs: "alice")
                let image = TestImage.gif("bob", size: 1_000_000)
                #expect(try other.call("PUT", "alice", "bob", image) == .ok)
                #expect(try other.call("GET", "alice", "bob") == .bulk(image))
                let before = try daemon.residentMemory()

                let nonReader = try daemon.connect()
                try nonReader.send(["GET", "alice", "bob"], count: 400)
                var most = 0
                var calls = 0
                while !nonReader.isHungUp(within: 5) {
                    #expect(try other.call("GET", "alice", "bob") == .bulk(image))
                    most = max(most, try daemon.residentMemory())
                    calls += 1
                    guard calls < 20_000 else { throw Failure("the client that never reads was not disconnected") }
                }
                // All replies together would need 400 MB.
                print("  F17: \(calls) calls of another client meanwhile, \((most - before) >> 10) KiB more")
                #expect(most - before < 40 << 20)
                #expect(calls > 2)
                #expect(try other.call("PING") == .simple("PONG"))
            }
        }

        @Test func `F17: a client that reads after sending all requests gets all replies`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["limits", "output"] = "1MiB" }
                let client = try daemon.connect(loggedInAs: "alice")
                let image = TestImage.gif("bob", size: 400_000)
                #expect(try client.call("PUT", "alice", "bob", image) == .ok)
                try client.send(["GET", "alice", "bob"], count: 100)
                for _ in 0..<100 { #expect(try client.receive() == .bulk(image)) }
            }
        }

        enum Disconnect: String, CaseIterable, Sendable {
            case closed, reset
        }

        @Test(arguments: Disconnect.allCases)
        func `I6, F19: the download of disconnected clients is cancelled after a grace period`(
            disconnect: Disconnect
        ) throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in [.silence] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "100s"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                let waiters = try (0..<20).map { _ in try daemon.connect() }
                for waiter in waiters {
                    // The kernel resets the connection if a reply is unread when the waiter closes it.
                    if disconnect == .reset { try waiter.send("PING") }
                    try waiter.send("GET", "alice", "bob")
                }
                try origin.waitForRequests(1)
                try daemon.waitForEarlierRequests()
                try eventually("all are connected") { try daemon.info("connected_clients", client) == "21" }
                for waiter in waiters { waiter.end() }
                try eventually("the connections are closed") { try daemon.info("connected_clients", client) == "1" }
                try origin.waitForAbandoned(1)
                #expect(origin.requests.count == 1)
                #expect(try client.call("PING") == .simple("PONG"))
            }
        }

        @Test func `F19: a half-closed connection gets its replies and is then closed`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in [.silence] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "300ms"
                }
                let (client, other) = (try daemon.connect(), try daemon.connect())
                let image = TestImage.gif("eve", size: 2_000_000)
                #expect(try other.call("LOGIN", "alice") == .ok)
                #expect(try other.call("PUT", "alice", "eve", image) == .ok)
                try client.send("GET", "alice", "bob")
                try client.send("PING")
                try client.send("GET", "alice", "eve")
                shutdown(client.descriptor, CInt(SHUT_WR))
                #expect(try client.receive().code == "TIMEOUT")
                #expect(try client.receive() == .simple("PONG"))
                #expect(try client.receive() == .bulk(image))
                #expect(client.isClosedByPeer())
                #expect(try daemon.info("connected_clients", other) == "1")
            }
        }

        @Test func `I6: a client that disconnects and returns within the grace period joins its download`() throws {
            try withMachine { machine in
                let image = TestImage.gif("bob")
                let origin = try GatedOrigin { _ in [.wait("gate"), .send(GatedOrigin.response(image))] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "100s"
                }
                let first = try daemon.connect(loggedInAs: "alice")
                try first.send("GET", "alice", "bob")
                try origin.waitForRequests(1)
                first.end()
                let second = try daemon.connect()
                try second.send("GET", "alice", "bob")
                try daemon.waitForEarlierRequests()
                origin.open("gate")
                #expect(try second.receive() == .bulk(image))
                #expect(origin.requests.count == 1)
            }
        }

        @Test(arguments: [
            "*1\r\n$9223372036854775807\r\n", "*1\r\n$9223372036854775808\r\n", "*1\r\n$-1\r\n", "*1\r\n$-2\r\n",
            "*1000000000\r\n", "*9223372036854775807\r\n", "*-2\r\n", "*99999999999999999999999\r\n",
            "*1\r\n*1\r\n$4\r\nPING\r\n", "*1\r\n:5\r\n", "*1\r\n+PING\r\n", "*x\r\n", "*1\r\n$x\r\n", "*\r\n",
            "*1\r\n$4\r\nPINGxx", "$4\r\nPING\r\n", ":1\r\n", "*1\n$4\nPING\n", "*1\r\n$ 4\r\nPING\r\n",
            "*+1\r\n$4\r\nPING\r\n",
            "*1\r\n$2000000000\r\n", "\0\0\0\0", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "*1\r\n%1\r\n",
            "*1025\r\n",
        ])
        func `F21: an invalid frame is a protocol error and closes only its connection`(
            frame: String
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let other = try daemon.connect()
                let before = try daemon.residentMemory()
                let client = try daemon.connect()
                try client.sendRaw(RESPClient.frame(["ECHO", "before"]) + Array(frame.utf8))
                #expect(try client.receive() == .bulk(Array("before".utf8)))
                guard case .error(let code, let words) = try client.receive() else { throw Failure("no error") }
                #expect(code == "TOOLARGE" || code == "ERR" && words.hasPrefix("Protocol error: "), "\(code) \(words)")
                #expect(client.isClosedByPeer())
                #expect(try daemon.residentMemory() - before < 8 << 20)
                #expect(try other.call("PING") == .simple("PONG"))
            }
        }

        @Test func `F22: frames with random faults do not affect other connections`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let pid = daemon.pid
                let other = try daemon.connect(loggedInAs: "alice")
                #expect(try other.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                var noise = Noise(seed: "F22")
                let valid: [[any Word]] = [
                    ["HELLO", "3"], ["PING"], ["LOGIN", "mallory", "SESSION", "x"], ["STAT", "mallory"],
                    ["PUT", "mallory", "bob", TestImage.gif("x"), "TTL", "5"], ["GET", "mallory", "bob", "SIZE", "64"],
                    ["MGET", "mallory", "2", "bob", "eve"], ["PURGE", "mallory", "1", "bob"],
                    ["COMMAND", "DOCS", "get"],
                ]
                var errors = 0
                for round in 0..<400 {
                    var bytes = (0..<4).flatMap { _ in
                        RESPClient.frame(valid[Int.random(in: 0..<valid.count, using: &noise)])
                    }
                    for _ in 0..<Int.random(in: 1...6, using: &noise) {
                        let index = Int.random(in: 0..<bytes.count, using: &noise)
                        switch Int.random(in: 0..<4, using: &noise) {
                        case 0: bytes[index] = noise.next()
                        case 1: bytes.insert(noise.next(), at: index)
                        case 2: bytes.remove(at: index)
                        default: bytes[index] ^= 1 << UInt8.random(in: 0..<8, using: &noise)
                        }
                    }
                    let client = try RESPClient(daemon.socket)
                    // The daemon may close the connection before it has read all bytes.
                    do { try client.sendRaw(bytes) } catch {}
                    shutdown(client.descriptor, CInt(SHUT_WR))
                    do {
                        while true {
                            if case .error = try client.receive() { errors += 1 }
                        }
                    } catch {}
                    if round % 50 == 0 { #expect(try other.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob"))) }
                }
                #expect(errors > 100)
                #expect(daemon.pid == pid && daemon.process?.exitStatus() == nil)
                #expect(try other.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
            }
        }

        @Test(arguments: [
            "UID", "SIZE", "CACHED", "META", "*", "HOLD", "SESSION", "URL", "WAIT", "IFNOT", "TTL", "NOWAIT", "-1", "0",
            "2", "$5", "", "bob",
        ])
        func `F63: a profile may have the name of an option`(profile: String) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                let image = TestImage.gif(profile)
                guard !profile.isEmpty else {
                    #expect(try client.call("PUT", "alice", profile, image).code == "ERR")
                    return
                }
                #expect(try client.call("PUT", "alice", profile, image) == .ok)
                #expect(try client.call("PUT", "alice", profile, image, "SIZE", "64") == .ok)
                #expect(try client.call("GET", "alice", profile) == .bulk(image))
                #expect(try client.call("GET", "alice", profile, "SIZE", "64", "CACHED") == .bulk(image))
                #expect(
                    try client.call("MGET", "alice", "2", profile, profile, "CACHED")
                        == .array([.bulk(image), .bulk(image)]))
                #expect(try client.call("STAT", "alice", profile)["length"] == .integer(Int64(image.count)))
                #expect(try client.call("STAT", "alice", profile, "SIZE", "64") != .null)
                #expect(try client.call("PUT", "alice", "other", image) == .ok)
                #expect(try client.call("PURGE", "alice", "1", profile)["images"] == .integer(2))
                #expect(try client.call("GET", "alice", profile) == .null)
                #expect(try client.call("GET", "alice", "other") == .bulk(image))
            }
        }

        @Test func `F23: ids are arbitrary bytes, at most 512`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                let ids: [[UInt8]] = [
                    Array("../../../../etc/passwd".utf8), Array("/".utf8), Array("..".utf8), Array(".".utf8), [0],
                    Array("a\0b".utf8), Array("a\r\nb".utf8), [0xff, 0xfe, 0xc0], Array("**".utf8),
                    .init(repeating: 0x61, count: 512), .init(repeating: 0xff, count: 512), Array("ä".utf8),
                    Array("a\u{308}".utf8),
                ]
                for user in ids {
                    #expect(try client.call("LOGIN", user) == .ok)
                    for profile in ids {
                        #expect(try client.call("PUT", user, profile, TestImage.gif("\(user) \(profile)")) == .ok)
                    }
                }
                try daemon.restart()
                let later = try daemon.connect()
                for user in ids {
                    for profile in ids {
                        let held = try later.call("GET", user, profile)
                        #expect(held == .bulk(TestImage.gif("\(user) \(profile)")))
                    }
                    try eventually("all images are counted") {
                        try later.call("STAT", user)["images"] == .integer(Int64(ids.count))
                    }
                }
                let long = [UInt8](repeating: 0x61, count: 513)
                for request in [["LOGIN", long], ["GET", "alice", long], ["PUT", long, "bob", TestImage.gif("x")]]
                    as [[any Word]]
                {
                    try later.send(request)
                    #expect(try later.receive().code == "ERR")
                }
                #expect(try later.call("LOGIN", "*").code == "ERR")
                // No id became a path.
                #expect(Files.entries(under: daemon.directory).filter { $0.contains("etc") }.isEmpty)
                let users = try #require(try later.call("USERS").elements)
                #expect(Set(users.compactMap(\.bytes)) == Set(ids))
            }
        }

        @Test func `I8: an image of limits.image bytes is accepted, a larger one is TOOLARGE`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["limits", "image"] = "100KiB" }
                let client = try daemon.connect(loggedInAs: "alice")
                let largest = TestImage.gif("bob", size: 100 << 10)
                #expect(try client.call("PUT", "alice", "bob", largest) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(largest))
                // The daemon rejects the declared length without waiting for the bytes.
                try client.sendRaw(Array("*4\r\n$3\r\nPUT\r\n$5\r\nalice\r\n$3\r\neve\r\n$\((100 << 10) + 1)\r\n".utf8))
                #expect(try client.receive().code == "TOOLARGE")
                #expect(client.isClosedByPeer())
            }
        }

        @Test func `I8: a connection above limits.connections-per-uid is BUSY until another one closes`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers { $0.settings["limits", "connections-per-uid"] = 5 }
                // The limit does not apply to the daemon's own uid.
                let script = """
                    import socket, sys
                    def connect():
                        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(60)
                        try: s.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
                        except OSError: pass
                        return s
                    held = [connect() for _ in range(5)]
                    print([s.recv(7) for s in held] == [b"+PONG\\r\\n"] * 5)
                    print(connect().makefile("rb").read().split()[0])
                    held.pop().close()
                    answer = b""
                    while answer != b"+PONG": answer = connect().recv(5)
                    print("room")
                    """
                let run = try machine.run(Account(4_001).running(["/usr/bin/python3", "-c", script, daemon.socket]))
                #expect(run.text == "True\nb'-BUSY'\nroom\n", "\(run.summary)")
            }
        }
    }
}
