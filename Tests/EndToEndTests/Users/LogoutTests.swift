import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// What ends, ends: log-out and purge against downloads under way.
    struct LogoutTests {
        @Test func `I2, F46: a LOGIN of somebody who died before the daemon came to read it logs nobody in`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let control = try daemon.connect()
                try daemon.process?.standStill()
                for number in 0..<20 {
                    let client = try RESPClient(daemon.socket)
                    try client.send("LOGIN", "alice-\(number)")
                    client.end()
                }
                daemon.process?.signal(SIGCONT)
                // Those before it have been accepted, and have had all the time of two commands that take as long as
                // theirs.
                try daemon.takeUpEverythingSent()
                for user in ["bob", "carol"] { #expect(try control.call("LOGIN", user) == .ok) }
                #expect(daemon.loginFiles.count == 4)
                #expect(try control.call("USERS").elements?.count == 2)
            }
        }

        /// How far a download has come when the log-out meets it.
        enum Progress: String, CaseIterable, Sendable {
            case hanging, streaming
        }

        @Test(arguments: Progress.allCases)
        func
            `I3, F40: LOGOUT does not wait for a download; its waiters are CANCELLED, and nothing of it is ever stored`(
                progress: Progress
            ) throws
        {
            try withMachine { machine in
                let secret = "alice's picture of bob"
                let origin = try heldOrigin(Picture.gif(secret, size: 20_000), progress)
                defer { origin.end() }
                let daemon = try machine.daemon { patientOrigin($0, origin) }
                let control = try daemon.connect()
                #expect(try control.call("LOGIN", "alice") == .ok)
                #expect(try control.call("PUT", "alice", "carol", Picture.gif("carol")) == .ok)
                let waiters = try (0..<3).map { _ in try daemon.connect() }
                for waiter in waiters { try waiter.send("GET", "alice", "bob") }
                try origin.waitForRequests(1)
                try daemon.takeUpEverythingSent()

                var receipt = Reply.null
                let duration = try milliseconds { receipt = try control.call("LOGOUT", "alice") }
                print("  LOGOUT with a \(progress) download: receipt after \(duration) ms")
                // The origin is still held: no gate has been opened.
                #expect(receipt["users"] == .integer(1))
                #expect(receipt["cancelled"] == .integer(1))
                #expect(receipt["images"] == .integer(1))
                for waiter in waiters { #expect(try waiter.receive().code == "CANCELLED") }
                #expect(try control.call("GET", "alice", "carol").code == "NOLOGIN")

                origin.open("gate")
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob").code == "NOLOGIN")
                try eventually("nothing is left of the user") { daemon.imageFiles.isEmpty }
                #expect(daemon.loginFiles.isEmpty)
                // Logged in anew, the user meets nothing of before.
                let later = try daemon.connect()
                #expect(try later.call("LOGIN", "alice") == .ok)
                for profile in ["bob", "carol"] {
                    #expect(try later.call("GET", "alice", profile, "CACHED") == .null)
                }
            }
        }

        @Test(arguments: Progress.allCases, [["PURGE", "alice"], ["PURGE", "alice", "1", "bob"], ["PURGE", "*"]])
        func `I3: PURGE does not wait for a download; a later GET downloads anew, whatever the old download brings`(
            progress: Progress, purge: [String]
        ) throws {
            try withMachine { machine in
                let old = Picture.gif("before the purge", size: 20_000)
                let new = Picture.gif("after the purge", size: 20_000)
                let response = GatedOrigin.response(old)
                let origin = try GatedOrigin { request in
                    if request.number > 1 { return [.send(GatedOrigin.response(new))] }
                    let sent = progress == .streaming ? 10_000 : 0
                    return [
                        .send(Array(response.prefix(sent))), .wait("gate"), .send(Array(response.dropFirst(sent))),
                    ]
                }
                defer { origin.end() }
                let daemon = try machine.daemon { patientOrigin($0, origin) }
                let (waiter, control) = (try daemon.connect(), try daemon.connect())
                #expect(try control.call("LOGIN", "alice") == .ok)
                try waiter.send("GET", "alice", "bob")
                try origin.waitForRequests(1)
                try daemon.takeUpEverythingSent()

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
        func `F62: a hanging GET and LOGOUT, pipelined on one connection, get CANCELLED and the receipt`(
            progress: Progress
        ) throws {
            try withMachine { machine in
                let origin = try heldOrigin(Picture.gif("bob", size: 20_000), progress)
                defer { origin.end() }
                let daemon = try machine.daemon { patientOrigin($0, origin) }
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

        @Test func `F62: a hanging GET and PURGE of its profile, pipelined on one connection`() throws {
            try withMachine { machine in
                let origin = try heldOrigin(Picture.gif("bob"), .hanging)
                defer { origin.end() }
                let daemon = try machine.daemon { patientOrigin($0, origin) }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                try client.send("GET", "alice", "bob")
                try client.send("PURGE", "alice", "1", "bob")
                try client.send("GET", "alice", "bob", "CACHED")
                #expect(try client.receive().code == "CANCELLED")
                // Whether the download had begun by then is a matter of luck.
                let receipt = try client.receive()
                #expect(receipt["sessions"] == .integer(1), "\(receipt.brief)")
                #expect(try client.receive() == .null)
            }
        }

        @Test func `I2: a LOGOUT that closes one of two sessions leaves the cache, the last one ends it`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice", "SESSION", "desk") == .ok)
                #expect(try client.call("LOGIN", "alice", "SESSION", "phone") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                #expect(try client.call("LOGOUT", "alice", "SESSION", "desk")["sessions"] == .integer(1))
                try daemon.restart()
                let later = try daemon.connect()
                #expect(try later.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                #expect(try later.call("LOGOUT", "alice", "SESSION", "phone")["users"] == .integer(1))
                #expect(try later.call("GET", "alice", "bob").code == "NOLOGIN")
            }
        }

        @Test func `F59: when a program that logged in with HOLD is killed, its session ends with its connection`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                // A program of its own, which logs in and then waits for what never comes.
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
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                holder.end()
                try eventually("the user is logged out") { try client.call("GET", "alice", "bob").code == "NOLOGIN" }
                try eventually("nothing is left of the user") { daemon.imageFiles.isEmpty }
                #expect(try client.call("USERS") == .array([]))
            }
        }

        @Test func `F59: a HOLD that ends leaves the sessions of others, and does not outlive a restart`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let (stays, goes) = (try daemon.connect(), try daemon.connect())
                #expect(try stays.call("LOGIN", "alice", "SESSION", "stays") == .ok)
                #expect(try goes.call("LOGIN", "alice", "SESSION", "goes", "HOLD") == .ok)
                #expect(try goes.call("LOGIN", "eve", "HOLD") == .ok)
                goes.end()
                try eventually("eve is logged out") { try stays.call("USERS") == .array([.bulk(Array("alice".utf8))]) }
                #expect(try stays.call("STAT", "alice")["sessions"] == .integer(1))

                let held = try daemon.connect()
                #expect(try held.call("LOGIN", "mallory", "HOLD") == .ok)
                daemon.kill()
                try daemon.start()
                let later = try daemon.connect()
                try eventually("mallory is logged out") {
                    try later.call("USERS") == .array([.bulk(Array("alice".utf8))])
                }
            }
        }

        // MARK: Help

        private func heldOrigin(_ picture: [UInt8], _ progress: Progress) throws -> GatedOrigin {
            let response = GatedOrigin.response(picture)
            let sent = progress == .streaming ? response.count / 2 : 0
            return try GatedOrigin { _ in
                [.send(Array(response.prefix(sent))), .wait("gate"), .send(Array(response.dropFirst(sent)))]
            }
        }

        /// No time-out of the daemon's may end what a test holds.
        private func patientOrigin(_ daemon: Daemon, _ origin: GatedOrigin) {
            daemon.settings.setOrigin("\(origin.url)/{profile}")
            daemon.settings["origins.default", "timeout"] = "120s"
        }
    }
}
