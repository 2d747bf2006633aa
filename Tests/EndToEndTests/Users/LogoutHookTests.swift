import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The scripts and examples in `config/`, as they are installed: each ends a cache, and says when it could not.
    struct LogoutHookTests {
        @Test(arguments: ["logout.sh", "logout.py", "logout.c"])
        func `I2: an application's own log-out ends the cache, and fails where it has not happened`(
            example: String
        ) throws {
            try withMachine { machine in
                let program = try runnable("application/\(example)", machine)
                let daemon = try machine.daemon()
                let client = try loggedIn(daemon, "alice", "zoë")
                // The environment is how the examples are told about a socket.
                let environment = ["THUMBCACHED_SOCKET": daemon.socket]
                let finished = try machine.run([program, "zoë"], environment: environment)
                #expect(finished.status == 0, "\(finished.everything)")
                #expect(try client.call("GET", "zoë", "bob").code == "NOLOGIN")
                #expect(try client.call("GET", "alice", "bob", "CACHED").bytes == Picture.gif("bob"))

                // A user that is none is refused, and an example that took any answer for a receipt would be found out.
                let refused = try machine.run([program, ""], environment: environment)
                #expect(refused.status != 0)
                #expect((refused.text + refused.errors).contains("ERR"), "\(refused.everything)")
                try daemon.stop()
                let away = try machine.run([program, "alice"], environment: environment)
                #expect(away.status != 0)
                #expect(!(away.text + away.errors).isEmpty)
            }
        }

        @Test func `F46: a display manager's hook ends all caches of the uid, or leaves it to the next start`() throws {
            try withMachine { machine in
                let daemon = try machineWithPending(machine)
                let hook = [
                    "\(Files.repository)/config/hooks/display-manager-logout", daemon.socket, machine.path("pending"),
                ]
                let path = Files.programs + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin")
                let environment = ["USER": try account(machine), "PATH": path]
                let client = try loggedIn(daemon, "alice", "zoë")
                let finished = try machine.run(hook, environment: environment)
                #expect(finished.status == 0, "\(finished.everything)")
                #expect(try client.call("USERS") == .array([]))
                #expect(markers(machine).isEmpty)

                _ = try loggedIn(daemon, "alice")
                daemon.kill()
                let pending = try machine.run(hook, environment: environment)
                #expect(pending.status == 5, "\(pending.everything)")
                #expect(markers(machine).count == 1)
                try daemon.start()
                #expect(try daemon.connect().call("GET", "alice", "bob").code == "NOLOGIN")
                #expect(daemon.loginFiles.isEmpty)
            }
        }

        @Test
        func `F45: with pam_exec the last of several sessions ends the caches, and one that was killed does not count`()
            throws
        {
            try withMachine { machine in
                let daemon = try machineWithPending(machine)
                let client = try loggedIn(daemon, "alice")
                // Each shell is what sshd or login is to PAM: it opens a session, and closes it unless it is killed.
                // (They go on behind the hook: a shell becomes what it runs last.)
                let first = try session(
                    daemon,
                    """
                    PAM_TYPE=open_session hook || exit 10
                    sh -c 'PAM_TYPE=open_session hook && PAM_TYPE=close_session hook; exit $?' || exit 11
                    sh -c 'PAM_TYPE=open_session hook; kill -9 $$'
                    test "$(users)" = alice || exit 12
                    PAM_TYPE=close_session hook || exit 13
                    test -z "$(users)"
                    """)
                #expect(first.status == 0, "\(first.everything)")
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                #expect(markers(machine).isEmpty)

                // Two sessions of one process: it has to close both.
                _ = try loggedIn(daemon, "alice")
                let second = try session(
                    daemon,
                    """
                    PAM_TYPE=open_session hook && PAM_TYPE=open_session hook || exit 10
                    PAM_TYPE=close_session hook || exit 11
                    test "$(users)" = alice || exit 12
                    PAM_TYPE=close_session hook || exit 13
                    test -z "$(users)"
                    """)
                #expect(second.status == 0, "\(second.everything)")
            }
        }

        @Test func `F46: a daemon that does not answer holds up no PAM session; it logs out when it goes on`() throws {
            try withMachine { machine in
                let daemon = try machineWithPending(machine)
                let client = try loggedIn(daemon, "alice")
                try daemon.process?.standStill()
                defer { daemon.process?.signal(SIGCONT) }
                // Without a bound of its own it would not come back before this test loses its longestWait.
                let held = try session(daemon, "PAM_TYPE=open_session hook; PAM_TYPE=close_session hook; exit $?")
                #expect(held.status == 1, "\(held.everything)")
                #expect(held.errors.contains("not ended yet"))
                #expect(markers(machine).count == 1)
                daemon.process?.signal(SIGCONT)
                try eventually("the log-out has been done") {
                    try client.call("GET", "alice", "bob").code == "NOLOGIN"
                }
                #expect(daemon.loginFiles.isEmpty)
            }
        }

        @Test func `F45: where sessions cannot be counted, the end of any ends the caches, and the hook says so`()
            throws
        {
            try withMachine { machine in
                let daemon = try machineWithPending(machine)
                let client = try loggedIn(daemon, "alice")
                // A file where the directory should be: not even root can make that.
                try write("in the way", to: machine.path("sessions"))
                let opened = try session(daemon, "PAM_TYPE=open_session hook; exit $?")
                #expect(opened.status == 1, "\(opened.everything)")
                #expect(try client.call("USERS") == .array([.bulk(Array("alice".utf8))]))
                let closed = try session(daemon, "PAM_TYPE=close_session hook; exit $?")
                #expect(closed.status == 0, "\(closed.everything)")
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                for finished in [opened, closed] {
                    #expect(finished.errors.contains("cannot be counted"), "\(finished.everything)")
                    #expect(finished.errors.contains(machine.path("sessions")), "\(finished.everything)")
                }
            }
        }

        @Test func `a PAM hook that is called in a way it cannot work says so`() throws {
            try withMachine { machine in
                let daemon = try machineWithPending(machine)
                for (script, problem) in [
                    ("PAM_TYPE=auth hook; exit $?", "PAM_TYPE is 'auth'"),
                    ("PAM_USER=no-such-user PAM_TYPE=open_session hook; exit $?", "'no-such-user'"),
                    ("PAM_TYPE=open_session hook --sockets x; exit $?", "--sockets is no option"),
                ] {
                    let finished = try session(daemon, script)
                    #expect(finished.status == 2, "\(finished.everything)")
                    #expect(finished.errors.contains(problem), "\(finished.everything)")
                }
            }
        }

        // MARK: What the tests share.

        /// A daemon that looks for markers in a directory of the test's.
        private func machineWithPending(_ machine: Machine) throws -> Daemon {
            let pending = try machine.makeDirectory("pending")
            chmod(pending, 0o755)
            return try machine.daemon { $0.settings["sessions", "pending-logouts"] = "\(pending)" }
        }

        private func markers(_ machine: Machine) -> [String] { Files.under(machine.path("pending")) }

        private func loggedIn(_ daemon: Daemon, _ users: String...) throws -> RESPClient {
            let client = try daemon.connect()
            for user in users {
                #expect(try client.call("LOGIN", user) == .ok)
                #expect(try client.call("PUT", user, "bob", Picture.gif("bob")) == .ok)
            }
            return client
        }

        /// The account that runs the test.
        private func account(_ machine: Machine) throws -> String {
            try machine.run(["id", "-un"]).text.trimmingCharacters(in: .newlines)
        }

        /// Runs a script in which `hook` is the PAM hook, as pam_exec calls it, and `users` names who is logged in. The
        /// shells that the script starts know both.
        private func session(_ daemon: Daemon, _ script: String) throws -> Finished {
            let machine = daemon.machine
            let bin = try machine.makeDirectory("bin-\(machine.takeNumber())")
            // "exec", since a process between the session and the hook would be taken for the session.
            let options =
                "--socket \(daemon.socket) --pending \(machine.path("pending")) --sessions \(machine.path("sessions")) "
                + "--program \(Files.programs)/thumbcachectl"
            try write(
                "#!/bin/sh\nexec \(Files.repository)/config/hooks/pam-session \(options) \"$@\"\n", to: "\(bin)/hook")
            try write(
                "#!/bin/sh\nexec \(Files.programs)/thumbcachectl --socket \(daemon.socket) users\n", to: "\(bin)/users")
            for name in ["hook", "users"] { Files.makeExecutable("\(bin)/\(name)") }
            let path = bin + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin")
            return try machine.run(
                ["sh", "-c", script], environment: ["PATH": path, "PAM_USER": try account(machine)])
        }

        /// An example as it is run: a program is built first.
        private func runnable(_ example: String, _ machine: Machine) throws -> String {
            let source = "\(Files.repository)/config/\(example)"
            guard source.hasSuffix(".c") else { return source }
            let program = machine.path("example")
            let built = try machine.run(["clang", "-Wall", "-Wextra", "-Werror", "-o", program, source])
            #expect(built.status == 0, "\(built.everything)")
            return program
        }
    }
}
