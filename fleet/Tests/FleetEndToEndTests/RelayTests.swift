import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// Log-outs for many machines, over a real Redis.
    struct RelayTests {
        private func withFleet(
            _ count: Int = 1, _ adjust: (FleetHost) -> Void = { _ in },
            _ body: (RedisServer, RESPClient, [FleetHost]) throws -> Void
        ) throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let client = try redis.connect()
                let hosts = try (1...count).map { try FleetHost(machine, "host\($0)", redis, adjust) }
                // A relay that has no position logs everybody out first.
                for host in hosts { try host.waitUntilAtEnd(client) }
                try body(redis, client, hosts)
            }
        }

        private func publish(_ client: RESPClient, _ fields: String...) throws {
            try client.send(["XADD", FleetHost.stream, "*"] + fields)
            guard try client.receive().text != nil else { throw Failure("XADD failed") }
        }

        @Test func `I3: one log-out ends a user's caches on every host, durably, and nobody else's`() throws {
            try withFleet(2) { _, client, hosts in
                for host in hosts {
                    try host.logIn("alice", "bob")
                    let daemon = try host.daemon.connect()
                    #expect(try daemon.call("PUT", "alice", "carol", Picture.gif("carol")) == .ok)
                }
                try publish(client, "op", "logout", "user", "alice")
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    #expect(try host.users() == ["bob"])
                    host.daemon.kill()
                    try host.daemon.start()
                    let daemon = try host.daemon.connect()
                    guard case .error("NOLOGIN", _) = try daemon.call("GET", "alice", "carol") else {
                        Issue.record("alice is still there")
                        return
                    }
                    #expect(try host.users() == ["bob"])
                }
            }
        }

        @Test func `I4: a relay that was killed does what was published meanwhile, and only that`() throws {
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

        /// The server's time is what limits how many hosts can follow one stream: `make fleet-scale`.
        @Test func `a log-out costs the server one look and one acknowledgement of each host, in three reads`() throws {
            let heartbeat: (FleetHost) -> Void = { $0.settings["", "heartbeat"] = "10m" }
            try withFleet(1, heartbeat) { _, client, hosts in
                var asked = 0
                func ask(_ words: String...) throws -> Reply {
                    asked += 1
                    try client.send(words)
                    return try client.receive()
                }
                func figure(_ name: String, in section: String) throws -> Int {
                    let lines = try ask("INFO", section).text?.split(whereSeparator: \.isNewline) ?? []
                    let line = lines.first { $0.hasPrefix("\(name):") } ?? ""
                    return Int(line.split(whereSeparator: { ":=,".contains($0) }).first { Int($0) != nil } ?? "") ?? 0
                }
                let names = ["cmdstat_exec", "cmdstat_xinfo|stream", "cmdstat_hset", "cmdstat_xread"]
                func counts() throws -> [Int] { try names.map { try figure($0, in: "commandstats") } }
                /// Its relay waits for entries again.
                func isBlocked() throws -> Bool { try figure("blocked_clients", in: "clients") == 1 }
                try eventually("the relay waits") { try isBlocked() }
                let before = try counts()
                let (reads, own) = (try figure("total_reads_processed", in: "stats"), asked)
                let rounds = 20
                for _ in 0..<rounds {
                    let id = try ask("XADD", FleetHost.stream, "*", "op", "logout", "user", "nobody").text
                    try eventually("it is acknowledged") {
                        let said = try ask("HGET", "\(FleetHost.stream):hosts", hosts[0].name).text
                        return said?.split(separator: " ").first.map(String.init) == id
                    }
                    try eventually("the relay waits") { try isBlocked() }
                }
                let readsOfTheRelay = try figure("total_reads_processed", in: "stats") - reads - (asked - own)
                let after = try counts()
                #expect(zip(after, before).map { $0 - $1 } == names.map { _ in rounds })
                #expect(readsOfTheRelay == 3 * rounds)
            }
        }

        @Test func `I3: what is killed while log-outs stream by has done all of them in the end`() throws {
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
        func `a stream that is another than before: what may have been missed is made up for as is configured`(
            policy: String
        ) throws {
            try withFleet(1, { $0.settings["", "on-gap"] = .string(policy) }) { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                let daemon = try host.daemon.connect()
                #expect(try daemon.call("PUT", "bob", "carol", Picture.gif("carol")) == .ok)
                try publish(client, "op", "logout", "user", "alice")
                try host.waitUntilAtEnd(client)
                #expect(try client.call("FLUSHALL") == .ok)
                try publish(client, "op", "logout", "user", "nobody")
                try host.waitUntilAtEnd(client)
                #expect(host.log.contains("it is another stream than before"))
                #expect(try host.users() == (policy == "logout-all" ? [] : ["bob"]))
                if policy != "logout-all" {
                    let image = try daemon.call("GET", "bob", "carol", "CACHED")
                    #expect((image == .null) == (policy == "purge-all"))
                }
            }
        }

        @Test func `entries that were trimmed while the relay was away log everybody out`() throws {
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

        @Test func `malformed and unknown entries are counted, logged and skipped, and never done in part`() throws {
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
                let said = try client.call("HGET", "\(FleetHost.stream):hosts", host.name).text
                #expect(said?.split(separator: " ")[3] == "4", "\(said ?? "")")
                #expect(host.log.contains("it has an unknown field"))
                // No id is in the log.
                #expect(!host.log.contains("bob") && !host.log.contains("alice"))
            }
        }

        @Test func `I4: an order that the daemon has not done is not acknowledged, and is done when it is back`() throws
        {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                let before = try host.acknowledged(client)
                host.daemon.kill()
                try publish(client, "op", "logout", "user", "alice")
                try eventually("the relay has tried") {
                    host.log.contains("orders are not carried out, and are tried again")
                }
                #expect(try host.acknowledged(client) == before)
                try host.daemon.start()
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == ["bob"])
            }
        }

        @Test func `a gap is on the log also where the daemon failed before it was seen`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice")
                host.daemon.kill()
                try publish(client, "op", "logout", "user", "nobody")
                try eventually("the relay has tried") {
                    host.log.contains("orders are not carried out, and are tried again")
                }
                #expect(try client.call("FLUSHALL") == .ok)
                try publish(client, "op", "logout", "user", "nobody")
                try eventually("the log says so") { host.log.contains("it is another stream than before") }
                try host.daemon.start()
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == [])
                // Once for the start, and once for this.
                #expect(host.log.matches(of: /log-outs may have been missed/).count == 2, "\(host.log)")
            }
        }

        @Test func `a table that was restored is not taken for another relay of the same name`() throws {
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
                #expect(!hosts[0].log.contains("another relay has this host's name"), "\(hosts[0].log)")
            }
        }

        /// A host that was away has no way to see by itself that the stream was longer once.
        @Test func `I4: what Redis loses is true on a host that was away, since another has done it`() throws {
            try withFleet(2) { redis, client, hosts in
                try publish(client, "op", "logout", "user", "nobody")
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice", "bob")
                }
                #expect(try client.call("SAVE") == .ok)
                hosts[1].killRelay()
                // Twice, to the same snapshot: the name that it has must not be taken for a new one.
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
                try eventually("nobody is logged in there") { try hosts[1].users() == [] }
            }
        }

        @Test func `a relay that is no admin says what is wrong and acknowledges nothing`() throws {
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
                try eventually("the relay says so") { host.log.contains("add it to access.admins") }
                #expect(try host.acknowledged(try redis.connect()) ?? "0-0" == "0-0")
            }
        }

        @Test func `an id that the daemon does not take is skipped, and what comes behind it is done`() throws {
            try withFleet(1, { $0.daemon.settings["limits", "id"] = 16 }) { _, client, hosts in
                try hosts[0].logIn("alice")
                try publish(client, "op", "logout", "user", String(repeating: "x", count: 17))
                try publish(client, "op", "logout", "user", "alice")
                try hosts[0].waitUntilAtEnd(client)
                #expect(try hosts[0].users() == [])
                #expect(hosts[0].log.contains("an entry is no order and was skipped"))
            }
        }

        @Test(arguments: ["18446744073709551615-18446744073709551615", "18446744073709551615-1", "9000000000000-1"])
        func `an id from the far future is damage: everybody is logged out, the repair is said, and it works`(
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
                try eventually("everybody is logged out") { try host.users() == [] }
                let remedy = "redis-cli DEL \(FleetHost.stream)"
                try eventually("the log says how it is repaired") { host.log.contains(remedy) }
                #expect(try host.acknowledged(client) == "0-0")
                let refused = try logOut("bob")
                #expect(refused.status != 0 && refused.errors.contains(remedy), "\(refused.everything)")
                let status = try host.machine.run([FleetHost.program, "status", "--config", host.configuration])
                #expect(status.status == 1 && status.errors.contains(remedy), "\(status.everything)")
                _ = try client.call("DEL", FleetHost.stream)
                try host.logIn("carol", "dan")
                // The hosts make up for the loss first, which may log both out.
                try eventually("log-outs work again") { try logOut("carol").status == 0 }
                #expect(try !host.users().contains("carol"))
            }
        }

        @Test func `an id from the far future and the loss of the stream do not stop the fleet`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try client.send(["XADD", FleetHost.stream, "18446744073709551615-5", "op", "logout", "user", "alice"])
                _ = try client.receive()
                try eventually("it is seen") { host.log.contains("ahead of the server's clock") }
                #expect(try client.call("FLUSHALL") == .ok)
                try host.logIn("alice")
                try publish(client, "op", "logout", "user", "alice")
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == [])
            }
        }

        @Test func `a count of entries at its greatest does not end the relay`() throws {
            try withFleet { _, client, hosts in
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
                let last = try client.call("HGET", "\(FleetHost.stream):hosts", hosts[0].name).text
                let id = last?.split(separator: " ").first.map(String.init) ?? ""
                #expect(try client.call("XSETID", FleetHost.stream, id, "ENTRIESADDED", "\(Int.max)") == .ok)
                try publish(client, "op", "logout", "user", "nobody")
                try eventually("the log says what is wrong") {
                    hosts[0].log.contains("which is impossible") && hosts[0].log.contains("redis-cli DEL")
                }
                #expect(hosts[0].relay?.ending() == nil)
                _ = try client.call("DEL", FleetHost.stream)
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
            }
        }

        @Test func `deleting an entry that all have done is no gap; deleting one that was not read is`() throws {
            try withFleet { _, client, hosts in
                let host = hosts[0]
                try host.logIn("alice", "bob")
                func publishAndDelete() throws {
                    try client.send(["XADD", FleetHost.stream, "*", "op", "logout", "user", "nobody"])
                    guard let id = try client.receive().text else { throw Failure("XADD failed") }
                    try eventually("it is done") { try host.acknowledged(client) == id }
                    _ = try client.call("XDEL", FleetHost.stream, id)
                }
                for _ in 0..<3 { try publishAndDelete() }
                // The first entry that is read after it.
                try publish(client, "op", "logout", "user", "nobody")
                try host.waitUntilAtEnd(client)
                #expect(try host.users() == ["alice", "bob"])
                #expect(host.log.matches(of: /log-outs may have been missed/).count == 1, "\(host.log)")

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

        /// Only a complete round is contact with the stream.
        @Test func `a name that is not one of the relays' is an outage, and the log says how it is repaired`() throws {
            try withFleet(
                1,
                {
                    $0.settings["", "on-outage"] = "logout-all"
                    $0.settings["", "grace"] = "1s"
                }
            ) { _, client, hosts in
                try hosts[0].logIn("alice")
                #expect(try client.call("SET", "\(FleetHost.stream):incarnation", "junk") == .ok)
                try eventually("everybody is logged out") { try hosts[0].users() == [] }
                #expect(hosts[0].log.contains("redis-cli DEL \(FleetHost.stream):incarnation"), "\(hosts[0].log)")
                _ = try client.call("DEL", "\(FleetHost.stream):incarnation")
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
            }
        }

        @Test func `a relay shows its host in the table before it makes up for a gap`() throws {
            try withFleet { _, client, hosts in
                try publish(client, "op", "logout", "user", "nobody")
                try hosts[0].waitUntilAtEnd(client)
                try hosts[0].daemon.process?.standStill()
                #expect(try client.call("FLUSHALL") == .ok)
                try eventually("the host is in the table") { try hosts[0].acknowledged(client) == "0-0" }
                hosts[0].daemon.process?.signal(SIGCONT)
            }
        }

        @Test func `two relays that call themselves by one name say so`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let hosts = try ["one", "two"].map {
                    try FleetHost(machine, $0, redis) { $0.settings["", "host"] = "same" }
                }
                for host in hosts {
                    try eventually("it says so") { host.log.contains("another relay has this host's name") }
                }
            }
        }

        @Test func `without a stream for too long everybody is logged out, where that is configured`() throws {
            try withFleet(
                1,
                {
                    $0.settings["", "on-outage"] = "logout-all"
                    $0.settings["", "grace"] = "1s"
                }
            ) { redis, client, hosts in
                try hosts[0].logIn("alice")
                redis.kill()
                try eventually("everybody is logged out") { try hosts[0].users() == [] }
                try eventually("the log says so") {
                    hosts[0].log.contains("there was no connection to the stream for too long")
                }
            }
        }
    }
}
