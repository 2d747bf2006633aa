import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Stop, reload, sd_notify and socket activation.
    struct ServiceTests {
        @Test(arguments: [SIGTERM, SIGINT])
        func `a stop completes pending replies and ends with status 0`(signal: CInt) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                let image = TestImage.gif("bob", size: 2_000_000)
                #expect(try client.call("PUT", "alice", "bob", image) == .ok)
                // The reply exceeds the socket's buffers, so most of it is in the daemon when the signal arrives.
                try client.send("GET", "alice", "bob")
                #expect(client.hasReply(within: 30_000))
                daemon.process?.signal(signal)
                try eventually("the daemon accepts no more connections") { (try? RESPClient(daemon.socket)) == nil }
                #expect(try client.receive() == .bulk(image))
                #expect(client.isClosedByPeer())
                #expect(try daemon.process?.waitForExit() == 0)
                #expect(!Files.exists(daemon.socket))
            }
        }

        @Test func `a stop immediately after READY ends with status 0`() throws {
            try withMachine { machine in
                for _ in 0..<10 {
                    let daemon = Daemon(machine, "daemon")
                    let notify = try daemon.openNotifySocket()
                    try daemon.launch()
                    try notify.wait(for: "READY=1")
                    #expect(try daemon.stop() == 0)
                    #expect(!Files.exists(daemon.socket))
                }
            }
        }

        @Test func `a stop answers requests that wait for a download with SHUTTINGDOWN`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { _ in [.silence] }
                defer { origin.end() }
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "250s"
                }
                let client = try daemon.connect(loggedInAs: "alice")
                try client.send("GET", "alice", "bob")
                try origin.waitForRequests(1)
                daemon.process?.signal(SIGTERM)
                #expect(try client.receive().code == "SHUTTINGDOWN")
                #expect(client.isClosedByPeer())
                #expect(try daemon.process?.waitForExit() == 0)
                // The user is still logged in.
                try daemon.start()
                #expect(try daemon.connect().call("USERS") == .list("alice"))
            }
        }

        @Test func `READY=1 is sent when the daemon answers, STOPPING=1 when it stops`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let notify = try daemon.openNotifySocket()
                try daemon.launch()
                try notify.wait(for: "READY=1")
                // Without polling, since READY=1 promises that the daemon answers.
                #expect(try RESPClient(daemon.socket).call("PING") == .simple("PONG"))
                try daemon.stop()
                try notify.wait(for: "STOPPING=1")
                #expect(notify.lines.filter { $0 == "READY=1" }.count == 1)
            }
        }

        @Test func `F47: a stop under load truncates no reply and loses no acknowledged image`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let socket = daemon.socket
                _ = try daemon.connect(loggedInAs: "alice")
                let acknowledged = Watched<[String]>([])
                let load = ThreadGroup(4) { index in
                    let client = try RESPClient(socket)
                    for number in 0..<100_000 {
                        let profile = "\(index) \(number)"
                        let reply: Reply
                        do {
                            reply = try client.call("PUT", "alice", profile, TestImage.gif(profile))
                        } catch let failure as Failure {
                            // The connection may be closed between two replies, but not within one.
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
                    guard held == .bulk(TestImage.gif(profile)) else { throw Failure("\(profile): \(held.brief)") }
                }
            }
        }

        @Test func `F47: reloads under load reject no request, lose no image and notify systemd`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let notify = try daemon.openNotifySocket()
                try daemon.launch()
                try notify.wait(for: "READY=1")
                let socket = daemon.socket
                _ = try daemon.connect(loggedInAs: "alice")
                let done = Watched(0)
                let isOver = Watched(false)
                let load = ThreadGroup(4) { index in
                    var number = 0
                    while !isOver.current {
                        // Opens new connections regularly; none may be rejected.
                        let client = try RESPClient(socket)
                        for _ in 0..<20 {
                            number += 1
                            let profile = "\(index) \(number % 50)"
                            let put = try client.call("PUT", "alice", profile, TestImage.gif("\(profile) \(number)"))
                            guard put == .ok else { throw Failure("PUT: \(put.brief)") }
                            let got = try client.call("GET", "alice", profile)
                            guard got == .bulk(TestImage.gif("\(profile) \(number)")) else {
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
                    try daemon.reload(notify)
                    let before = done.current
                    #expect(done.wait(60) { $0 > before + 50 })
                }
                isOver.change { $0 = true }
                try load.wait()
                #expect(try daemon.stop() == 0)
            }
        }

        @Test func `an inherited socket replaces the configured one, and its file is not removed`() throws {
            try withMachine { machine in
                let path = machine.path("inherited")
                let listener = try listenUnix(path)
                defer { close(listener) }
                // Waits in the backlog until the daemon runs.
                let early = try RESPClient(path)
                try early.send("PING")
                let daemon = Daemon(machine, "daemon")
                try daemon.launch(listener: listener)
                #expect(try early.receive() == .simple("PONG"))
                #expect(!Files.exists(daemon.socket))
                #expect(try daemon.stop() == 0)
                #expect(Files.exists(path))
                // The socket still queues connections for the next start.
                let next = try RESPClient(path)
                try next.send("PING")
                try daemon.launch(listener: listener)
                #expect(try next.receive() == .simple("PONG"))
            }
        }

        @Test func `LISTEN_FDS is ignored if LISTEN_PID is another process`() throws {
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
        func `systemd-socket-activate starts the daemon at the first connection`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let path = machine.path("activated")
                daemon.wrapper = ["systemd-socket-activate", "-l", path]
                try daemon.launch()
                // The socket file appears shortly before listen(2).
                var connected: RESPClient?
                try eventually("systemd listens") {
                    do { connected = try RESPClient(path) } catch { return false }
                    return true
                }
                let client = try #require(connected)
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("USERS") == .list("alice"))
            }
        }

        @Test func `thumbcached --version and --help print text and exit`() throws {
            try withMachine { machine in
                let version = try machine.run([Daemon.program, "--version"])
                #expect(version.status == 0 && version.text.contains("."), "\(version.summary)")
                let help = try machine.run([Daemon.program, "--help"])
                #expect(help.status == 0 && help.text.contains("--check-config"), "\(help.summary)")
                // The last log level.
                #expect(help.text.contains("critical"), "\(help.summary)")
                let wrong = try machine.run([Daemon.program, "--no-such-flag"])
                #expect(wrong.status != 0 && wrong.errors.contains("--no-such-flag"), "\(wrong.summary)")
            }
        }
    }
}
