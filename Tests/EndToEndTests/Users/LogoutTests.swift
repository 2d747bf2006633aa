import Foundation
import Glibc
import Testing

extension EndToEnd.Users {
    /// Logout and purge during downloads, and sessions.
    struct LogoutTests {
        @Test func `I2, F46: a LOGIN on a connection that was closed before the daemon read it has no effect`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let control = try daemon.connect()
                try daemon.process?.suspend()
                for number in 0..<20 {
                    let client = try RESPClient(daemon.socket)
                    try client.send("LOGIN", "alice-\(number)")
                    client.end()
                }
                daemon.process?.signal(SIGCONT)
                // Earlier connections are accepted, and these logins take as long as theirs would.
                try daemon.waitForEarlierRequests()
                for user in ["bob", "carol"] { #expect(try control.call("LOGIN", user) == .ok) }
                #expect(daemon.loginFiles.count == 4)
                #expect(try control.call("USERS").elements?.count == 2)
            }
        }

        /// State of the download at the logout.
        enum Progress: String, CaseIterable, Sendable {
            case hanging, streaming
        }

        @Test(arguments: Progress.allCases)
        func `I3, F40: LOGOUT cancels a download without waiting for it, and its image is never stored`(
            progress: Progress
        ) throws {
            try withMachine { machine in
                let secret = "alice's image of bob"
                let origin = try gatedOrigin(TestImage.gif(secret, size: 20_000), progress)
                defer { origin.end() }
                let daemon = try machine.daemon { useOrigin($0, origin) }
                let control = try daemon.connect(loggedInAs: "alice")
                #expect(try control.call("PUT", "alice", "carol", TestImage.gif("carol")) == .ok)
                let waiters = try (0..<3).map { _ in try daemon.connect() }
                for waiter in waiters { try waiter.send("GET", "alice", "bob") }
                try origin.waitForRequests(1)
                try daemon.waitForEarlierRequests()

                var receipt = Reply.null
                let duration = try milliseconds { receipt = try control.call("LOGOUT", "alice") }
                print("  LOGOUT with a \(progress) download: \(duration) ms")
                // The gate is still closed.
                #expect(receipt["users"] == .integer(1))
                #expect(receipt["cancelled"] == .integer(1))
                #expect(receipt["images"] == .integer(1))
                for waiter in waiters { #expect(try waiter.receive().code == "CANCELLED") }
                #expect(try control.call("GET", "alice", "carol").code == "NOLOGIN")

                origin.open("gate")
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob").code == "NOLOGIN")
                try eventually("no image of the user is left") { daemon.imageFiles.isEmpty }
                #expect(daemon.loginFiles.isEmpty)
                // A new login starts with an empty cache.
                let later = try daemon.connect(loggedInAs: "alice")
                for profile in ["bob", "carol"] {
                    #expect(try later.call("GET", "alice", profile, "CACHED") == .null)
                }
            }
        }

        @Test(arguments: Progress.allCases, [["PURGE", "alice"], ["PURGE", "alice", "1", "bob"], ["PURGE", "*"]])
        func `I3: PURGE cancels a download without waiting for it, and a later GET starts a new one`(
            progress: Progress, purge: [String]
        ) throws {
            try withMachine { machine in
                let old = TestImage.gif("before the purge", size: 20_000)
                let new = TestImage.gif("after the purge", size: 20_000)
                let response = GatedOrigin.response(old)
                let origin = try GatedOrigin { request in
                    if request.number > 1 { return [.send(GatedOrigin.response(new))] }
                    let sent = progress == .streaming ? 10_000 : 0
                    return [
                        .send(Array(response.prefix(sent))), .wait("gate"), .send(Array(response.dropFirst(sent))),
                    ]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { useOrigin($0, origin) }
                let (waiter, control) = (try daemon.connect(), try daemon.connect())
                #expect(try control.call("LOGIN", "alice") == .ok)
                try waiter.send("GET", "alice", "bob")
                try origin.waitForRequests(1)
                try daemon.waitForEarlierRequests()

                try control.send(purge)
                let receipt = try control.receive()
                #expect(receipt["cancelled"] == .integer(1), "\(receipt.brief)")
                #expect(receipt["sessions"] == .integer(1))
                #expect(try waiter.receive().code == "CANCELLED")
                #expect(try control.call("GET", "alice", "bob", "CACHED") == .null)
                #expect(try control.call("GET", "alice", "bob") == .bulk(new))
                #expect(origin.requests.count == 2)
                origin.open("gate")
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(new))
                #expect(origin.requests.count == 2)
            }
        }

        @Test(arguments: Progress.allCases)
        func `F62: a hanging GET and a pipelined LOGOUT get CANCELLED and a receipt`(
            progress: Progress
        ) throws {
            try withMachine { machine in
                let origin = try gatedOrigin(TestImage.gif("bob", size: 20_000), progress)
                defer { origin.end() }
                let daemon = try machine.daemon { useOrigin($0, origin) }
                let client = try daemon.connect()
                try client.sendRaw(
                    RESPClient.frame(["LOGIN", "alice"]) + RESPClient.frame(["GET", "alice", "bob"])
                        + RESPClient.frame(["LOGOUT", "alice"]) + RESPClient.frame(["GET", "alice", "bob"])
                        + RESPClient.frame(["PING"]))
                #expect(try client.receive() == .ok)
                #expect(try client.receive().code == "CANCELLED")
                #expect(try client.receive()["users"] == .integer(1))
                #expect(try client.receive().code == "NOLOGIN")
                #expect(try client.receive() == .simple("PONG"))
                origin.open("gate")
            }
        }

        @Test func `F62: a hanging GET and a pipelined PURGE get CANCELLED and a receipt`() throws {
            try withMachine { machine in
                let origin = try gatedOrigin(TestImage.gif("bob"), .hanging)
                defer { origin.end() }
                let daemon = try machine.daemon { useOrigin($0, origin) }
                let client = try daemon.connect(loggedInAs: "alice")
                try client.send("GET", "alice", "bob")
                try client.send("PURGE", "alice", "1", "bob")
                try client.send("GET", "alice", "bob", "CACHED")
                #expect(try client.receive().code == "CANCELLED")
                // `cancelled` is not checked: the download may not have started before the purge.
                let receipt = try client.receive()
                #expect(receipt["sessions"] == .integer(1), "\(receipt.brief)")
                #expect(try client.receive() == .null)
            }
        }

        @Test func `I2: LOGOUT of the last session removes the cache, and LOGOUT of another one does not`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "SESSION", "desk") == .ok)
                #expect(try client.call("LOGIN", "alice", "SESSION", "phone") == .ok)
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                #expect(try client.call("LOGOUT", "alice", "SESSION", "desk")["sessions"] == .integer(1))
                try daemon.restart()
                let later = try daemon.connect()
                #expect(try later.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                #expect(try later.call("LOGOUT", "alice", "SESSION", "phone")["users"] == .integer(1))
                #expect(try later.call("GET", "alice", "bob").code == "NOLOGIN")
            }
        }

        @Test func `F59: the session of a LOGIN with HOLD ends when its program is killed`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                // A process that logs in and sleeps.
                let program = """
                    import socket, sys, time
                    s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
                    s.sendall(b"*3\\r\\n$5\\r\\nLOGIN\\r\\n$5\\r\\nalice\\r\\n$4\\r\\nHOLD\\r\\n")
                    assert s.recv(5) == b"+OK\\r\\n"
                    open(sys.argv[2], "w").close()
                    time.sleep(1000)
                    """
                let holder = try machine.start(
                    ["python3", "-c", program, daemon.socket, machine.path("held")],
                    errors: .file(machine.path("holder.log")))
                try eventually("the program has logged in") { Files.exists(machine.path("held")) }
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                holder.end()
                try eventually("the user is logged out") { try client.call("GET", "alice", "bob").code == "NOLOGIN" }
                try eventually("no image of the user is left") { daemon.imageFiles.isEmpty }
                #expect(try client.call("USERS") == .array([]))
            }
        }

        @Test func `F59: a held session ends alone, and does not survive a restart`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let (remaining, leaving) = (try daemon.connect(), try daemon.connect())
                #expect(try remaining.call("LOGIN", "alice", "SESSION", "one") == .ok)
                #expect(try leaving.call("LOGIN", "alice", "SESSION", "two", "HOLD") == .ok)
                #expect(try leaving.call("LOGIN", "eve", "HOLD") == .ok)
                leaving.end()
                try eventually("eve is logged out") { try remaining.call("USERS") == .list("alice") }
                #expect(try remaining.call("STAT", "alice")["sessions"] == .integer(1))

                let held = try daemon.connect()
                #expect(try held.call("LOGIN", "mallory", "HOLD") == .ok)
                daemon.kill()
                try daemon.start()
                let later = try daemon.connect()
                try eventually("mallory is logged out") {
                    try later.call("USERS") == .list("alice")
                }
            }
        }

        // MARK: Helper functions

        private func gatedOrigin(_ image: [UInt8], _ progress: Progress) throws -> GatedOrigin {
            let response = GatedOrigin.response(image)
            let sent = progress == .streaming ? response.count / 2 : 0
            return try GatedOrigin { _ in
                [.send(Array(response.prefix(sent))), .wait("gate"), .send(Array(response.dropFirst(sent)))]
            }
        }

        /// Configures the origin with a timeout that exceeds the duration of a test.
        private func useOrigin(_ daemon: Daemon, _ origin: GatedOrigin) {
            daemon.settings.setOrigin("\(origin.url)/{profile}")
            daemon.settings["origins.default", "timeout"] = "120s"
        }
    }
}
