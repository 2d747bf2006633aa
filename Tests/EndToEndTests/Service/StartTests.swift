import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// Starting: on what is there already, and on what cannot be.
    struct StartTests {
        /// Starts a daemon that must refuse, and gives what it said.
        private func refusal(_ daemon: Daemon) throws -> String {
            try daemon.launch()
            let status = try #require(daemon.process).waitForEnd()
            #expect(status != 0 && status < 128, "it ended with \(status): \(daemon.log)")
            return daemon.log
        }

        // MARK: One daemon per store

        /// What two daemons share.
        enum Shared: String, CaseIterable, Sendable {
            case cache, state
        }

        @Test(arguments: Shared.allCases)
        func `F44, F60: a second daemon on the cache or the state directory of another one exits and says why`(
            shared: Shared
        ) throws {
            try withMachine { machine in
                let first = try machine.daemon("first")
                let client = try first.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                let second = Daemon(machine, "second")
                second.settings["storage", shared.rawValue] =
                    .string(shared == .cache ? first.cache : first.state)
                let words = try refusal(second)
                #expect(words.contains(shared == .cache ? first.cache : first.state), "\(words)")
                #expect(!Files.exists(second.socket))
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
                // When the first is gone, the second can have it.
                try first.stop()
                try second.start()
                #expect(try second.connect().call("PING") == .simple("PONG"))
            }
        }

        @Test func `F44: a second daemon with the same configuration leaves the first its socket`() throws {
            try withMachine { machine in
                let first = try machine.daemon("first")
                let second = Daemon(machine, "second")
                second.settings = first.settings
                _ = try refusal(second)
                #expect(try first.connect().call("LOGIN", "alice") == .ok)
            }
        }

        // MARK: The socket's path

        @Test func `F49: a socket file that a killed daemon left is taken over`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                daemon.kill()
                #expect(try Files.kind(of: daemon.socket) == S_IFSOCK)
                try daemon.start()
                try daemon.stop()
                #expect(!Files.exists(daemon.socket))
            }
        }

        @Test func `F49: a file in place of the socket stays, and the daemon says why it does not start`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                try daemon.writeConfiguration()
                try write("precious", to: daemon.socket)
                #expect(try refusal(daemon).contains(daemon.socket))
                #expect(try read(daemon.socket) == Array("precious".utf8))
            }
        }

        @Test func `F49: a socket that another program listens on stays its own`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                try daemon.writeConfiguration()
                let other = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
                defer { close(other) }
                #expect(withUnixAddress(daemon.socket) { bind(other, $0, $1) } == 0)
                #expect(listen(other, 8) == 0)
                #expect(try refusal(daemon).contains(daemon.socket))
                let probe = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue), 0)
                defer { close(probe) }
                #expect(connectUnix(probe, daemon.socket) == 0)
            }
        }

        @Test func `F49: a daemon that ends removes only its own socket file`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                unlink(daemon.socket)
                try write("another's by now", to: daemon.socket)
                #expect(try daemon.stop() == 0)
                #expect(try read(daemon.socket) == Array("another's by now".utf8))
            }
        }

        @Test(arguments: [
            ("/proc/socket", "/proc/socket"), ("/etc/passwd/socket", "/etc/passwd"),
            ("/tmp/" + String(repeating: "long", count: 30), "socket.path"),
        ])
        func `F49: a socket path that is too long, or where none can be, is an error that says so`(
            path: String, name: String
        ) throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                daemon.settings["socket", "path"] = .string(path)
                let words = try refusal(daemon)
                #expect(words.contains(name), "\(words)")
            }
        }

        @Test func `F49: without permission to make the socket, the error names its path`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                let closed = try machine.makeDirectory("closed")
                daemon.settings["socket", "path"] = "\(closed)/socket"
                try daemon.writeConfiguration()
                try write("", to: daemon.logFile)
                chmod(closed, 0o555)
                // Nothing is closed to root.
                if geteuid() == 0 {
                    for directory in [daemon.cache, daemon.state, daemon.runtime] { chown(directory, 4_001, 4_001) }
                    chmod(daemon.configuration, 0o644)
                    daemon.wrapper = Account(4_001).running([])
                    let mayRun = try machine.run(daemon.wrapper + [Daemon.program, "--version"]).status == 0
                    try #require(mayRun, "the programs lie where another uid may not read them")
                }
                let words = try refusal(daemon)
                #expect(words.contains("\(closed)/socket") && words.contains("Permission denied"), "\(words)")
            }
        }

        @Test func `the socket has the mode that is configured`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["socket", "mode"] = "0640" }
                let attributes = try FileManager.default.attributesOfItem(atPath: daemon.socket)
                #expect(attributes[.posixPermissions] as? Int == 0o640)
            }
        }

        // MARK: The configuration

        /// What is wrong, and what the message must name.
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
        func `F50: a bad configuration is refused, by --check-config too, and the message names the key or the line`(
            text: String, names: [String]
        ) throws {
            try withMachine { machine in
                let file = machine.path("bad.toml")
                try write(text + "\n", to: file)
                for arguments in [["--check-config"], []] {
                    let finished = try machine.run([Daemon.program, "--config", file] + arguments)
                    #expect(finished.status != 0 && finished.status < 128, "\(finished.everything)")
                    for name in names { #expect(finished.errors.contains(name), "\(finished.everything)") }
                    #expect(finished.errors.contains(file), "\(finished.everything)")
                }
            }
        }

        @Test func `F50: a configuration that cannot be read is refused; a good one is not`() throws {
            try withMachine { machine in
                for path in [machine.path("absent.toml"), machine.directory] {
                    let finished = try machine.run([Daemon.program, "--check-config", "--config", path])
                    #expect(finished.status != 0 && finished.errors.contains(path), "\(finished.everything)")
                }
                let example = "\(Files.repository)/config/thumbcached.toml"
                let finished = try machine.run([Daemon.program, "--check-config", "--config", example])
                #expect(finished.status == 0, "\(finished.everything)")
                let empty = machine.path("empty.toml")
                try write("", to: empty)
                // Where the service keeps things is its unit's to say, and nothing that the caller has to know.
                let bare = try machine.run(["env", "-i", Daemon.program, "--check-config", "--config", empty])
                #expect(bare.status == 0, "\(bare.everything)")
                #expect(bare.text.hasPrefix("\(empty) is good"), "\(bare.everything)")
                try write("[storage]\nkeys = \"runtime\"\n", to: empty)
                let keys = try machine.run(["env", "-i", Daemon.program, "--check-config", "--config", empty])
                #expect(keys.status == 0, "\(keys.everything)")
            }
        }

        @Test func `F50: to the journal each line of what is wrong with a configuration is an error`() throws {
            try withMachine { machine in
                let file = machine.path("bad.toml")
                try write("thread = 1\nsockets = 2\n", to: file)
                // What systemd sets where standard error is the journal's: its device and inode.
                let script = "JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec \"$@\""
                let words = ["sh", "-c", script, "sh", Daemon.program, "--check-config", "--config", file]
                let finished = try machine.run(words)
                #expect(finished.status == 1)
                let lines = finished.errors.split(separator: "\n")
                #expect(lines.count == 2 && lines.allSatisfy { $0.hasPrefix("<3>") }, "\(finished.everything)")
                // Elsewhere they are plain.
                let other = try machine.run(["env", "JOURNAL_STREAM=1:2"] + words.dropFirst(4))
                #expect(other.status == 1 && !other.errors.contains("<3>"), "\(other.everything)")
            }
        }

        @Test
        func `F50: a reload takes up new limits and origins; a bad file is named, and the old one stays in force`()
            throws
        {
            try withMachine { machine in
                let origin = try GatedOrigin.images { Picture.gif($0.path) }
                defer { origin.end() }
                let notify = try NotifySocket(machine)
                let daemon = try machine.daemon { daemon in
                    daemon.environment["NOTIFY_SOCKET"] = notify.path
                    daemon.settings.setOrigin("\(origin.url)/one/{profile}")
                    daemon.settings["limits", "image"] = "1KiB"
                }
                try notify.wait(for: "READY=1")
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("GET", "alice", "bob") == .bulk(Picture.gif("/one/bob")))
                #expect(try client.call("PUT", "alice", "big", Picture.gif("big", size: 2_000)).code == "TOOLARGE")

                daemon.settings.setOrigin("\(origin.url)/two/{profile}")
                daemon.settings["limits", "image"] = "4KiB"
                try daemon.writeConfiguration()
                daemon.process?.signal(SIGHUP)
                try notify.wait(for: "RELOADING=1")
                try notify.wait(for: "READY=1")
                // A connection keeps the limits that it began with; and the frame over them has closed the first.
                let fresh = try daemon.connect()
                #expect(try fresh.call("GET", "alice", "carol") == .bulk(Picture.gif("/two/carol")))
                #expect(try fresh.call("PUT", "alice", "big", Picture.gif("big", size: 2_000)) == .ok)

                try write("[limits]\nimages = \"4KiB\"\n", to: daemon.configuration)
                daemon.process?.signal(SIGHUP)
                try notify.wait(for: "RELOADING=1")
                try notify.wait(for: "READY=1")
                #expect(daemon.log.contains("limits.images"), "\(daemon.log)")
                #expect(try fresh.call("GET", "alice", "dave") == .bulk(Picture.gif("/two/dave")))
                #expect(try fresh.call("PUT", "alice", "big", Picture.gif("big", size: 3_000)) == .ok)
            }
        }

        @Test
        func `F50: what is hardly meant is told by --check-config, at the start and at a reload, and keeps nobody out`()
            throws
        {
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
                daemon.process?.signal(SIGHUP)
                try notify.wait(for: "RELOADING=1")
                try notify.wait(for: "READY=1")
                #expect(daemon.log.contains("localhost is a loopback address"), "\(daemon.log)")
                #expect(try daemon.connect().call("PING") == .simple("PONG"))

                let check = try machine.run([Daemon.program, "--check-config", "--config", daemon.configuration])
                #expect(check.status == 0 && check.text.hasPrefix("\(daemon.configuration) is good"))
                #expect(check.text.contains("\nwarning: origins.default.url: localhost is"), "\(check.everything)")
            }
        }

        @Test func `after a start what is held is counted, also for a user who held nothing`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                for user in ["alice", "eve"] { #expect(try client.call("LOGIN", user) == .ok) }
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                try daemon.restart()
                let later = try daemon.connect()
                for (user, images) in [("alice", 1), ("eve", 0)] {
                    try eventually("\(user)'s images are counted") {
                        try later.call("STAT", user)["images"] == .integer(Int64(images))
                    }
                }
            }
        }

        @Test func `F51: a names.key of the wrong size stops the start and says so; put right, everything is there`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                #expect(try client.call("LOGIN", "alice") == .ok)
                #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
                try daemon.stop()
                let path = "\(daemon.state)/names.key"
                let good = try read(path)
                try write(Array(good.dropLast()), to: path)
                let words = try refusal(daemon)
                #expect(words.contains("names.key"), "\(words)")
                try write(good, to: path)
                try daemon.start()
                #expect(try daemon.connect().call("GET", "alice", "bob") == .bulk(Picture.gif("bob")))
            }
        }

        @Test func `a store of a newer format is refused`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                #expect(try daemon.connect().call("LOGIN", "alice") == .ok)
                try daemon.stop()
                let version = try String(decoding: read("\(daemon.cache)/VERSION"), as: UTF8.self)
                try write(version.replacing("1", with: "999"), to: "\(daemon.cache)/VERSION")
                #expect(try refusal(daemon).contains("999"))
                try write(version, to: "\(daemon.cache)/VERSION")
                try daemon.start()
                #expect(try daemon.connect().call("USERS") == .array([.bulk(Array("alice".utf8))]))
            }
        }
    }
}
