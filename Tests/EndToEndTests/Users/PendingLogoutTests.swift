import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// Log-out hooks, and daemons that they do not reach.
    struct PendingLogoutTests {
        private static let control = "\(Files.programs)/thumbcachectl"

        /// What a hook runs, and how it ended.
        private func hook(_ machine: Machine, _ daemon: Daemon, uid: uid_t = geteuid(), seconds: Int = 60) throws
            -> Finished
        {
            try machine.run([
                Self.control, "--socket", daemon.socket, "logout", "--all", "--uid", "\(uid)", "--pending",
                daemon.pending, "--timeout", "\(seconds)",
            ])
        }

        /// A daemon with a directory for markers, and alice logged in with a picture.
        private func daemonWithAlice(_ machine: Machine) throws -> Daemon {
            let daemon = Daemon(machine, "daemon")
            try daemon.writeConfiguration()
            guard mkdir(daemon.pending, 0o750) == 0 else { throw Failure(systemCall: "mkdir \(daemon.pending)") }
            try daemon.start()
            try logInAlice(daemon)
            return daemon
        }

        private func logInAlice(_ daemon: Daemon) throws {
            let client = try daemon.connect()
            #expect(try client.call("LOGIN", "alice") == .ok)
            #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
        }

        private func markers(_ daemon: Daemon) throws -> [String] {
            try FileManager.default.contentsOfDirectory(atPath: daemon.pending)
        }

        @Test(arguments: [SIGTERM, SIGKILL])
        func
            `I4, F46: a log-out while the daemon is down is processed before the next start serves the first who calls`(
                signal: CInt
            ) throws
        {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                if signal == SIGKILL { daemon.kill() } else { try daemon.stop() }
                let hook = try hook(machine, daemon)
                #expect(hook.status == 5, "\(hook.everything)")
                #expect(try markers(daemon).count == 1)
                // This call stands in the queue of the socket before the daemon exists.
                let path = machine.path("inherited")
                let listener = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
                defer { close(listener) }
                #expect(withUnixAddress(path) { bind(listener, $0, $1) } == 0)
                #expect(listen(listener, 8) == 0)
                let first = try RESPClient(path)
                try first.send("GET", "alice", "bob")
                daemon.wrapper = ["sh", "-c", "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$0\" \"$@\""]
                try daemon.launch(passing: [listener])
                #expect(try first.receive().code == "NOLOGIN")
                #expect(daemon.loginFiles.isEmpty)
                #expect(try markers(daemon) == [])
                // Logged in again, the user stays so.
                #expect(try first.call("LOGIN", "alice") == .ok)
                try daemon.stop()
                try daemon.launch(passing: [listener])
                let second = try RESPClient(path)
                #expect(try second.call("USERS") == .array([.bulk(Array("alice".utf8))]))
            }
        }

        @Test
        func
            `F46: a daemon that is stopped while the hook waits processes the marker when it goes on, without a restart`()
            throws
        {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                // Another marker than that of the request which the daemon finds in its socket when it goes on.
                try daemon.process?.standStill()
                defer { daemon.process?.signal(SIGCONT) }
                let name = "\(geteuid())." + String(repeating: "a", count: 32)
                try write([], to: "\(daemon.pending)/\(name)")
                daemon.process?.signal(SIGCONT)
                try eventually("the marker is honoured") { daemon.loginFiles.isEmpty }
                try eventually("it is removed") { try markers(daemon).isEmpty }
                #expect(try daemon.connect().call("GET", "alice", "bob").code == "NOLOGIN")
            }
        }

        @Test func `F46: a hook that gives up on a stopped daemon has left the marker, and says so`() throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                try daemon.process?.standStill()
                let hook = try hook(machine, daemon, seconds: 1)
                #expect(hook.status == 5, "\(hook.everything)")
                #expect(hook.errors.contains("left the marker \(daemon.pending)/\(geteuid())."))
                daemon.process?.signal(SIGCONT)
                try eventually("the log-out is done") { daemon.loginFiles.isEmpty }
            }
        }

        @Test func `a log-out that is done leaves no marker, and none is processed against who logs in at once`() throws
        {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                for _ in 0..<5 {
                    let hook = try hook(machine, daemon)
                    #expect(hook.status == 0, "\(hook.everything)")
                    #expect(try markers(daemon) == [])
                    try logInAlice(daemon)
                }
                try daemon.restart()
                #expect(try daemon.connect().call("USERS") == .array([.bulk(Array("alice".utf8))]))
            }
        }

        @Test func `a marker that lies there when its uid logs in is processed first, and never against that log-in`()
            throws
        {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                let client = try daemon.connect()
                for index in 0..<20 {
                    let name =
                        "\(geteuid())." + String(repeating: "\(index % 10)", count: 31) + (index < 10 ? "a" : "b")
                    try write([], to: "\(daemon.pending)/\(name)")
                    #expect(try client.call("LOGIN", "alice") == .ok)
                    // Of another log-in than before: what was put there is gone, what is put now stays.
                    #expect(try client.call("GET", "alice", "bob", "CACHED") == .null)
                    #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                }
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
            }
        }

        /// A daemon that is stopped, and started again with its directory of markers spoilt: it must not serve anybody.
        private func expectNoStart(because reason: String, _ spoil: (Daemon) throws -> Void) throws {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                try daemon.stop()
                try spoil(daemon)
                try daemon.launch()
                #expect(try daemon.process?.waitForEnd() == 1)
                #expect(daemon.log.contains(reason), "\(daemon.log)")
                #expect(daemon.log.contains("nobody is served"), "\(daemon.log)")
            }
        }

        @Test(arguments: ["mode", "link"])
        func `I4: with a directory of markers that is not to be trusted there is no start, and the message says why`(
            trouble: String
        ) throws {
            if trouble == "mode" {
                try expectNoStart(because: "has mode 777 and belongs to gid") { daemon in
                    chmod(daemon.pending, 0o777)
                }
            } else {
                try expectNoStart(because: "is no directory, or a link to one") { daemon in
                    rename(daemon.pending, "\(daemon.pending)-elsewhere")
                    symlink("\(daemon.pending)-elsewhere", daemon.pending)
                }
            }
        }

        /// Root gives it away. For anybody else there is a namespace in which they are root, and what is the real
        /// root's is a stranger's.
        @Test(.enabled(if: geteuid() == 0 || StoreFaultTests.canMount, "no namespace with mounts may be made here"))
        func
            `I4: with a directory of markers that belongs to somebody else there is no start, and the message says so`()
            throws
        {
            let isRoot = geteuid() == 0
            let stranger = isRoot ? "4001" : "65534"
            try expectNoStart(because: "belongs to uid \(stranger); it must belong to root") { daemon in
                if isRoot {
                    chown(daemon.pending, 4_001, 4_001)
                } else {
                    let script = "mount --bind /usr/share \"$0\" && exec \"$@\""
                    daemon.wrapper = StoreFaultTests.mountNamespace + ["sh", "-c", script, daemon.pending]
                }
            }
        }

        @Test func `F24, F26: what lies among the markers and is none is named in the log, once, and is not opened`()
            throws
        {
            try withMachine { machine in
                let daemon = try daemonWithAlice(machine)
                try daemon.stop()
                let digits = String(repeating: "a", count: 32)
                #expect(mkfifo("\(daemon.pending)/\(geteuid()).\(digits)", 0o600) == 0)
                #expect(symlink("/etc/passwd", "\(daemon.pending)/0.\(digits)b") == 0)
                try write([], to: "\(daemon.pending)/notes")
                try daemon.start()
                // Two looks later it is still said once.
                let client = try daemon.connect()
                for _ in 0..<2 { #expect(try client.call("LOGIN", "alice") == .ok) }
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                #expect(daemon.log.components(separatedBy: "is no marker").count == 4, "\(daemon.log)")
                for name in ["notes", "\(geteuid()).\(digits)", "0.\(digits)b"] {
                    #expect(daemon.log.components(separatedBy: name).count >= 2, "\(name): \(daemon.log)")
                }
            }
        }

        // MARK: A boot as everybody's log-out

        @Test(arguments: [true, false])
        func `purge-on-boot: the first start after a boot logs everybody out, if that is configured`(isOn: Bool) throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["sessions", "purge-on-boot"] = .boolean(isOn) }
                try logInAlice(daemon)
                try daemon.restart()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                try daemon.stop()
                daemon.environment["THUMBCACHED_BOOT_ID"] = "05c9fbc800004e11aebf3676ccdeafe4"
                try daemon.start()
                let client = try daemon.connect()
                if isOn {
                    #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                    #expect(daemon.loginFiles.isEmpty)
                    try eventually("nothing is left") { daemon.imageFiles.isEmpty }
                } else {
                    #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                }
            }
        }
    }
}

extension Daemon {
    /// Where hooks leave markers, unless something else is configured.
    var pending: String { "\(state)-pending" }
}
