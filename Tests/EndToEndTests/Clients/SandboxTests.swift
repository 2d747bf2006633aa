import Glibc
import Testing

extension EndToEnd.Clients {
    /// Clients in sandboxes and containers, with bubblewrap and the arguments that Flatpak gives it.
    @Suite(.enabled(if: EndToEnd.Service.ResourceTests.canUnshare, "user namespaces are not permitted"))
    struct SandboxTests {
        /// The uid of the clients: not the daemon's, if the tests may choose.
        private static let uid = geteuid() == 0 ? 4_001 : geteuid()

        /// Runs redis-cli in a sandbox.
        /// - Parameter options: bubblewrap's options beyond those of every Flatpak application.
        private func cli(_ machine: Machine, _ options: [String], _ words: [String]) throws -> Finished {
            let sandbox = """
                bwrap --die-with-parent --unshare-user --unshare-pid --unshare-net --unshare-ipc --ro-bind /usr /usr
                --ro-bind /etc /etc --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc
                --dev /dev --tmpfs /tmp --dir /run
                """.split(whereSeparator: \.isWhitespace).map(String.init)
            let command = sandbox + options + ["redis-cli", "-e", "-s", "/run/thumbcached/thumbcached.sock"] + words
            return try machine.run(geteuid() == 0 ? Account(Self.uid).running(command) : command)
        }

        /// A daemon whose socket has a directory of its own, and the permission of Flatpak
        /// (`--filesystem=/run/thumbcached:ro`) as an option of bubblewrap.
        private func daemon(_ machine: Machine) throws -> (Daemon, permission: [String]) {
            let directory = try machine.makeDirectory("run")
            let socket = "\(directory)/thumbcached.sock"
            let daemon = Daemon(machine, "daemon")
            daemon.settings["socket", "path"] = "\(socket)"
            try daemon.launch()
            try eventually("the daemon listens; log:\n\(daemon.log.suffix(2_000))") { (try? RESPClient(socket)) != nil }
            return (daemon, ["--ro-bind", directory, "/run/thumbcached"])
        }

        @Test func `a sandboxed program needs the socket's directory, read-only, and keeps its uid`() throws {
            try withMachine { machine in
                let (daemon, permission) = try daemon(machine)
                let refused = try cli(machine, [], ["PING"])
                #expect(refused.errors.contains("Could not connect"), "\(refused.summary)")
                #expect(try cli(machine, permission, ["LOGIN", "alice"]).text == "OK\n")
                #expect(try cli(machine, permission, ["USERS"]).text == "alice\n")
                #expect(daemon.loginFiles.contains { $0.contains("/\(Self.uid)/") }, "\(daemon.loginFiles)")
                #expect(try daemon.stop() == 0)
            }
        }

        @Test func `F29: root of a container is the uid that the container's root is mapped to`() throws {
            try withMachine { machine in
                let (daemon, permission) = try daemon(machine)
                let container = permission + ["--uid", "0", "--gid", "0"]
                #expect(try cli(machine, container, ["LOGIN", "alice"]).text == "OK\n")
                // The same account as outside of the container.
                #expect(try cli(machine, permission, ["USERS"]).text == "alice\n")
                #expect(daemon.loginFiles.allSatisfy { $0.contains("/\(Self.uid)/") }, "\(daemon.loginFiles)")
                if Self.uid != geteuid() {
                    let denied = try cli(machine, container, ["LOGOUT", "*", "UID", "0"])
                    #expect(denied.errors.hasPrefix("DENIED UID 0: you are uid \(Self.uid)"), "\(denied.summary)")
                }
                #expect(try daemon.stop() == 0)
            }
        }
    }
}
