import Foundation
import Glibc
import Testing

extension EndToEnd.Users {
    /// Logout hooks while the daemon is stopped or not running.
    struct PendingLogoutTests {
        private static let control = "\(Files.programs)/thumbcachectl"

        /// Runs thumbcachectl as a logout hook does.
        private func hook(_ machine: Machine, _ daemon: Daemon, uid: uid_t = geteuid(), seconds: Int = 60) throws
            -> Finished
        {
            try machine.run([
                Self.control, "--socket", daemon.socket, "logout", "--all", "--uid", "\(uid)", "--pending",
                daemon.pending, "--timeout", "\(seconds)",
            ])
        }

        /// Starts a daemon with a directory of pending-logout files and a logged-in user with one image.
        private func daemonWithAlice(_ machine: Machine) throws -> Daemon {
            let daemon = Daemon(machine, "daemon")
            try daemon.writeConfiguration()
            guard mkdir(daemon.pending, 0o750) == 0 else { throw Failure(systemCall: "mkdir \(daemon.pending)") }
            try daemon.start()
            try logInAlice(daemon)
            return daemon
        }

        private func logInAlice(_ daemon: Daemon) throws {
            let client = try daemon.connect(loggedInAs: "alice")
            #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
        }

        private func pendingFiles(_ daemon: Daemon) throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: daemon.pending)
        }

        @Test(arguments: [SIGTERM, SIGKILL])
        func `I4, F46: a logout while the daemon is down is processed before the next start serves clients`(
            signal: CInt
        ) throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                if signal == SIGKILL { daemon.kill() } else { try daemon.stop() }
                let hook = try hook(machine, daemon)
                #expect(hook.status == 5, "\(hook.summary)")
                #expect(try pendingFiles(daemon).count == 1)
                let path = machine.path("inherited")
                let listener = try listenUnix(path)
                defer { close(listener) }
                // Waits in the backlog until the daemon runs.
                let first = try RESPClient(path)
                try first.send("GET", "alice", "bob")
                try daemon.launch(listener: listener)
                #expect(try first.receive().code == "NOLOGIN")
                #expect(daemon.loginFiles.isEmpty)
                #expect(try pendingFiles(daemon) == [])
                // A new login remains.
                #expect(try first.call("LOGIN", "alice") == .ok)
                try daemon.stop()
                try daemon.launch(passing: [listener])
                let second = try RESPClient(path)
                #expect(try second.call("USERS") == .list("alice"))
            }
        }

        @Test func `F46: a stopped daemon processes a pending-logout file when it continues`() throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                // No request accompanies the file.
                try daemon.process?.suspend()
                defer { daemon.process?.signal(SIGCONT) }
                let name = "\(geteuid())." + String(repeating: "a", count: 32)
                try write([], to: "\(daemon.pending)/\(name)")
                daemon.process?.signal(SIGCONT)
                try eventually("the pending-logout file is processed") { daemon.loginFiles.isEmpty }
                try eventually("the file is removed") { try pendingFiles(daemon).isEmpty }
                #expect(try daemon.connect().call("GET", "alice", "bob").code == "NOLOGIN")
            }
        }

        @Test func `F46: a hook that times out leaves the pending-logout file and reports it`() throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                try daemon.process?.suspend()
                let hook = try hook(machine, daemon, seconds: 1)
                #expect(hook.status == 5, "\(hook.summary)")
                #expect(hook.errors.contains("left \(daemon.pending)/\(geteuid())."))
                daemon.process?.signal(SIGCONT)
                try eventually("the logout is done") { daemon.loginFiles.isEmpty }
            }
        }

        @Test func `a successful logout leaves no pending-logout file`() throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                for _ in 0..<5 {
                    let hook = try hook(machine, daemon)
                    #expect(hook.status == 0, "\(hook.summary)")
                    #expect(try pendingFiles(daemon) == [])
                    try logInAlice(daemon)
                }
                try daemon.restart()
                #expect(try daemon.connect().call("USERS") == .list("alice"))
            }
        }

        @Test func `a pending-logout file is processed before a login of its uid`() throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                let client = try daemon.connect()
                for index in 0..<20 {
                    let name =
                        "\(geteuid())." + String(repeating: "\(index % 10)", count: 31) + (index < 10 ? "a" : "b")
                    try write([], to: "\(daemon.pending)/\(name)")
                    #expect(try client.call("LOGIN", "alice") == .ok)
                    // Earlier images are removed, and new ones remain.
                    #expect(try client.call("GET", "alice", "bob", "CACHED") == .null)
                    #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                }
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
            }
        }

        /// Changes the pending-logout directory of a stopped daemon, and expects that the next start fails.
        private func expectNoStart(because reason: String, _ change: (Daemon) throws -> Void) throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                try daemon.stop()
                try change(daemon)
                try daemon.launch()
                #expect(try daemon.process?.waitForExit() == 1)
                #expect(daemon.log.contains(reason), "\(daemon.log)")
                #expect(daemon.log.contains("so the daemon does not start"), "\(daemon.log)")
            }
        }

        @Test(arguments: ["mode", "link"])
        func `I4: an untrusted pending-logout directory prevents the start`(problem: String) throws {
            if problem == "mode" {
                try expectNoStart(because: "has mode 777 and gid") { daemon in
                    chmod(daemon.pending, 0o777)
                }
            } else {
                try expectNoStart(because: "is not a directory or is a link to one") { daemon in
                    rename(daemon.pending, "\(daemon.pending)-elsewhere")
                    symlink("\(daemon.pending)-elsewhere", daemon.pending)
                }
            }
        }

        /// Root changes the owner. Other users mount a directory of root in a namespace in which root is not mapped.
        @Test(
            .enabled(
                if: geteuid() == 0 || EndToEnd.Service.StoreFaultTests.canMount, "mount namespaces are not permitted"))
        func `I4: a pending-logout directory of another uid prevents the start`() throws {
            let isRoot = geteuid() == 0
            let owner = isRoot ? "4001" : "65534"
            try expectNoStart(because: "belongs to uid \(owner); it must belong to root") { daemon in
                if isRoot {
                    chown(daemon.pending, 4_001, 4_001)
                } else {
                    let script = "mount --bind /usr/share \"$0\" && exec \"$@\""
                    daemon.wrapper =
                        EndToEnd.Service.StoreFaultTests.mountNamespace + ["sh", "-c", script, daemon.pending]
                }
            }
        }

        @Test func `F24, F26: other files among the pending-logout files are logged once and not opened`() throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                try daemon.stop()
                let digits = String(repeating: "a", count: 32)
                #expect(mkfifo("\(daemon.pending)/\(geteuid()).\(digits)", 0o600) == 0)
                #expect(symlink("/etc/passwd", "\(daemon.pending)/0.\(digits)b") == 0)
                try write([], to: "\(daemon.pending)/notes")
                try daemon.start()
                // Each login scans the directory again.
                let client = try daemon.connect()
                for _ in 0..<2 { #expect(try client.call("LOGIN", "alice") == .ok) }
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                #expect(daemon.log.components(separatedBy: "ignored an invalid entry").count == 4, "\(daemon.log)")
                for name in ["notes", "\(geteuid()).\(digits)", "0.\(digits)b"] {
                    #expect(daemon.log.components(separatedBy: name).count >= 2, "\(name): \(daemon.log)")
                }
            }
        }

        // MARK: purge-on-boot

        @Test(arguments: [true, false])
        func `with purge-on-boot, the first start after a boot logs out all users`(isOn: Bool) throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["sessions", "purge-on-boot"] = .boolean(isOn) }
                try logInAlice(daemon)
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                try daemon.stop()
                daemon.environment["THUMBCACHED_BOOT_ID"] = "05c9fbc800004e11aebf3676ccdeafe4"
                try daemon.start()
                let client = try daemon.connect()
                if isOn {
                    #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                    #expect(daemon.loginFiles.isEmpty)
                    try eventually("no image is left") { daemon.imageFiles.isEmpty }
                } else {
                    #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                }
            }
        }
    }
}

extension Daemon {
    /// The default directory of pending-logout files.
    var pending: String { "\(state)-pending" }
}
