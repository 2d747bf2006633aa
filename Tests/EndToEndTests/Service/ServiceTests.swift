import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The daemon as a service: told to stop, watched by a service manager, handed its socket.
    struct ServiceTests {
        @Test(arguments: [SIGTERM, SIGINT])
        func `a stop sends the replies that are under way, then closes, and ends with status 0`(signal: CInt) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                let picture = Picture.gif("bob", size: 2_000_000)
                #expect(try client.call("PUT", "alice", "bob", picture) == .ok)
                // Far more than a socket's buffers take: most of the reply is still in the daemon when the signal
                // comes.
                try client.send("GET", "alice", "bob")
                #expect(client.hasReply(within: 30_000))
                daemon.process?.signal(signal)
                try eventually("the daemon takes no more connections") { (try? RESPClient(daemon.socket)) == nil }
                #expect(try client.receive() == .bulk(picture))
                #expect(client.isClosedByPeer())
                #expect(try daemon.process?.waitForEnd() == 0)
                #expect(!Files.exists(daemon.socket))
            }
        }

        @Test func `a stop that comes as soon as the daemon is ready is a stop like any other`() throws {
            try withMachine { machine in
                for _ in 0..<10 {
                    let notify = try NotifySocket(machine)
                    let daemon = Daemon(machine, "daemon")
                    daemon.environment["NOTIFY_SOCKET"] = notify.path
                    try daemon.launch()
                    try notify.wait(for: "READY=1")
                    #expect(try daemon.stop() == 0)
                    #expect(!Files.exists(daemon.socket))
                }
            }
        }

        @Test func `a stop answers those who wait for a download, and does not wait for the origin`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in [.silence] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "250s"
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                try client.send("GET", "alice", "bob")
                try origin.waitForRequests(1)
                daemon.process?.signal(SIGTERM)
                #expect(try client.receive().code == "SHUTTINGDOWN")
                #expect(client.isClosedByPeer())
                #expect(try daemon.process?.waitForEnd() == 0)
                // The log-in is still there.
                try daemon.start()
                #expect(try daemon.connect().call("USERS") == .array([.bulk(Array("alice".utf8))]))
            }
        }

        @Test func `sd_notify: READY when it answers, STOPPING when it stops`() throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = Daemon(machine, "daemon")
                daemon.environment["NOTIFY_SOCKET"] = notify.path
                try daemon.launch()
                try notify.wait(for: "READY=1")
                // No polling: READY means that it answers now.
                #expect(try RESPClient(daemon.socket).call("PING") == .simple("PONG"))
                try daemon.stop()
                try notify.wait(for: "STOPPING=1")
                #expect(notify.lines.filter { $0 == "READY=1" }.count == 1)
            }
        }

        @Test func `F47: a stop under load loses no reply that was begun, and nothing acknowledged`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let socket = daemon.socket
                #expect(try daemon.connect().call("LOGIN", "alice") == .ok)
                let acknowledged = Watched<[String]>([])
                let load = ThreadGroup(4) { index in
                    let client = try RESPClient(socket)
                    for number in 0..<100_000 {
                        let profile = "\(index) \(number)"
                        let reply: Reply
                        do { reply = try client.call("PUT", "alice", profile, Picture.gif(profile)) } catch let failure
                            as Failure
                        {
                            // Closed between two replies, not within one.
                            guard !failure.description.contains("middle") else { throw failure }
                            return
                        }
                        if reply.code == "SHUTTINGDOWN" { return }
                        guard reply == .ok else { throw Failure("PUT: \(reply.brief)") }
                        acknowledged.change { $0.append(profile) }
                    }
                }
                #expect(acknowledged.wait(60) { $0.count > 300 })
                #expect(try daemon.stop() == 0)
                try load.wait()
                try daemon.start()
                let client = try daemon.connect()
                for profile in acknowledged.current {
                    let held = try client.call("GET", "alice", profile, "CACHED")
                    guard held == .bulk(Picture.gif(profile)) else { throw Failure("\(profile): \(held.brief)") }
                }
            }
        }

        @Test func `F47: reloads under load refuse nobody and lose nothing, and each is told to systemd`() throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = Daemon(machine, "daemon")
                daemon.environment["NOTIFY_SOCKET"] = notify.path
                try daemon.launch()
                try notify.wait(for: "READY=1")
                let socket = daemon.socket
                #expect(try daemon.connect().call("LOGIN", "alice") == .ok)
                let done = Watched(0)
                let isOver = Watched(false)
                let load = ThreadGroup(4) { index in
                    var number = 0
                    while !isOver.current {
                        // A new connection now and then: none may be turned away.
                        let client = try RESPClient(socket)
                        for _ in 0..<20 {
                            number += 1
                            let profile = "\(index) \(number % 50)"
                            let put = try client.call("PUT", "alice", profile, Picture.gif("\(profile) \(number)"))
                            guard put == .ok else { throw Failure("PUT: \(put.brief)") }
                            let got = try client.call("GET", "alice", profile)
                            guard got == .bulk(Picture.gif("\(profile) \(number)")) else {
                                throw Failure("GET: \(got.brief)")
                            }
                            done.change { $0 += 1 }
                        }
                        client.end()
                    }
                }
                for round in 1...10 {
                    daemon.settings["limits", "image"] = .string("\(round)MiB")
                    try daemon.writeConfiguration()
                    daemon.process?.signal(SIGHUP)
                    try notify.wait(for: "RELOADING=1")
                    try notify.wait(for: "READY=1")
                    let before = done.current
                    #expect(done.wait(60) { $0 > before + 50 })
                }
                isOver.change { $0 = true }
                try load.wait()
                #expect(try daemon.stop() == 0)
            }
        }

        @Test
        func `LISTEN_FDS: an inherited socket is used instead of the configured one, and its file is not removed`()
            throws
        {
            try withMachine { machine in
                let path = machine.path("inherited")
                let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
                defer { close(listener) }
                #expect(withUnixAddress(path) { bind(listener, $0, $1) } == 0)
                #expect(listen(listener, 8) == 0)
                // A client that comes before the daemon waits in the socket's queue.
                let early = try RESPClient(path)
                try early.send("PING")
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["sh", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\""]
                try daemon.launch(passing: [listener])
                #expect(try early.receive() == .simple("PONG"))
                #expect(!Files.exists(daemon.socket))
                #expect(try daemon.stop() == 0)
                #expect(Files.exists(path))
                // And the socket still takes clients, for the next start.
                let next = try RESPClient(path)
                try next.send("PING")
                try daemon.launch(passing: [listener])
                #expect(try next.receive() == .simple("PONG"))
            }
        }

        @Test func `LISTEN_FDS that is meant for another process is ignored`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.environment["LISTEN_FDS"] = "1"
                    daemon.environment["LISTEN_PID"] = "1"
                }
                #expect(Files.exists(daemon.socket))
            }
        }

        static let hasActivation = (try? ChildProcess.path(of: "systemd-socket-activate")) != nil

        @Test(.enabled(if: hasActivation, "systemd-socket-activate is not installed"))
        func `systemd's own socket activation starts the daemon at the first connection`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let path = machine.path("activated")
                daemon.wrapper = ["systemd-socket-activate", "-l", path]
                try daemon.launch()
                // The socket has its name a moment before it takes connections.
                var connected: RESPClient?
                try eventually("systemd listens") {
                    do { connected = try RESPClient(path) } catch { return false }
                    return true
                }
                let client = try #require(connected)
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("USERS") == .array([.bulk(Array("alice".utf8))]))
            }
        }

        @Test func `thumbcached --version and --help answer and end`() throws {
            try withMachine { machine in
                let version = try machine.run([Daemon.program, "--version"])
                #expect(version.status == 0 && version.text.contains("."), "\(version.everything)")
                let help = try machine.run([Daemon.program, "--help"])
                #expect(help.status == 0 && help.text.contains("--check-config"), "\(help.everything)")
                // The last of the levels.
                #expect(help.text.contains("critical"), "\(help.everything)")
                let wrong = try machine.run([Daemon.program, "--no-such-flag"])
                #expect(wrong.status != 0 && wrong.errors.contains("--no-such-flag"), "\(wrong.everything)")
            }
        }
    }
}
