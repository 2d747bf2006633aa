import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// `thumbcachectl fleet`: publishing, and waiting for all hosts.
    struct FleetCommandTests {
        private func fleet(_ machine: Machine, _ host: FleetHost, _ words: String...) throws -> Finished {
            try machine.run(
                ["\(Files.programs)/thumbcachectl", "fleet"] + words + ["--config", host.configuration])
        }

        @Test func `a logout succeeds once every host has done it, and lists the state of each host`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let client = try redis.connect()
                let hosts = try ["one", "two"].map { try FleetHost(machine, $0, redis) }
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice", "bob")
                }
                let done = try fleet(machine, hosts[0], "logout", "alice", "--wait", "60", "--live", "1")
                #expect(done.status == 0, "\(done.summary)")
                #expect(done.text.matches(of: /\n(one|two) +done +/).count == 2, "\(done.text)")
                for host in hosts { #expect(try host.users() == ["bob"]) }

                hosts[1].killRelay()
                let owed = try fleet(machine, hosts[0], "logout", "bob", "--wait", "1", "--live", "3600")
                #expect(owed.status == 1, "\(owed.summary)")
                #expect(owed.text.contains(/\ntwo +pending +/), "\(owed.text)")
                #expect(try hosts[1].users() == ["bob"])
                // A host that is away is not waited for; it executes the commands when it is back.
                try eventually("the host is away") {
                    try fleet(machine, hosts[0], "status", "--live", "1").text.contains(/\ntwo +away +/)
                }
                let away = try fleet(machine, hosts[0], "purge", "bob", "carol", "--wait", "60", "--live", "1")
                #expect(away.status == 1, "\(away.summary)")
                #expect(away.text.contains(/\ntwo +away +/), "\(away.text)")
                #expect(away.errors.contains("two: not seen for 1 seconds and not done"), "\(away.errors)")
                let liveOnly = try fleet(
                    machine, hosts[0], "purge", "bob", "carol", "--wait", "60", "--live", "1", "--live-only")
                #expect(liveOnly.status == 0, "\(liveOnly.summary)")
                try hosts[1].startRelay()
                try hosts[1].waitUntilAtEnd(client)
                for host in hosts { #expect(try host.users() == []) }
                let status = try fleet(machine, hosts[0], "status")
                #expect(status.status == 0, "\(status.summary)")
                let rows = status.text.matches(of: /\n(one|two) +live +\d+-\d+ +0 +\d+ s ago +0(?=\n)/)
                #expect(rows.count == 2, "\(status.text)")
            }
        }

        @Test func `a logout fails without hosts, without replicas, or without a server`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let host = try FleetHost(machine, "one", redis)
                try host.waitUntilAtEnd(try redis.connect())
                host.killRelay()
                #expect(try fleet(machine, host, "forget", "one").status == 0)
                #expect(try fleet(machine, host, "forget", "one").status == 1)
                #expect(try fleet(machine, host, "logout", "alice", "--wait", "0").status == 1)
                let replicas = try fleet(machine, host, "logout", "alice", "--wait", "1", "--replicas", "1")
                #expect(replicas.status == 1 && replicas.errors.contains("0 of 1 replicas have it"))
                redis.kill()
                #expect(try fleet(machine, host, "status").status == 3)
            }
        }

        @Test func `help and errors name the command that was called`() throws {
            try withMachine { machine in
                func fleet(_ words: String...) throws -> Finished {
                    try machine.run(["\(Files.programs)/thumbcachectl", "fleet"] + words)
                }
                for words in [[], ["--help"], ["help"]] as [[String]] {
                    let help = try machine.run(["\(Files.programs)/thumbcachectl", "fleet"] + words)
                    #expect(help.status == 0 && help.text.contains("USAGE: thumbcachectl fleet <subcommand>"))
                    #expect(!help.text.contains("\n  run "), "\(help.text)")
                }
                #expect(try fleet("logout", "--help").text.contains("USAGE: thumbcachectl fleet logout "))
                let relay = try machine.run([FleetHost.program, "--help"])
                #expect(relay.text.contains("USAGE: thumbcached-relay <subcommand>"))
                for (words, sentence) in [
                    (["logout"], "no user given; name one, or use --all for every user; see --help"),
                    (["logout", "*"], "'*' is not a user; use --all for every user; see --help"),
                    (["purge", "a", "--all"], "--all means every user, so no user can be named with it; see --help"),
                    (["status", "--live", "0"], "--live 0 is out of range: 1 to 86400 seconds; see --help"),
                ] {
                    let finished = try machine.run(["\(Files.programs)/thumbcachectl", "fleet"] + words)
                    #expect(finished.status == 2)
                    #expect(finished.errors == "thumbcachectl fleet: \(sentence)\n")
                }
                #expect(try fleet("run").status == 2)
            }
        }

        /// F29: the loss of a stream may include the host table.
        @Test func `a logout fails if hosts may be missing from the table`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let client = try redis.connect()
                let hosts = try ["one", "two"].map { try FleetHost(machine, $0, redis) }
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice")
                }
                hosts[1].killRelay()
                #expect(try client.call("FLUSHALL") == .ok)
                try hosts[0].waitUntilAtEnd(client)
                let lost = try fleet(machine, hosts[0], "logout", "alice", "--wait", "1")
                #expect(lost.status == 1, "\(lost.summary)")
                #expect(!lost.text.contains("two"), "\(lost.text)")
                #expect(lost.errors.contains("hosts may be missing from the table"), "\(lost.errors)")
                #expect(try hosts[1].users() == ["alice"])
            }
        }

        /// F28: a relay waits for a daemon that does not respond.
        @Test func `a host that is busy with a logout is neither away nor done`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let client = try redis.connect()
                let hosts = try ["one", "two"].map { try FleetHost(machine, $0, redis) }
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice")
                }
                try hosts[1].daemon.process?.suspend()
                let first = try fleet(machine, hosts[0], "logout", "nobody", "--wait", "3", "--live", "1")
                #expect(first.text.contains(/\ntwo +pending +/), "\(first.summary)")
                // The host has been busy for longer than the window.
                let busy = try fleet(
                    machine, hosts[0], "logout", "alice", "--wait", "1", "--live", "1", "--live-only")
                #expect(busy.status == 1, "\(busy.summary)")
                #expect(busy.text.contains(/\ntwo +pending +/), "\(busy.text)")
                hosts[1].daemon.process?.signal(SIGCONT)
                let done = try fleet(machine, hosts[0], "logout", "alice", "--wait", "60", "--live", "1")
                #expect(done.status == 0, "\(done.summary)")
                #expect(try hosts[1].users() == [])
            }
        }

        /// Extreme numbers, and rows written by any client with the relay's permissions.
        @Test func `status shows rows with any content, and lags of any size`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let host = try FleetHost(machine, "one", redis)
                let client = try redis.connect()
                try host.waitUntilAtEnd(client)
                let table = "\(FleetHost.stream):hosts"
                let rows = [
                    "min": "1-1 \(Int64.min) x \(Int.min) p", "max": "1-1 \(Int64.max) x \(Int.max) p \(Int64.min)",
                    "last": "\(UInt64.max)-\(UInt64.max) 1 x 0 p", "odd": "what", "empty": "",
                ]
                for (name, row) in rows { _ = try client.call("HSET", table, name, row) }
                let status = try fleet(machine, host, "status")
                #expect(status.status == 0, "\(status.summary)")
                for name in rows.keys { #expect(status.text.contains("\n\(name) "), "\(status.text)") }
                let logout = try fleet(machine, host, "logout", "alice", "--wait", "0", "--live", "1")
                #expect(logout.status == 1, "\(logout.summary)")
            }
        }
    }
}
