import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// The relay with a real Redis server.
    struct RelayTests {
        private func withFleet(
            _ count: Int = 1, _ adjust: (FleetHost) -> Void = { _ in },
            _ body: (RedisServer, RESPClient, [FleetHost]) throws -> Void
        ) throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let client = try redis.connect()
                let hosts = try (1...count).map { try FleetHost(machine, "host\($0)", redis, adjust) }
                // A relay without a position logs out all users first.
                for host in hosts { try host.waitUntilAtEnd(client) }
                try body(redis, client, hosts)
            }
        }

        private func publish(_ client: RESPClient, _ fields: String...) throws {
            try client.send(["XADD", FleetHost.stream, "*"] + fields)
            guard try client.receive().text != nil else { throw Failure("XADD failed") }
        }

        @Test func `I3: a logout durably deletes the user's caches on every host, and no other user's`() throws {
            try withFleet(2) { _, client, hosts in
                for host in hosts {
                    try host.logIn("alice", "bob")
                    let daemon = try host.daemon.connect()
                    #expect(try daemon.call("PUT", "alice", "carol", TestImage.gif("carol")) == .ok)
                }
                try publish(client, "op", "logout", "user", "alice")
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    #expect(try host.users() == ["bob"])
                    host.daemon.kill()
                    try host.daemon.start()
                    let daemon = try host.daemon.connect()
                    guard case .error("NOLOGIN", _) = try daemon.call("GET", "alice", "carol") else {
                        Issue.record("alice is still logged in")
                        return
                    }
                    #expect(try host.users() == ["bob"])
                }
            }
        }

        @Test func `I4: a restarted relay executes exactly the entries published meanwhile`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                for round in 0..<5 {
                    try host.logIn("alice", "bob", "carol")
                    host.killRelay()
                    try publish(client, "op", "logout", "user", "alice")
                    try publish(client, "op", "purge", "user", "bob", "profile", "dan")
                    try host.startRelay()
                    try host.waitUntilAtEnd(client)
                    #expect(try host.users() == ["bob", "carol"], "round \(round): \(host.log)")
                }
            }
        }

        /// The server's CPU time limits how many hosts can follow one stream: `make fleet-scale`.
        @Test func `for each logout a relay reads the stream once and acknowledges once, in 3 reads`() throws {
            let heartbeat: (FleetHost) -> Void = { $0.settings["", "heartbeat"] = "10m" }
            try withFleet(1, heartbeat) { _, client, hosts in
                var requests = 0
                func call(_ words: String...) throws -> Reply {
                    requests += 1
                    try client.send(words)
                    return try client.receive()
                }
                func statistic(_ name: String, in section: String) throws -> Int {
                    let lines = try call("INFO", section).text?.split(whereSeparator: \.isNewline) ?? []
                    let line = lines.first { $0.hasPrefix("\(name):") } ?? ""
                    return Int(line.split(whereSeparator: { ":=,".contains($0) }).first { Int($0) != nil } ?? "") ?? 0
                }
                let names = ["cmdstat_exec", "cmdstat_xinfo|stream", "cmdstat_hset", "cmdstat_xread"]
                func counts() throws -> [Int] { try names.map { try statistic($0, in: "commandstats") } }
                /// Whether the relay waits for entries again.
                func isBlocked() throws -> Bool { try statistic("blocked_clients", in: "clients") == 1 }
                try eventually("the relay waits") { try isBlocked() }
                let before = try counts()
                let (reads, own) = (try statistic("total_reads_processed", in: "stats"), requests)
                let rounds = 20
                for _ in 0..<rounds {
                    let id = try call("XADD", FleetHost.stream, "*", "op", "logout", "user", "nobody").text
                    try eventually("the entry is acknowledged") {
                        let row = try call("HGET", "\(FleetHost.stream):hosts", hosts[0].name).text
                        return row?.split(separator: " ").first.map(String.init) == id
                    }
                    try eventually("the relay waits") { try isBlocked() }
                }
                let readsOfTheRelay = try statistic("total_reads_processed", in: "stats") - reads - (requests - own)
                let after = try counts()
                #expect(zip(after, before).map { $0 - $1 } == names.map { _ in rounds })
                #expect(readsOfTheRelay == 3 * rounds)
            }
        }

        @Test func `I3: a relay that is killed repeatedly executes all logouts in the end`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                let users = (0..<200).map { "user\($0)" }
                let daemon = try host.daemon.connect()
                for user in users { #expect(try daemon.call("LOGIN", user) == .ok) }
                try host.logIn("stays")
                for (index, user) in users.enumerated() {
                    try publish(client, "op", "logout", "user", user)
                    guard index % 25 == 24 else { continue }
                    host.killRelay()
                    try host.startRelay()
                }
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == ["stays"])
            }
        }

        @Test(arguments: ["logout-all", "purge-all", "ignore"])
        func `a replaced stream is a gap, and on-gap applies`(
            policy: String
        ) throws {
            try withFleet(1, { $0.settings["", "on-gap"] = .string(policy) }) { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                let daemon = try host.daemon.connect()
                #expect(try daemon.call("PUT", "bob", "carol", TestImage.gif("carol")) == .ok)
                try publish(client, "op", "logout", "user", "alice")
                try host.waitUntilAtEnd(client)
                #expect(try client.call("FLUSHALL") == .ok)
                try publish(client, "op", "logout", "user", "nobody")
                try host.waitUntilAtEnd(client)
                #expect(host.log.contains("the stream has a different identity"))
                #expect(try host.users() == (policy == "logout-all" ? [] : ["bob"]))
                if policy != "logout-all" {
                    let image = try daemon.call("GET", "bob", "carol", "CACHED")
                    #expect((image == .null) == (policy == "purge-all"))
                }
            }
        }

        @Test func `entries trimmed before they were read log out all users`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try publish(client, "op", "logout", "user", "nobody")
                try host.waitUntilAtEnd(client)
                try host.logIn("alice", "bob")
                host.killRelay()
                try publish(client, "op", "logout", "user", "alice")
                try publish(client, "op", "logout", "user", "nobody")
                _ = try client.call("XTRIM", FleetHost.stream, "MAXLEN", "1")
                try host.startRelay()
                try host.waitUntilAtEnd(client)
                #expect(host.log.contains("entries were trimmed before they were read"))
                #expect(try host.users() == [])
            }
        }

        @Test func `invalid and unknown entries are counted, logged and skipped, and never executed in part`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                try publish(client, "op", "logout", "user", "bob", "uid", "5")
                try publish(client, "op", "delete", "user", "bob")
                try publish(client, "op", "logout", "user", "*")
                try publish(client, "user", "bob")
                try publish(client, "op", "logout", "user", "alice")
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == ["bob"])
                let row = try client.call("HGET", "\(FleetHost.stream):hosts", host.name).text
                #expect(row?.split(separator: " ")[3] == "4", "\(row ?? "")")
                #expect(host.log.contains("it has an unknown field"))
                // The log contains no user.
                #expect(!host.log.contains("bob") && !host.log.contains("alice"))
            }
        }

        @Test func `I4: a command is acknowledged only after the daemon has executed it`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                let before = try host.acknowledged(client)
                host.daemon.kill()
                try publish(client, "op", "logout", "user", "alice")
                try eventually("the relay has tried") {
                    host.log.contains("command failed; retrying")
                }
                #expect(try host.acknowledged(client) == before)
                try host.daemon.start()
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == ["bob"])
            }
        }

        @Test func `a gap is logged even if the daemon failed before`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice")
                host.daemon.kill()
                try publish(client, "op", "logout", "user", "nobody")
                try eventually("the relay has tried") {
                    host.log.contains("command failed; retrying")
                }
                #expect(try client.call("FLUSHALL") == .ok)
                try publish(client, "op", "logout", "user", "nobody")
                try eventually("the gap is logged") { host.log.contains("the stream has a different identity") }
                try host.daemon.start()
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == [])
                // Once for the start, and once for the gap.
                #expect(host.log.matches(of: /logouts may have been missed/).count == 2, "\(host.log)")
            }
        }

        @Test func `a restored host table is not mistaken for a second relay with the same name`() throws {
            try withFleet { redis, client, hosts in
                #expect(try client.call("SAVE") == .ok)
                hosts[0].killRelay()
                try hosts[0].startRelay()
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
                redis.kill()
                try redis.start()
                let restored = try redis.connect()
                try publish(restored, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(restored)
                #expect(!hosts[0].log.contains("another relay uses this host name"), "\(hosts[0].log)")
            }
        }

        /// A host that was away cannot detect by itself that the stream was longer before.
        @Test func `I4: an entry that Redis lost after one host had executed it reaches all hosts`() throws {
            try withFleet(2) { redis, client, hosts in
                try publish(client, "op", "logout", "user", "nobody")
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice", "bob")
                }
                #expect(try client.call("SAVE") == .ok)
                hosts[1].killRelay()
                // Restores the same snapshot twice: each time the stream must get a new identity.
                for user in ["alice", "bob"] {
                    let client = try redis.connect()
                    try publish(client, "op", "logout", "user", user)
                    try hosts[0].waitUntilAtEnd(client)
                    redis.kill()
                    try redis.start()
                    let restored = try redis.connect()
                    try publish(restored, "op", "logout", "user", "nobody")
                    try hosts[0].waitUntilAtEnd(restored)
                }
                #expect(try hosts[1].users() == ["alice", "bob"])
                try hosts[1].startRelay()
                try eventually("all users are logged out") { try hosts[1].users() == [] }
            }
        }

        /// One entry that the relay has read is lost, and one that it has not read is trimmed.
        @Test func `a trimmed entry is not mistaken for one that the relay has read and Redis has lost`() throws {
            try withFleet { redis, client, hosts in
                let host = hosts[0]
                func publishAll(_ users: String...) throws {
                    let client = try redis.connect()
                    for user in users { try publish(client, "op", "logout", "user", user) }
                }
                #expect(try client.call("SAVE") == .ok)
                try publishAll("nobody")
                try host.waitUntilAtEnd(client)
                try host.logIn("alice", "bob")
                host.killRelay()
                redis.kill()
                try redis.start()
                try publishAll("alice", "nobody")
                let restored = try redis.connect()
                _ = try restored.call("XTRIM", FleetHost.stream, "MAXLEN", "1")
                try host.startRelay()
                try host.waitUntilAtEnd(restored)
                #expect(host.log.contains("the server has no acknowledgment of it"), "\(host.log)")
                #expect(try host.users() == [])

                // A trimmed entry that it has acknowledged is not a gap.
                try host.logIn("alice", "bob")
                host.killRelay()
                try publishAll("alice")
                _ = try restored.call("XTRIM", FleetHost.stream, "MAXLEN", "1")
                try host.startRelay()
                try host.waitUntilAtEnd(restored)
                #expect(try host.users() == ["bob"])
            }
        }

        @Test func `a relay that is not an admin logs the remedy and acknowledges nothing`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                chmod(redis.socket, 0o777)
                let state = try machine.makeDirectory("state")
                chown(state, 4_001, 4_001)
                let host = try FleetHost(machine, "host", redis) { host in
                    host.daemon.acceptAccounts()
                    host.account = Account(4_001)
                    host.settings["", "state"] = .string(state)
                }
                try eventually("the log has the remedy") { host.log.contains("add it to access.admins") }
                #expect(try host.acknowledged(try redis.connect()) ?? "0-0" == "0-0")
            }
        }

        @Test func `an entry with an invalid id is skipped, and later entries are executed`() throws {
            try withFleet(1, { $0.daemon.settings["limits", "id"] = 16 }) { _, client, hosts in
                try hosts[0].logIn("alice")
                try publish(client, "op", "logout", "user", String(repeating: "x", count: 17))
                try publish(client, "op", "logout", "user", "alice")
                try hosts[0].waitUntilAtEnd(client)
                #expect(try hosts[0].users() == [])
                #expect(hosts[0].log.contains("invalid entry skipped"))
            }
        }

        @Test(arguments: ["arguments", "input"])
        func `a purge that exceeds a limit of the daemon removes all images of the user`(limit: String) throws {
            let limits: (FleetHost) -> Void = {
                if limit == "arguments" {
                    $0.daemon.settings["limits", "arguments"] = 16
                } else {
                    $0.daemon.settings["limits", "image"] = "8KiB"
                    $0.daemon.settings["limits", "input"] = "8KiB"
                }
            }
            try withFleet(1, limits) { _, client, hosts in
                try hosts[0].logIn("alice", "bob")
                let daemon = try hosts[0].daemon.connect()
                for user in ["alice", "bob"] {
                    #expect(try daemon.call("PUT", user, "carol", TestImage.gif("carol")) == .ok)
                }
                let profiles = (0..<20).flatMap { ["profile", "\($0)" + String(repeating: "x", count: 500)] }
                try client.send(["XADD", FleetHost.stream, "*", "op", "purge", "user", "alice"] + profiles)
                _ = try client.receive()
                try hosts[0].waitUntilAtEnd(client)
                #expect(try daemon.call("GET", "alice", "carol", "CACHED") == .null)
                #expect(try daemon.call("GET", "bob", "carol", "CACHED") != .null)
                #expect(!hosts[0].log.contains("invalid entry skipped"), "\(hosts[0].log)")
            }
        }

        @Test(arguments: ["18446744073709551615-18446744073709551615", "18446744073709551615-1", "9000000000000-1"])
        func `an id far in the future is damage: all users are logged out, and the logged repair works`(
            id: String
        ) throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                func logOut(_ user: String) throws -> Finished {
                    try host.machine.run([
                        "\(Files.programs)/thumbcachectl", "fleet", "logout", user, "--wait", "60", "--live", "1",
                        "--config", host.configuration,
                    ])
                }
                try publish(client, "op", "logout", "user", "nobody")
                try host.waitUntilAtEnd(client)
                try host.logIn("alice", "bob")
                try client.send(["XADD", FleetHost.stream, id, "op", "logout", "user", "alice"])
                #expect(try client.receive().text == id)
                try eventually("all users are logged out") { try host.users() == [] }
                let remedy = "redis-cli DEL \(FleetHost.stream)"
                try eventually("the log has the repair command") { host.log.contains(remedy) }
                #expect(try host.acknowledged(client) == "0-0")
                let refused = try logOut("bob")
                #expect(refused.status != 0 && refused.errors.contains(remedy), "\(refused.summary)")
                let status = try host.machine.run([FleetHost.program, "status", "--config", host.configuration])
                #expect(status.status == 1 && status.errors.contains(remedy), "\(status.summary)")
                _ = try client.call("DEL", FleetHost.stream)
                try host.logIn("carol", "dan")
                // The hosts close the gap first, which may log both users out.
                try eventually("logouts work again") { try logOut("carol").status == 0 }
                #expect(try !host.users().contains("carol"))
            }
        }

        @Test func `logouts work after an id far in the future and a FLUSHALL`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try client.send(["XADD", FleetHost.stream, "18446744073709551615-5", "op", "logout", "user", "alice"])
                _ = try client.receive()
                try eventually("the damage is detected") { host.log.contains("ahead of the server's clock") }
                #expect(try client.call("FLUSHALL") == .ok)
                try host.logIn("alice")
                try publish(client, "op", "logout", "user", "alice")
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == [])
            }
        }

        @Test func `the maximum entries-added does not end the relay`() throws {
            try withFleet { _, client, hosts in
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
                let last = try client.call("HGET", "\(FleetHost.stream):hosts", hosts[0].name).text
                let id = last?.split(separator: " ").first.map(String.init) ?? ""
                #expect(try client.call("XSETID", FleetHost.stream, id, "ENTRIESADDED", "\(Int.max)") == .ok)
                try publish(client, "op", "logout", "user", "nobody")
                try eventually("the log has the reason and the repair command") {
                    hosts[0].log.contains("which is impossible") && hosts[0].log.contains("redis-cli DEL")
                }
                #expect(hosts[0].relay?.exitStatus() == nil)
                _ = try client.call("DEL", FleetHost.stream)
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
            }
        }

        @Test func `deleting an entry is a gap only if a host has not read it`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                func publishAndDelete() throws {
                    try client.send(["XADD", FleetHost.stream, "*", "op", "logout", "user", "nobody"])
                    guard let id = try client.receive().text else { throw Failure("XADD failed") }
                    try eventually("the entry is acknowledged") { try host.acknowledged(client) == id }
                    _ = try client.call("XDEL", FleetHost.stream, id)
                }
                for _ in 0..<3 { try publishAndDelete() }
                // The first entry read after the deletions.
                try publish(client, "op", "logout", "user", "nobody")
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == ["alice", "bob"])
                #expect(host.log.matches(of: /logouts may have been missed/).count == 1, "\(host.log)")

                host.killRelay()
                try client.send(["XADD", FleetHost.stream, "*", "op", "logout", "user", "alice"])
                guard let id = try client.receive().text else { throw Failure("XADD failed") }
                _ = try client.call("XDEL", FleetHost.stream, id)
                try publish(client, "op", "logout", "user", "nobody")
                try host.startRelay()
                try host.waitUntilAtEnd(client)
                #expect(host.log.contains("entries were deleted before they were read"))
                #expect(try host.users() == [])
            }
        }

        /// Only a complete read counts as contact with the stream.
        @Test func `an invalid stream identity is an outage, and the log has the repair command`() throws {
            try withFleet(
                1,
                {
                    $0.settings["", "on-outage"] = "logout-all"
                    $0.settings["", "grace"] = "1s"
                }
            ) { _, client, hosts in
                // Waits until the gap of the start, which also logs out all users, is closed.
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
                try hosts[0].logIn("alice")
                #expect(try client.call("SET", "\(FleetHost.stream):incarnation", "junk") == .ok)
                try eventually("all users are logged out") { try hosts[0].users() == [] }
                #expect(hosts[0].log.contains("redis-cli DEL \(FleetHost.stream):incarnation"), "\(hosts[0].log)")
                _ = try client.call("DEL", "\(FleetHost.stream):incarnation")
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
            }
        }

        @Test func `a relay adds its host to the table before it closes a gap`() throws {
            try withFleet { _, client, hosts in
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
                try hosts[0].daemon.process?.suspend()
                #expect(try client.call("FLUSHALL") == .ok)
                try eventually("the host is in the table") { try hosts[0].acknowledged(client) == "0-0" }
                hosts[0].daemon.process?.signal(SIGCONT)
            }
        }

        @Test func `two relays with the same host name log an error`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let hosts = try ["one", "two"].map {
                    try FleetHost(machine, $0, redis) { $0.settings["", "host"] = "same" }
                }
                for host in hosts {
                    try eventually("the error is logged") { host.log.contains("another relay uses this host name") }
                }
            }
        }

        @Test func `with on-outage = logout-all, all users are logged out after the grace period`() throws {
            try withFleet(
                1,
                {
                    $0.settings["", "on-outage"] = "logout-all"
                    $0.settings["", "grace"] = "1s"
                }
            ) { redis, client, hosts in
                try hosts[0].logIn("alice")
                redis.kill()
                try eventually("all users are logged out") { try hosts[0].users() == [] }
                try eventually("the log has the reason") {
                    hosts[0].log.contains("stream unreachable for longer than the grace period")
                }
            }
        }
    }
}
