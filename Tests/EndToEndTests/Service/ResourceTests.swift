import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// A machine that gives the daemon little: descriptors, memory, a socket that dies.
    struct ResourceTests {
        /// Descriptors that the daemon has open.
        private func descriptors(_ daemon: Daemon) throws -> [Int] {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/fd").compactMap { Int($0) }
        }

        private func limit(_ daemon: Daemon, to count: Int, _ machine: Machine) throws {
            // The soft one alone, so that it can be raised again by whoever is not root.
            let run = try machine.run(["prlimit", "--pid", "\(daemon.pid)", "--nofile=\(count):"])
            guard run.status == 0 else { throw Failure("prlimit: \(run.everything)") }
        }

        @Test
        func
            `I9, F15: without a free descriptor open connections are served, and accepting goes on later`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                let profiles = (0..<40).map { "profile \($0)" }
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, Picture.gif(profile)) == .ok)
                }
                // No number is free below this, so the next descriptor cannot be had.
                let taken = try descriptors(daemon)
                try limit(daemon, to: (0...).first { !taken.contains($0) } ?? 0, machine)
                let late = try RESPClient(daemon.socket)
                try late.send("PING")
                try eventually("the daemon has noticed") {
                    daemon.log.contains("no connection can be accepted for now")
                }
                // From disk, with what the daemon can give up; and what ends a cache works, too.
                for profile in profiles {
                    #expect(try client.call("GET", "alice", profile) == .bulk(Picture.gif(profile)))
                }
                #expect(try client.call("PURGE", "alice", "1", profiles[0])["images"]?.number == 1)
                #expect(try client.call("GET", "alice", profiles[0]) == .null)
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                try limit(daemon, to: 1_024, machine)
                #expect(try late.receive() == .simple("PONG"))
                // Each is said once, however often it was tried.
                for line in ["no connection can be accepted for now", "connections are accepted again"] {
                    #expect(daemon.log.components(separatedBy: line).count == 2, "\(daemon.log)")
                }
            }
        }

        @Test func `F15: the limit of open files is raised as far as the configuration needs it`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.wrapper = ["prlimit", "--nofile=256:8192", "--"] }
                let limits = String(decoding: try read("/proc/\(daemon.pid)/limits"), as: UTF8.self)
                let line = limits.split(separator: "\n").first { $0.hasPrefix("Max open files") } ?? ""
                let soft = Int(line.split(separator: " ").dropFirst(3).first ?? "") ?? 0
                #expect(soft > 1_024 && soft <= 8_192, "\(line)")
                #expect(!daemon.log.contains("too few open files"))
            }
        }

        @Test
        func
            `F15: where it may not be raised, fewer connections are taken, and that is said; none is lost to the disk`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.wrapper = ["prlimit", "--nofile=364:364", "--"]
                    daemon.settings["limits", "connections-per-uid"] = 1_000
                    daemon.settings["memory", "tier"] = "0"
                }
                #expect(daemon.log.contains("too few open files"), "\(daemon.log)")
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                var held: [RESPClient] = []
                var refusal: Reply?
                while held.count < 400, refusal == nil {
                    let next = try RESPClient(daemon.socket)
                    try? next.send("PING")
                    let reply = try next.receive()
                    if reply == .simple("PONG") { held.append(next) } else { refusal = reply }
                }
                #expect(refusal?.code == "BUSY")
                #expect(held.count > 30)
                #expect(!daemon.log.contains("no connection can be accepted for now"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
            }
        }

        @Test func `F15: with too few for anything the daemon does not start, and says how many it needs`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["prlimit", "--nofile=64:64", "--"]
                try daemon.launch()
                #expect(try daemon.process?.waitForEnd() == 1)
                #expect(
                    daemon.log.contains("only 64 open files; with this configuration it needs at least"),
                    "\(daemon.log)")
            }
        }

        @Test
        func `I5, F16: with little memory the daemon goes on or dies; what was acknowledged is whole after a restart`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings["memory", "tier"] = "1GiB"
                    daemon.settings["storage", "quota"] = "2GiB"
                    daemon.settings["storage", "user-quota"] = "2GiB"
                }
                // What it has already, and little more than the images that it is to keep in memory take.
                let space = try addressSpace(daemon) + 150 << 20
                let run = try machine.run(["prlimit", "--pid", "\(daemon.pid)", "--as=\(space)"])
                #expect(run.status == 0, "\(run.everything)")
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                var acknowledged: [Int] = []
                for number in 0..<60 {
                    let reply: Reply
                    do {
                        reply = try client.call("PUT", "alice", "\(number)", Self.large(number))
                    } catch {
                        break
                    }
                    if reply == .ok { acknowledged.append(number) }
                }
                #expect(acknowledged.count > 5)
                daemon.kill()
                daemon.settings["memory", "tier"] = "1MiB"
                try daemon.start()
                let again = try daemon.connect()
                #expect(try again.call("USERS") == .array([.bulk(Array("alice".utf8))]))
                for number in acknowledged {
                    let held = try again.call("GET", "alice", "\(number)", "CACHED")
                    guard held == .bulk(Self.large(number)) else { throw Failure("\(number): \(held.brief)") }
                }
            }
        }

        /// Bytes.
        private func addressSpace(_ daemon: Daemon) throws -> Int {
            let pages = String(decoding: try read("/proc/\(daemon.pid)/statm"), as: UTF8.self).split(separator: " ")
            return (Int(pages.first ?? "") ?? 0) * sysconf(CInt(_SC_PAGESIZE))
        }

        private static func large(_ number: Int) -> [UInt8] { Picture.gif("large \(number)", size: 4 << 20) }

        @Test(.enabled(if: StoreFaultTests.canTrace, "strace may not trace here"))
        func `a socket that takes no connections any more ends the daemon with status 1, for systemd to restart it`()
            throws
        {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["strace", "-f", "-o", "/dev/null", "-e", "inject=accept4:error=EINVAL"]
                try daemon.launch()
                try eventually("it listens") { (try? RESPClient(daemon.socket)) != nil }
                #expect(try daemon.process?.waitForEnd() == 1)
                #expect(daemon.log.contains("no longer takes connections"), "\(daemon.log)")
            }
        }

        @Test func `closed standard streams harm nothing: no file of the store's takes their place`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.wrapper = ["sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]
                }
                for number in 0...2 {
                    let target = try FileManager.default.destinationOfSymbolicLink(
                        atPath: "/proc/\(daemon.pid)/fd/\(number)")
                    #expect(target == "/dev/null")
                }
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                try daemon.restart()
                #expect(try daemon.connect().call("USERS") == .array([.bulk(Array("alice".utf8))]))
                let control = try machine.run([
                    "sh", "-c", "exec \"$0\" --socket \"$1\" logout --all <&- >&- 2>&-",
                    "\(Files.programs)/thumbcachectl", daemon.socket,
                ])
                #expect(control.status == 0, "\(control.everything)")
                #expect(try daemon.connect().call("USERS") == .array([]))
            }
        }

        @Test func `F48: systemd's watchdog is fed again and again, if it is meant for this process`() throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = Daemon(machine, "daemon")
                daemon.environment["NOTIFY_SOCKET"] = notify.path
                daemon.environment["WATCHDOG_USEC"] = "200000"
                try daemon.launch()
                for _ in 0..<3 { try notify.wait(for: "WATCHDOG=1") }
                #expect(notify.lines.contains("READY=1"))
                #expect(try daemon.stop() == 0)
                let deaf = Daemon(machine, "deaf")
                let silence = try NotifySocket(machine)
                deaf.environment = daemon.environment
                deaf.environment["NOTIFY_SOCKET"] = silence.path
                deaf.environment["WATCHDOG_PID"] = "1"
                try deaf.launch()
                try silence.wait(for: "READY=1")
                #expect(try deaf.stop() == 0)
                try silence.wait(for: "STOPPING=1")
                #expect(!silence.lines.contains("WATCHDOG=1"))
            }
        }

        static let canUnshare =
            (try? ChildProcess(["unshare", "--user", "true"]).waitForEnd(within: 10)) == 0

        @Test(.enabled(if: canUnshare, "no user namespace may be made here"))
        func `F29: a peer whose uid has no number in the daemon's namespace is refused, whatever it asks`() throws {
            try withMachine { machine in
                // In there only root has a number: of an ordinary user's tests nobody, themselves included.
                let isRoot = geteuid() == 0
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["unshare", "--user"] + (isRoot ? ["--map-root-user"] : [])
                try daemon.launch()
                try eventually("it listens; it said:\n\(daemon.log.suffix(2_000))") {
                    (try? RESPClient(daemon.socket)) != nil
                }
                let script = """
                    import socket, sys
                    s = socket.socket(socket.AF_UNIX)
                    s.connect(sys.argv[1])
                    try: s.sendall(b"*2\\r\\n$5\\r\\nLOGIN\\r\\n$5\\r\\nalice\\r\\n*1\\r\\n$4\\r\\nPING\\r\\n")
                    except OSError: pass
                    try:
                        while chunk := s.recv(4096): sys.stdout.buffer.write(chunk)
                    except ConnectionResetError: pass
                    """
                let words = ["/usr/bin/python3", "-c", script, daemon.socket]
                for _ in 0..<3 {
                    let stranger = try machine.run(isRoot ? Account(4_001).running(words) : words)
                    #expect(
                        stranger.text.hasPrefix("-DENIED the kernel cannot say who you are"), "\(stranger.everything)")
                    #expect(stranger.text.filter { $0.isNewline }.count == 1, "\(stranger.everything)")
                }
                #expect(daemon.loginFiles.isEmpty)
                if isRoot { #expect(try daemon.connect().call("PING") == .simple("PONG")) }
                #expect(try daemon.stop() == 0)
            }
        }
    }
}
