import Foundation
import Glibc
import Testing

extension EndToEnd.Users {
    /// The logout scripts and examples in `config/`.
    struct LogoutHookTests {
        @Test(arguments: ["logout.sh", "logout.py", "logout.c"])
        func `I2: the examples for applications log a user out or report a failure`(
            example: String
        ) throws {
            try withMachine { machine in
                let program = try runnable("application/\(example)", machine)
                let daemon = try machine.daemon()
                let client = try loggedIn(daemon, "alice", "zoë")
                // The examples read the socket from the environment.
                let environment = ["THUMBCACHED_SOCKET": daemon.socket]
                try machine.runSuccessfully([program, "zoë"], environment: environment)
                #expect(try client.call("GET", "zoë", "bob").code == "NOLOGIN")
                #expect(try client.call("GET", "alice", "bob", "CACHED").bytes == TestImage.gif("bob"))

                // An invalid user. Detects an example that accepts any reply as a receipt.
                let rejected = try machine.run([program, ""], environment: environment)
                #expect(rejected.status != 0)
                #expect((rejected.text + rejected.errors).contains("ERR"), "\(rejected.summary)")
                try daemon.stop()
                let failed = try machine.run([program, "alice"], environment: environment)
                #expect(failed.status != 0)
                #expect(!(failed.text + failed.errors).isEmpty)
            }
        }

        @Test func `F46: a display manager's hook logs out all users, at the next start if necessary`() throws {
            try withMachine { machine in
                let daemon = try daemonWithPending(machine)
                let hook = [
                    "\(Files.repository)/config/hooks/display-manager-logout", daemon.socket, machine.path("pending"),
                ]
                let path = Files.programs + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin")
                let environment = ["USER": try account(machine), "PATH": path]
                let client = try loggedIn(daemon, "alice", "zoë")
                try machine.runSuccessfully(hook, environment: environment)
                #expect(try client.call("USERS") == .array([]))
                #expect(pendingFiles(machine).isEmpty)

                _ = try loggedIn(daemon, "alice")
                daemon.kill()
                let pending = try machine.run(hook, environment: environment)
                #expect(pending.status == 5, "\(pending.summary)")
                #expect(pendingFiles(machine).count == 1)
                try daemon.start()
                #expect(try daemon.connect().call("GET", "alice", "bob").code == "NOLOGIN")
                #expect(daemon.loginFiles.isEmpty)
            }
        }

        @Test func `F45: with pam_exec, the end of the last session logs out; killed sessions do not count`() throws {
            try withMachine { machine in
                let daemon = try daemonWithPending(machine)
                let client = try loggedIn(daemon, "alice")
                // Each shell opens and closes a session, like sshd or login. One is killed before the close.
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
                #expect(first.status == 0, "\(first.summary)")
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                #expect(pendingFiles(machine).isEmpty)

                // Two sessions of one process.
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
                #expect(second.status == 0, "\(second.summary)")
            }
        }

        @Test func `F46: a stopped daemon does not block a PAM session, and logs out when it continues`() throws {
            try withMachine { machine in
                let daemon = try daemonWithPending(machine)
                let client = try loggedIn(daemon, "alice")
                try daemon.process?.suspend()
                defer { daemon.process?.signal(SIGCONT) }
                // Without a timeout of the hook, this call would exceed longestWait.
                let delayed = try session(daemon, "PAM_TYPE=open_session hook; PAM_TYPE=close_session hook; exit $?")
                #expect(delayed.status == 1, "\(delayed.summary)")
                #expect(delayed.errors.contains("is pending"))
                #expect(pendingFiles(machine).count == 1)
                daemon.process?.signal(SIGCONT)
                try eventually("the logout is done") {
                    try client.call("GET", "alice", "bob").code == "NOLOGIN"
                }
                #expect(daemon.loginFiles.isEmpty)
            }
        }

        @Test func `F45: if sessions cannot be counted, the end of any session logs out`() throws {
            try withMachine { machine in
                let daemon = try daemonWithPending(machine)
                let client = try loggedIn(daemon, "alice")
                // A file at the path of the directory, so that even root cannot create it.
                try write("not a directory", to: machine.path("sessions"))
                let opened = try session(daemon, "PAM_TYPE=open_session hook; exit $?")
                #expect(opened.status == 1, "\(opened.summary)")
                #expect(try client.call("USERS") == .list("alice"))
                let closed = try session(daemon, "PAM_TYPE=close_session hook; exit $?")
                #expect(closed.status == 0, "\(closed.summary)")
                #expect(try client.call("GET", "alice", "bob").code == "NOLOGIN")
                for finished in [opened, closed] {
                    #expect(finished.errors.contains("cannot count"), "\(finished.summary)")
                    #expect(finished.errors.contains(machine.path("sessions")), "\(finished.summary)")
                }
            }
        }

        @Test func `the PAM hook reports invalid usage`() throws {
            try withMachine { machine in
                let daemon = try daemonWithPending(machine)
                for (script, problem) in [
                    ("PAM_TYPE=auth hook; exit $?", "PAM_TYPE is 'auth'"),
                    ("PAM_USER=no-such-user PAM_TYPE=open_session hook; exit $?", "'no-such-user'"),
                    ("PAM_TYPE=open_session hook --sockets x; exit $?", "unknown option --sockets"),
                ] {
                    let finished = try session(daemon, script)
                    #expect(finished.status == 2, "\(finished.summary)")
                    #expect(finished.errors.contains(problem), "\(finished.summary)")
                }
            }
        }

        // MARK: Helper functions

        /// Starts a daemon with a directory of pending-logout files in the test's directory.
        private func daemonWithPending(_ machine: Machine) throws -> Daemon {
            let pending = try machine.makeDirectory("pending")
            chmod(pending, 0o755)
            return try machine.daemon { $0.settings["sessions", "pending-logouts"] = "\(pending)" }
        }

        private func pendingFiles(_ machine: Machine) -> [String] { Files.under(machine.path("pending")) }

        private func loggedIn(_ daemon: Daemon, _ users: String...) throws -> RESPClient {
            let client = try daemon.connect()
            for user in users {
                #expect(try client.call("LOGIN", user) == .ok)
                #expect(try client.call("PUT", user, "bob", TestImage.gif("bob")) == .ok)
            }
            return client
        }

        /// The user that runs the test.
        private func account(_ machine: Machine) throws -> String {
            try machine.run(["id", "-un"]).text.trimmingCharacters(in: .newlines)
        }

        /// Runs a script in which `hook` runs the PAM hook like pam_exec, and `users` lists the logged-in users.
        /// Both are on PATH.
        private func session(_ daemon: Daemon, _ script: String) throws -> Finished {
            let machine = daemon.machine
            let bin = try machine.makeDirectory("bin-\(machine.nextNumber())")
            // With `exec`, because the hook takes its parent process for the session.
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

        /// Returns the path of an example; compiles it if it is in C.
        private func runnable(_ example: String, _ machine: Machine) throws -> String {
            let source = "\(Files.repository)/config/\(example)"
            guard source.hasSuffix(".c") else { return source }
            let program = machine.path("example")
            try machine.runSuccessfully(["clang", "-Wall", "-Wextra", "-Werror", "-o", program, source])
            return program
        }
    }
}
