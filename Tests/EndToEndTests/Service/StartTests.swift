import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// Starts with existing files, second daemons and invalid configurations.
    struct StartTests {
        /// Starts a daemon that must exit with an error, and returns its log.
        private func failedStart(_ daemon: Daemon) throws -> String {
            try daemon.launch()
            let status = try #require(daemon.process).waitForExit()
            #expect(status != 0 && status < 128, "status \(status): \(daemon.log)")
            return daemon.log
        }

        // MARK: One daemon per store

        /// The directory that two daemons share.
        enum Shared: String, CaseIterable, Sendable {
            case cache, state
        }

        @Test(arguments: Shared.allCases)
        func `F44, F60: a second daemon on the same cache or state directory exits and names the directory`(
            shared: Shared
        ) throws {
            try withMachine { machine in
                let first = try machine.daemon("first")
                let client = try first.connect(loggedInAs: "alice")
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                let second = Daemon(machine, "second")
                second.settings["storage", shared.rawValue] =
                    .string(shared == .cache ? first.cache : first.state)
                let log = try failedStart(second)
                #expect(log.contains(shared == .cache ? first.cache : first.state), "\(log)")
                #expect(!Files.exists(second.socket))
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
                // The directory is free after the first daemon has stopped.
                try first.stop()
                try second.start()
                #expect(try second.connect().call("PING") == .simple("PONG"))
            }
        }

        @Test func `F44: a second daemon with the same configuration does not remove the first one's socket`() throws {
            try withMachine { machine in
                let first = try machine.daemon("first")
                let second = Daemon(machine, "second")
                second.settings = first.settings
                _ = try failedStart(second)
                _ = try first.connect(loggedInAs: "alice")
            }
        }

        // MARK: The socket's path

        @Test func `F49: the socket file of a killed daemon is replaced`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                daemon.kill()
                #expect(try Files.kind(of: daemon.socket) == S_IFSOCK)
                try daemon.start()
                try daemon.stop()
                #expect(!Files.exists(daemon.socket))
            }
        }

        @Test func `F49: a regular file at the socket path is kept and prevents the start`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                try daemon.writeConfiguration()
                try write("precious", to: daemon.socket)
                #expect(try failedStart(daemon).contains(daemon.socket))
                #expect(try read(daemon.socket) == Array("precious".utf8))
            }
        }

        @Test func `F49: a socket of another running program is not replaced`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                try daemon.writeConfiguration()
                let other = try listenUnix(daemon.socket)
                defer { close(other) }
                #expect(try failedStart(daemon).contains(daemon.socket))
                _ = try RESPClient(daemon.socket)
            }
        }

        @Test func `F49: a stop does not remove a socket file that was replaced`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                unlink(daemon.socket)
                try write("replaced", to: daemon.socket)
                #expect(try daemon.stop() == 0)
                #expect(try read(daemon.socket) == Array("replaced".utf8))
            }
        }

        @Test(arguments: [
            ("/proc/socket", "/proc/socket"), ("/etc/passwd/socket", "/etc/passwd"),
            ("/tmp/" + String(repeating: "long", count: 30), "socket.path"),
        ])
        func `F49: an invalid socket path prevents the start with an error that names it`(
            path: String, name: String
        ) throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                daemon.settings["socket", "path"] = .string(path)
                let log = try failedStart(daemon)
                #expect(log.contains(name), "\(log)")
            }
        }

        @Test func `F49: without permission to create the socket, the error names its path`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let closed = try machine.makeDirectory("closed")
                daemon.settings["socket", "path"] = "\(closed)/socket"
                try daemon.writeConfiguration()
                try write("", to: daemon.logFile)
                chmod(closed, 0o555)
                // Permissions do not bind root.
                if geteuid() == 0 {
                    for directory in [daemon.cache, daemon.state, daemon.runtime] { chown(directory, 4_001, 4_001) }
                    chmod(daemon.configuration, 0o644)
                    daemon.wrapper = Account(4_001).running([])
                    let mayRun = try machine.run(daemon.wrapper + [Daemon.program, "--version"]).status == 0
                    try #require(mayRun, "other uids may not run the programs")
                }
                let log = try failedStart(daemon)
                #expect(log.contains("\(closed)/socket") && log.contains("Permission denied"), "\(log)")
            }
        }

        @Test func `the socket has the configured mode`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["socket", "mode"] = "0640" }
                let attributes = try FileManager.default.attributesOfItem(atPath: daemon.socket)
                #expect(attributes[.posixPermissions] as? Int == 0o640)
            }
        }

        // MARK: The configuration

        /// An invalid configuration, and texts that the error message must contain.
        static let badConfigurations: [(String, [String])] = [
            ("thread = 1", ["thread"]),
            ("threads = \"two\"", ["threads"]),
            ("threads = 0", ["threads"]),
            ("[socket]\npath = 7", ["socket.path"]),
            ("[socket]\nmode = \"0999\"", ["socket.mode", "0999"]),
            ("[storage]\nquota = \"1 gigabyte\"", ["storage.quota", "1 gigabyte"]),
            ("[storage]\nquota = \"-1MiB\"", ["storage.quota", "-1MiB"]),
            ("[storage]\nkeys = \"cloud\"", ["storage.keys", "cloud"]),
            ("[storage]\ncolour = \"red\"", ["storage.colour"]),
            ("[memory]\ntier = true", ["memory.tier"]),
            ("[origins.default]\nurl = \"ftp://example.org/{profile}\"", ["origins.default", "url", "http"]),
            ("[origins.default]\nurl = \"https://{profile}.example.org/\"", ["origins.default", "url"]),
            ("[origins.default]\nurl = \"https://example.org/{nobody}\"", ["origins.default", "url", "nobody"]),
            (
                "[origins.default]\nurl = \"https://example.org/{profile}\"\ntimeout = \"4 parsecs\"",
                ["timeout", "4 parsecs"]
            ),
            ("[origins.default]\nurl = \"https://example.org/{profile}\"\nallow = \"https://example.org\"", ["allow"]),
            ("[origins.default]\nurl = \"https://example.org/{profile}\"\nretries = 3", ["origins.default.retries"]),
            ("[limits]\nid = 100000", ["limits.id", "100000"]),
            ("[limits]\nimage = \"0\"", ["limits.image"]),
            ("[log]\nlevel = \"loud\"", ["log.level", "loud"]),
            ("[access]\nadmins = [\"nobody-by-that-name\"]", ["access.admins", "nobody-by-that-name"]),
            ("[socket\npath = \"x\"", ["bad.toml:1"]),
            ("threads = 1\nthreads = 2", ["threads"]),
            ("\n\n[log]\nlevel = ", ["bad.toml:4"]),
            ("[metrics]\nlisten = \"127.0.0.1:9187\"", ["metrics", "unknown key"]),
        ]

        @Test(arguments: badConfigurations)
        func `F50: start and --check-config reject an invalid configuration and name the key or the line`(
            text: String, names: [String]
        ) throws {
            try withMachine { machine in
                let file = machine.path("bad.toml")
                try write(text + "\n", to: file)
                for arguments in [["--check-config"], []] {
                    let finished = try machine.run([Daemon.program, "--config", file] + arguments)
                    #expect(finished.status != 0 && finished.status < 128, "\(finished.summary)")
                    for name in names { #expect(finished.errors.contains(name), "\(finished.summary)") }
                    #expect(finished.errors.contains(file), "\(finished.summary)")
                }
            }
        }

        @Test func `F50: --check-config rejects unreadable files and accepts valid ones`() throws {
            try withMachine { machine in
                for path in [machine.path("absent.toml"), machine.directory] {
                    let finished = try machine.run([Daemon.program, "--check-config", "--config", path])
                    #expect(finished.status != 0 && finished.errors.contains(path), "\(finished.summary)")
                }
                let example = "\(Files.repository)/config/thumbcached.toml"
                try machine.runSuccessfully([Daemon.program, "--check-config", "--config", example])
                let empty = machine.path("empty.toml")
                try write("", to: empty)
                // Without the environment that the systemd unit sets.
                let bare = try machine.runSuccessfully([
                    "env", "-i", Daemon.program, "--check-config", "--config", empty,
                ])
                #expect(bare.text.hasPrefix("\(empty): valid"), "\(bare.summary)")
                try write("[storage]\nkeys = \"runtime\"\n", to: empty)
                try machine.runSuccessfully(["env", "-i", Daemon.program, "--check-config", "--config", empty])
            }
        }

        @Test func `F50: each configuration error is a journal line of priority 3`() throws {
            try withMachine { machine in
                let file = machine.path("bad.toml")
                try write("thread = 1\nsockets = 2\n", to: file)
                // systemd sets JOURNAL_STREAM to device and inode of standard error if that is the journal.
                let script = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$@\""
                let words = ["sh", "-c", script, "sh", Daemon.program, "--check-config", "--config", file]
                let finished = try machine.run(words)
                #expect(finished.status == 1)
                let lines = finished.errors.split(separator: "\n")
                #expect(lines.count == 2 && lines.allSatisfy { $0.hasPrefix("<3>") }, "\(finished.summary)")
                // Without the journal, there is no priority.
                let other = try machine.run(["env", "JOURNAL_STREAM=1:2"] + words.dropFirst(4))
                #expect(other.status == 1 && !other.errors.contains("<3>"), "\(other.summary)")
            }
        }

        @Test func `F50: a reload applies new limits and origins, and keeps old ones if the file is invalid`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin.images { TestImage.gif($0.path) }
                defer { origin.end() }
                let notify = try NotifySocket(machine)
                let daemon = try machine.daemon { daemon in
                    daemon.environment["NOTIFY_SOCKET"] = notify.path
                    daemon.settings.setOrigin("\(origin.url)/one/{profile}")
                    daemon.settings["limits", "image"] = "1KiB"
                }
                try notify.wait(for: "READY=1")
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("GET", "alice", "bob") == .bulk(TestImage.gif("/one/bob")))
                #expect(try client.call("PUT", "alice", "big", TestImage.gif("big", size: 2_000)).code == "TOOLARGE")

                daemon.settings.setOrigin("\(origin.url)/two/{profile}")
                daemon.settings["limits", "image"] = "4KiB"
                try daemon.writeConfiguration()
                try daemon.reload(notify)
                // Connections keep their limits, and the oversized request has closed the first connection.
                let fresh = try daemon.connect()
                #expect(try fresh.call("GET", "alice", "carol") == .bulk(TestImage.gif("/two/carol")))
                #expect(try fresh.call("PUT", "alice", "big", TestImage.gif("big", size: 2_000)) == .ok)

                try write("[limits]\nimages = \"4KiB\"\n", to: daemon.configuration)
                try daemon.reload(notify)
                #expect(daemon.log.contains("limits.images"), "\(daemon.log)")
                #expect(try fresh.call("GET", "alice", "dave") == .bulk(TestImage.gif("/two/dave")))
                #expect(try fresh.call("PUT", "alice", "big", TestImage.gif("big", size: 3_000)) == .ok)
            }
        }

        @Test func `F50: suspicious settings cause warnings by --check-config, at the start and at a reload`() throws {
            try withMachine { machine in
                let notify = try NotifySocket(machine)
                let daemon = try machine.daemon { daemon in
                    daemon.environment["NOTIFY_SOCKET"] = notify.path
                    daemon.settings["origins.default", "url"] = .string("https://a.example/me.png")
                }
                try notify.wait(for: "READY=1")
                #expect(daemon.log.contains("file=\(daemon.configuration)"), "\(daemon.log)")
                #expect(daemon.log.contains("key=origins.default.url"), "\(daemon.log)")

                daemon.settings["origins.default", "url"] = .string("http://localhost/{profile}")
                try daemon.writeConfiguration()
                try daemon.reload(notify)
                #expect(daemon.log.contains("localhost is a loopback address"), "\(daemon.log)")
                #expect(try daemon.connect().call("PING") == .simple("PONG"))

                let check = try machine.run([Daemon.program, "--check-config", "--config", daemon.configuration])
                #expect(check.status == 0 && check.text.hasPrefix("\(daemon.configuration): valid"))
                #expect(check.text.contains("\nwarning: origins.default.url: localhost is"), "\(check.summary)")
            }
        }

        @Test func `images are counted after a start, also those of users without any`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                for user in ["alice", "eve"] { #expect(try client.call("LOGIN", user) == .ok) }
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                try daemon.restart()
                let later = try daemon.connect()
                for (user, images) in [("alice", 1), ("eve", 0)] {
                    try eventually("\(user)'s images are counted") {
                        try later.call("STAT", user)["images"] == .integer(Int64(images))
                    }
                }
            }
        }

        @Test func `F51: a names.key of the wrong size prevents the start until it is restored`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
                try daemon.stop()
                let path = "\(daemon.state)/names.key"
                let good = try read(path)
                try write(Array(good.dropLast()), to: path)
                let log = try failedStart(daemon)
                #expect(log.contains("names.key"), "\(log)")
                try write(good, to: path)
                try daemon.start()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(TestImage.gif("bob")))
            }
        }

        @Test func `a store of a newer format prevents the start`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                _ = try daemon.connect(loggedInAs: "alice")
                try daemon.stop()
                let version = try readText("\(daemon.cache)/VERSION")
                try write(version.replacing("1", with: "999"), to: "\(daemon.cache)/VERSION")
                #expect(try failedStart(daemon).contains("999"))
                try write(version, to: "\(daemon.cache)/VERSION")
                try daemon.start()
                #expect(try daemon.connect().call("USERS") == .list("alice"))
            }
        }
    }
}
