import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Lack of descriptors and memory, and a listening socket that fails.
    struct ResourceTests {
        /// The daemon's open descriptors.
        private func descriptors(_ daemon: Daemon) throws -> [Int] {
            try FileManager.default.contentsOfDirectory(atPath: "/proc/\(daemon.pid)/fd").compactMap { Int($0) }
        }

        @Test func `I9, F15: without free descriptors, open connections are served and accepting resumes later`() throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["memory", "tier"] = "0" }
                let client = try daemon.connect(loggedInAs: "alice")
                let profiles = (0..<40).map { "profile \($0)" }
                for profile in profiles {
                    #expect(try client.call("PUT", "alice", profile, TestImage.gif(profile)) == .ok)
                }
                // The limit is the lowest free number, so that no further descriptor can be opened.
                let used = try descriptors(daemon)
                try daemon.limitDescriptors(to: (0...).first { !used.contains($0) } ?? 0)
                let late = try RESPClient(daemon.socket)
                try late.send("PING")
                try eventually("accept has failed") { daemon.log.contains("cannot accept connections; retrying") }
                // The daemon closes cached directories to get descriptors for reads, purges and logouts.
                for profile in profiles {
                    #expect(try client.call("GET", "alice", profile) == .bulk(TestImage.gif(profile)))
                }
                #expect(try client.call("PURGE", "alice", "1", profiles[0])["images"]?.number == 1)
                #expect(try client.call("GET", "alice", profiles[0]) == .null)
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
                try daemon.limitDescriptors(to: 1_024)
                #expect(try late.receive() == .simple("PONG"))
                // Repeated failures are logged once.
                for line in ["cannot accept connections; retrying", "accepting connections again"] {
                    #expect(daemon.log.components(separatedBy: line).count == 2, "\(daemon.log)")
                }
            }
        }

        @Test func `F15: the limit of open files is raised to what the configuration needs`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.wrapper = ["prlimit", "--nofile=256:8192", "--"] }
                let limits = try readText("/proc/\(daemon.pid)/limits")
                let line = limits.split(separator: "\n").first { $0.hasPrefix("Max open files") } ?? ""
                let soft = Int(line.split(separator: " ").dropFirst(3).first ?? "") ?? 0
                #expect(soft > 1_024 && soft <= 8_192, "\(line)")
                #expect(!daemon.log.contains("limit of open files too low"))
            }
        }

        @Test
        func `F15: if the limit cannot be raised, fewer connections are accepted, and disk reads still work`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.wrapper = ["prlimit", "--nofile=364:364", "--"]
                    daemon.settings["limits", "connections-per-uid"] = 1_000
                    daemon.settings["memory", "tier"] = "0"
                }
                #expect(daemon.log.contains("limit of open files too low"), "\(daemon.log)")
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                var accepted: [RESPClient] = []
                var rejection: Reply?
                while accepted.count < 400, rejection == nil {
                    let next = try RESPClient(daemon.socket)
                    try? next.send("PING")
                    let reply = try next.receive()
                    if reply == .simple("PONG") { accepted.append(next) } else { rejection = reply }
                }
                #expect(rejection?.code == "BUSY")
                #expect(accepted.count > 30)
                #expect(!daemon.log.contains("cannot accept connections; retrying"))
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                #expect(try client.call("LOGOUT", "alice")["users"]?.number == 1)
            }
        }

        @Test func `F15: with too few descriptors the daemon does not start and reports how many it needs`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["prlimit", "--nofile=64:64", "--"]
                try daemon.launch()
                #expect(try daemon.process?.waitForExit() == 1)
                #expect(
                    daemon.log.contains("the limit of open files is 64; this configuration needs at least"),
                    "\(daemon.log)")
            }
        }

        @Test
        func `I5, F16: acknowledged images are intact after the daemon ran out of memory`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings["memory", "tier"] = "1GiB"
                    daemon.settings["storage", "quota"] = "2GiB"
                    daemon.settings["storage", "user-quota"] = "2GiB"
                }
                // 150 MiB more than in use now, which is less than the images need.
                let space = try addressSpace(daemon) + 150 << 20
                try machine.runSuccessfully(["prlimit", "--pid", "\(daemon.pid)", "--as=\(space)"])
                let client = try daemon.connect(loggedInAs: "alice")
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
                #expect(try again.call("USERS") == .list("alice"))
                for number in acknowledged {
                    let held = try again.call("GET", "alice", "\(number)", "CACHED")
                    guard held == .bulk(Self.large(number)) else { throw Failure("\(number): \(held.brief)") }
                }
            }
        }

        /// The size of the daemon's address space, in bytes.
        private func addressSpace(_ daemon: Daemon) throws -> Int {
            let pages = try readText("/proc/\(daemon.pid)/statm").split(separator: " ")
            return (Int(pages.first ?? "") ?? 0) * sysconf(CInt(_SC_PAGESIZE))
        }

        private static func large(_ number: Int) -> [UInt8] { TestImage.gif("large \(number)", size: 4 << 20) }

        @Test(.enabled(if: StoreFaultTests.canTrace, "strace is not permitted"))
        func `a permanent failure of accept ends the daemon with status 1, so that systemd restarts it`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["strace", "-f", "-o", "/dev/null", "-e", "inject=accept4:error=EINVAL"]
                try daemon.launch()
                try eventually("the daemon listens") { (try? RESPClient(daemon.socket)) != nil }
                #expect(try daemon.process?.waitForExit() == 1)
                #expect(daemon.log.contains("cannot accept connections"), "\(daemon.log)")
            }
        }

        @Test func `closed standard streams are replaced by /dev/null`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.wrapper = ["sh", "-c", "exec \"$0\" \"$@\" <&- >&- 2>&-"]
                }
                for number in 0...2 {
                    let target = try FileManager.default.destinationOfSymbolicLink(
                        atPath: "/proc/\(daemon.pid)/fd/\(number)")
                    #expect(target == "/dev/null")
                }
                _ = try daemon.connect(loggedInAs: "alice")
                try daemon.restart()
                #expect(try daemon.connect().call("USERS") == .list("alice"))
                try machine.runSuccessfully([
                    "sh", "-c", "exec \"$0\" --socket \"$1\" logout --all <&- >&- 2>&-",
                    "\(Files.programs)/thumbcachectl", daemon.socket,
                ])
                #expect(try daemon.connect().call("USERS") == .array([]))
            }
        }

        @Test func `F48: watchdog messages are sent repeatedly, unless WATCHDOG_PID is another process`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let notify = try daemon.openNotifySocket()
                daemon.environment["WATCHDOG_USEC"] = "200000"
                try daemon.launch()
                for _ in 0..<3 { try notify.wait(for: "WATCHDOG=1") }
                #expect(notify.lines.contains("READY=1"))
                #expect(try daemon.stop() == 0)
                let other = Daemon(machine, "other")
                let otherNotify = try NotifySocket(machine)
                other.environment = daemon.environment
                other.environment["NOTIFY_SOCKET"] = otherNotify.path
                other.environment["WATCHDOG_PID"] = "1"
                try other.launch()
                try otherNotify.wait(for: "READY=1")
                #expect(try other.stop() == 0)
                try otherNotify.wait(for: "STOPPING=1")
                #expect(!otherNotify.lines.contains("WATCHDOG=1"))
            }
        }

        static let canUnshare =
            (try? ChildProcess(["unshare", "--user", "true"]).waitForExit(within: 10)) == 0

        @Test(.enabled(if: canUnshare, "user namespaces are not permitted"))
        func `F29: a peer whose uid is not mapped in the daemon's namespace is denied`() throws {
            try withMachine { machine in
                // The namespace maps root if root runs the tests, and otherwise no uid at all.
                let isRoot = geteuid() == 0
                let daemon = Daemon(machine, "daemon")
                daemon.wrapper = ["unshare", "--user"] + (isRoot ? ["--map-root-user"] : [])
                try daemon.launch()
                try eventually("the daemon listens; log:\n\(daemon.log.suffix(2_000))") {
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
                    let peer = try machine.run(isRoot ? Account(4_001).running(words) : words)
                    #expect(peer.text.hasPrefix("-DENIED your uid has no number"), "\(peer.summary)")
                    #expect(peer.text.filter { $0.isNewline }.count == 1, "\(peer.summary)")
                }
                #expect(daemon.loginFiles.isEmpty)
                if isRoot { #expect(try daemon.connect().call("PING") == .simple("PONG")) }
                #expect(try daemon.stop() == 0)
            }
        }
    }
}
