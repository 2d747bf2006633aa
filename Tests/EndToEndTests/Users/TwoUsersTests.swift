import Foundation
import Glibc
import Testing

extension EndToEnd.Users {
    /// Several uids that use one socket.
    struct TwoUsersTests {
        /// Runs redis-cli as another account.
        private func cli(
            _ machine: Machine, _ daemon: Daemon, _ account: Account, _ words: [String], input: [UInt8] = []
        ) throws -> String {
            let finished = try machine.run(
                account.running(["redis-cli", "-s", daemon.socket] + words), input: input)
            return finished.text.trimmingCharacters(in: .newlines)
        }

        private func cli(_ machine: Machine, _ daemon: Daemon, _ uid: uid_t, _ words: [String]) throws -> String {
            try cli(machine, daemon, Account(uid), words)
        }

        @Test func `I1, F28: images of a uid are invisible to other uids`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers()
                #expect(try cli(machine, daemon, 4_001, ["LOGIN", "alice"]) == "OK")
                let image = TestImage.gif("bob")
                let put = try cli(machine, daemon, Account(4_001), ["-x", "PUT", "alice", "bob"], input: image)
                #expect(put == "OK")
                #expect(try cli(machine, daemon, 4_001, ["--no-raw", "STAT", "alice", "bob"]).contains("digest"))

                // Another uid, and root, get the same reply as for a user that never existed.
                for other: uid_t in [4_002, 0] {
                    for words in [
                        ["GET", "alice", "bob"], ["STAT", "alice"], ["STAT", "alice", "bob"],
                        ["EXPLAIN", "alice", "bob"], ["MGET", "alice", "1", "bob"], ["USERS"], ["LOGOUT", "alice"],
                        ["PURGE", "alice"],
                        ["LOGOUT", "*"], ["PURGE", "*"],
                    ] {
                        let seen = try cli(machine, daemon, other, ["--no-raw"] + words)
                        let unknown = words.map { $0 == "alice" ? "unknown" : $0 }
                        let expected = try cli(machine, daemon, other, ["--no-raw"] + unknown)
                        // Epochs differ, since they grow with each purge.
                        let epochs = /\(integer\) \d{6,}/
                        #expect(seen.replacing(epochs, with: "") == expected.replacing(epochs, with: ""), "\(words)")
                    }
                }
                // The same if the other uid logs in a user of the same name.
                #expect(try cli(machine, daemon, 4_002, ["LOGIN", "alice"]) == "OK")
                #expect(try cli(machine, daemon, 4_002, ["GET", "alice", "bob"]) == "")
                #expect(try cli(machine, daemon, 4_002, ["LOGOUT", "alice"]).contains("users\n1"))
                #expect(
                    try cli(machine, daemon, 4_001, ["GET", "alice", "bob"]) == String(decoding: image, as: UTF8.self)
                )
            }
        }

        @Test func `F27: only admins may purge and log out another uid, and no one may read its images`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers()
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

        @Test func `I3, I4: UID * purges and logs out a user of all uids, and requires an admin`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers()
                let uids: [uid_t] = [4_001, 4_002]
                for uid in uids {
                    #expect(try cli(machine, daemon, uid, ["LOGIN", "alice"]) == "OK")
                    let put = ["-x", "PUT", "alice", "bob"]
                    #expect(try cli(machine, daemon, Account(uid), put, input: TestImage.gif("bob")) == "OK")
                }
                #expect(try cli(machine, daemon, 4_002, ["LOGIN", "carol"]) == "OK")
                for words in [["LOGOUT", "alice", "UID", "*"], ["PURGE", "*", "UID", "*"]] {
                    #expect(try cli(machine, daemon, 4_001, words).hasPrefix("DENIED "), "\(words)")
                }
                // Also users that the daemon has not loaded since its start.
                try daemon.restart()
                #expect(try cli(machine, daemon, 0, ["PURGE", "alice", "1", "bob", "UID", "*"]).contains("users\n2"))
                let receipt = try cli(machine, daemon, 0, ["LOGOUT", "alice", "UID", "*"])
                #expect(receipt.contains("users\n2"), "\(receipt)")
                daemon.kill()
                try daemon.start()
                for uid in uids {
                    #expect(try cli(machine, daemon, uid, ["GET", "alice", "bob"]).hasPrefix("NOLOGIN "))
                }
                #expect(try cli(machine, daemon, 4_002, ["USERS"]) == "carol")
                #expect(try cli(machine, daemon, 0, ["LOGOUT", "alice", "UID", "*"]).contains("users\n0"))
            }
        }

        @Test func `F27: access.admins accepts users and groups`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers {
                    $0.settings["access", "admins"] = ["root", "daemon", "@games"]
                }
                let uid = try #require(getpwnam("daemon")).pointee.pw_uid
                let games = try #require(getgrnam("games")).pointee.gr_gid
                let logout = ["LOGOUT", "*", "UID", "4001"]
                #expect(try cli(machine, daemon, uid, logout).contains("users\n0"))
                #expect(try cli(machine, daemon, Account(4_002, groups: [games]), logout).contains("users\n0"))
                #expect(try cli(machine, daemon, 4_002, logout).hasPrefix("DENIED "))
            }
        }

        @Test func `F27: observers read metrics of all uids and have no other rights`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers {
                    $0.settings["access", "observers"] = ["daemon", "@games", "nobody-by-that-name"]
                }
                let uid = try #require(getpwnam("daemon")).pointee.pw_uid
                let games = try #require(getgrnam("games")).pointee.gr_gid
                for account in [Account(uid), Account(4_002, groups: [games])] {
                    #expect(try cli(machine, daemon, account, ["METRICS"]).contains("thumbcached_uptime_seconds"))
                    let clients = try cli(machine, daemon, account, ["INFO", "clients"])
                    #expect(clients.contains("connections_accepted:"), "\(clients)")
                    let logout = try cli(machine, daemon, account, ["LOGOUT", "*", "UID", "4001"])
                    #expect(logout.hasPrefix("DENIED "), "\(logout)")
                    let list = try cli(machine, daemon, account, ["CLIENT", "LIST"])
                    #expect(list.split(separator: "\n").count == 1, "\(list)")
                }
                #expect(try cli(machine, daemon, 4_003, ["METRICS"]).hasPrefix("DENIED METRICS: you are uid 4003"))
            }
        }

        @Test(arguments: [[], [50_001], [50_001, 50_002]] as [[gid_t]])
        func `F27, F28: a supplementary group makes a process an admin`(
            groups: [gid_t]
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers { $0.settings["access", "admins"] = ["root", "@50002"] }
                let account = Account(50_000, groups: groups)
                let logout = try cli(machine, daemon, account, ["LOGOUT", "*", "UID", "0"])
                let clients = try cli(machine, daemon, account, ["INFO", "clients"])
                if groups.contains(50_002) {
                    #expect(logout.contains("users\n0"), "\(logout)")
                    #expect(clients.contains("connections_accepted:"), "\(clients)")
                } else {
                    #expect(logout.hasPrefix("DENIED UID 0: you are uid 50000"), "\(logout)")
                    // Only the fields of the uid's own connections.
                    let names = clients.split(whereSeparator: \.isNewline).map { $0.prefix { $0 != ":" } }
                    #expect(names == ["# Clients", "connected_clients", "blocked_clients"])
                }
            }
        }

        @Test func `I8, F80: if one uid holds all connections, other uids and admins can connect`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers { daemon in
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
                    Account(4_001).running(["/usr/bin/python3", "-c", flood, daemon.socket, "\(drop)/held"]),
                    errors: .file(machine.path("flood.log")))
                try eventually("the connections are open") {
                    try Files.exists("\(drop)/held") && !read("\(drop)/held").isEmpty
                }
                #expect(try readText("\(drop)/held") == "6")
                // A connection of the uid with the most connections is closed for a new uid (F80).
                #expect(try cli(machine, daemon, 4_002, ["PING"]) == "PONG")
                #expect(try cli(machine, daemon, 0, ["LOGOUT", "*", "UID", "4001"]).contains("users\n0"))
            }
        }

        @Test func `F53: a logout hook succeeds while other uids hold all connections and keep connecting`() throws {
            try withMachine { machine in
                let daemon = try machine.daemonForOthers { daemon in
                    daemon.settings["limits", "connections"] = 40
                    daemon.settings["limits", "admin-connections"] = 4
                }
                // Opens as many connections as possible, and then keeps connecting without reading the replies.
                let flood = """
                    import socket, sys, threading
                    held = []
                    def connect():
                        s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
                        return s
                    for _ in range(60):
                        s = connect()
                        try:
                            s.sendall(b"*1\\r\\n$4\\r\\nPING\\r\\n")
                            if s.recv(5) == b"+PONG": held.append(s)
                        except OSError: pass
                    def churn():
                        mine = []
                        while True:
                            try: mine.append(connect())
                            except OSError: pass
                            if len(mine) > 100: mine.pop(0).close()
                    open(sys.argv[2], "w").write(str(len(held)))
                    for _ in range(int(sys.argv[3])): threading.Thread(target=churn, daemon=True).start()
                    threading.Event().wait()
                    """
                let drop = try machine.makeDirectory("drop")
                chmod(drop, 0o777)
                // The first uid only holds connections.
                for (uid, threads) in [(4_001, 0), (4_002, 2)] as [(uid_t, Int)] {
                    _ = try machine.start(
                        Account(uid).running([
                            "/usr/bin/python3", "-c", flood, daemon.socket, "\(drop)/\(uid)", "\(threads)",
                        ]),
                        errors: .file(machine.path("flood-\(uid).log")))
                    try eventually("the connections of \(uid) are open", within: 120) {
                        try Files.exists("\(drop)/\(uid)") && !read("\(drop)/\(uid)").isEmpty
                    }
                }
                for round in 0..<10 {
                    let hook = try machine.run(
                        Account.root.running([
                            "\(Files.programs)/thumbcachectl", "--socket", daemon.socket, "logout", "--all", "--uid",
                            "4003", "--timeout", "60",
                        ]))
                    #expect(hook.status == 0, "round \(round): \(hook.summary)")
                }
                #expect(!daemon.log.contains("cannot accept connections; retrying"))
            }
        }
    }
}
