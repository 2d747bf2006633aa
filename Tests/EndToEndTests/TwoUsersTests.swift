import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// Two accounts of the machine at one socket. Only root can be two accounts; for others the unit tests hold the rules.
    @Suite(.enabled(if: geteuid() == 0, "only root can act for two uids"))
    struct TwoUsersTests {
        /// redis-cli, run by another uid.
        private func cli(_ machine: Machine, _ daemon: Daemon, _ uid: Int, _ words: [String]) throws -> String {
            let finished = try machine.run(
                ["setpriv", "--reuid=\(uid)", "--regid=\(uid)", "--clear-groups", "redis-cli", "-s", daemon.socket]
                    + words)
            return finished.text.trimmingCharacters(in: .newlines)
        }

        @Test func `I1, F28: what a uid stores is to another as if it did not exist`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                #expect(try cli(machine, daemon, 4_001, ["LOGIN", "alice"]) == "OK")
                let picture = Picture.gif("bob")
                let file = machine.path("bob.gif")
                try write(picture, to: file)
                let put = try machine.run(
                    [
                        "setpriv", "--reuid=4001", "--clear-groups", "redis-cli", "-s", daemon.socket, "-x", "PUT",
                        "alice", "bob",
                    ],
                    input: picture)
                #expect(put.text == "OK\n", "\(put.everything)")
                #expect(try cli(machine, daemon, 4_001, ["--no-raw", "STAT", "alice", "bob"]).contains("digest"))

                // The other uid, and root, get what they would get for any name that nobody ever used.
                for stranger in [4_002, 0] {
                    for words in [
                        ["GET", "alice", "bob"], ["STAT", "alice"], ["STAT", "alice", "bob"],
                        ["MGET", "alice", "1", "bob"], ["USERS"], ["LOGOUT", "alice"], ["PURGE", "alice"],
                        ["LOGOUT", "*"], ["PURGE", "*"],
                    ] {
                        let seen = try cli(machine, daemon, stranger, ["--no-raw"] + words)
                        let nobody = words.map { $0 == "alice" ? "nobody" : $0 }
                        let expected = try cli(machine, daemon, stranger, ["--no-raw"] + nobody)
                        // The epoch is the stranger's own, and grows with each of its purges.
                        let epochs = /\(integer\) \d{6,}/
                        #expect(seen.replacing(epochs, with: "") == expected.replacing(epochs, with: ""), "\(words)")
                    }
                }
                // Also when they log in a user of the same name.
                #expect(try cli(machine, daemon, 4_002, ["LOGIN", "alice"]) == "OK")
                #expect(try cli(machine, daemon, 4_002, ["GET", "alice", "bob"]) == "")
                #expect(try cli(machine, daemon, 4_002, ["LOGOUT", "alice"]).contains("users\n1"))
                #expect(
                    try cli(machine, daemon, 4_001, ["GET", "alice", "bob"]) == String(decoding: picture, as: UTF8.self)
                )
            }
        }

        @Test func `F27: only an admin may name another uid, to end its caches and never to read them`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                #expect(try cli(machine, daemon, 4_001, ["LOGIN", "alice"]) == "OK")
                for words in [
                    ["LOGOUT", "alice", "UID", "4001"], ["LOGOUT", "*", "UID", "4001"],
                    ["PURGE", "alice", "UID", "4001"],
                    ["PURGE", "*", "UID", "4001"],
                ] {
                    #expect(try cli(machine, daemon, 4_002, words).hasPrefix("DENIED "), "\(words)")
                }
                #expect(try cli(machine, daemon, 4_001, ["USERS"]) == "alice")
                #expect(try cli(machine, daemon, 0, ["GET", "alice", "bob", "UID", "4001"]).hasPrefix("ERR "))
                #expect(try cli(machine, daemon, 0, ["PURGE", "alice", "UID", "4001"]).contains("users\n1"))
                #expect(try cli(machine, daemon, 0, ["LOGOUT", "*", "UID", "4001"]).contains("users\n1"))
                #expect(try cli(machine, daemon, 4_001, ["USERS"]) == "")
                #expect(try cli(machine, daemon, 4_001, ["GET", "alice", "bob"]).hasPrefix("NOLOGIN "))
            }
        }

        @Test func `F27: access.admins makes another account, or the members of a group, an admin`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings["access", "admins"] = ["root", "daemon", "@games"] }
                let uid = try #require(getpwnam("daemon")).pointee.pw_uid
                let games = try #require(getgrnam("games")).pointee.gr_gid
                #expect(try cli(machine, daemon, Int(uid), ["LOGOUT", "*", "UID", "4001"]).contains("users\n0"))
                let member = try machine.run([
                    "setpriv", "--reuid=4002", "--groups=\(games)", "redis-cli", "-s", daemon.socket, "LOGOUT", "*",
                    "UID",
                    "4001",
                ])
                #expect(member.text.contains("users\n0"), "\(member.everything)")
                #expect(try cli(machine, daemon, 4_002, ["LOGOUT", "*", "UID", "4001"]).hasPrefix("DENIED "))
            }
        }

        @Test func `I8: when other uids hold every connection, an admin still gets in`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings["limits", "connections"] = 8
                    daemon.settings["limits", "admin-connections"] = 2
                }
                let flood = """
                    import socket, sys, time
                    held = []
                    for _ in range(20):
                        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
                        try:
                            s.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
                            held.append(s.recv(5) == b"+PONG" and s)
                        except OSError: pass
                    open(sys.argv[2], "w").write(str(sum(map(bool, held))))
                    time.sleep(1000)
                    """
                let drop = try machine.makeDirectory("drop")
                chmod(drop, 0o777)
                _ = try machine.start(
                    [
                        "setpriv", "--reuid=4001", "--clear-groups", "/usr/bin/python3", "-c", flood, daemon.socket,
                        "\(drop)/held",
                    ],
                    errors: .file(machine.path("flood.log")))
                try eventually("the flood stands") {
                    try Files.exists("\(drop)/held") && !read("\(drop)/held").isEmpty
                }
                #expect(try String(decoding: read("\(drop)/held"), as: UTF8.self) == "6")
                // BUSY; or, as the daemon has closed by then, redis-cli says that it could not even ask.
                #expect(try cli(machine, daemon, 4_002, ["PING"]) != "PONG")
                #expect(try cli(machine, daemon, 0, ["LOGOUT", "*", "UID", "4001"]).contains("users\n0"))
            }
        }

        @Test
        func `F53: others hold every connection and keep knocking; the hook gets in, each time, and is never BUSY`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon { daemon in
                    daemon.settings["limits", "connections"] = 40
                    daemon.settings["limits", "admin-connections"] = 4
                }
                // Holds all that it can get, then is refused as fast as it can ask, and reads none of it.
                let flood = """
                    import socket, sys, threading
                    held, refused = [], []
                    def knock():
                        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
                        return s
                    for _ in range(60):
                        s = knock()
                        try:
                            s.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
                            if s.recv(5) == b"+PONG": held.append(s)
                        except OSError: pass
                    def churn():
                        mine = []
                        while True:
                            try: mine.append(knock())
                            except OSError: pass
                            if len(mine) > 100: mine.pop(0).close()
                    open(sys.argv[2], "w").write(str(len(held)))
                    for _ in range(int(sys.argv[3])): threading.Thread(target=churn, daemon=True).start()
                    threading.Event().wait()
                    """
                let drop = try machine.makeDirectory("drop")
                chmod(drop, 0o777)
                // The second is the one that goes on knocking.
                for (uid, knockers) in [(4_001, 0), (4_002, 2)] {
                    _ = try machine.start(
                        [
                            "setpriv", "--reuid=\(uid)", "--clear-groups", "/usr/bin/python3", "-c", flood,
                            daemon.socket, "\(drop)/\(uid)", "\(knockers)",
                        ],
                        errors: .file(machine.path("flood-\(uid).log")))
                    try eventually("the flood of \(uid) stands", within: 120) {
                        try Files.exists("\(drop)/\(uid)") && !read("\(drop)/\(uid)").isEmpty
                    }
                }
                for round in 0..<10 {
                    let hook = try machine.run([
                        "\(Files.programs)/thumbcachectl", "--socket", daemon.socket, "logout", "--all", "--uid",
                        "4003",
                        "--timeout", "60",
                    ])
                    #expect(hook.status == 0, "round \(round): \(hook.everything)")
                }
                #expect(!daemon.log.contains("no connection can be accepted for now"))
            }
        }
    }
}
