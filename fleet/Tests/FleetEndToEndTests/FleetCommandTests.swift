import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// Publishing, and waiting until it is true everywhere.
    struct FleetCommandTests {
        private func fleet(_ machine: Machine, _ host: FleetHost, _ words: String...) throws -> Finished {
            try machine.run(
                ["\(Files.programs)/thumbcachectl", "fleet"] + words + ["--config", host.configuration])
        }

        @Test func `a log-out succeeds when every live host has done it, and says which owe it`() throws {
            try withMachine { machine in
                let redis = try RedisServer(machine)
                let client = try redis.connect()
                let hosts = try ["one", "two"].map { try FleetHost(machine, $0, redis) }
                for host in hosts {
                    try host.waitUntilAtEnd(client)
                    try host.logIn("alice", "bob")
                }
                let done = try fleet(machine, hosts[0], "logout", "alice", "--wait", "60")
                #expect(done.status == 0, "\(done.everything)")
                #expect(done.text.matches(of: /\n(one|two) +done +/).count == 2, "\(done.text)")
                for host in hosts { #expect(try host.users() == ["bob"]) }

                hosts[1].killRelay()
                let owed = try fleet(machine, hosts[0], "logout", "bob", "--wait", "1", "--live", "3600")
                #expect(owed.status == 1, "\(owed.everything)")
                #expect(owed.text.contains(/\ntwo +owed +/), "\(owed.text)")
                #expect(try hosts[1].users() == ["bob"])
                // One that is away is not waited for, and does it when it is back.
                try eventually("it is away") {
                    try fleet(machine, hosts[0], "status", "--live", "1").text.contains(/\ntwo +away +/)
                }
                let away = try fleet(machine, hosts[0], "purge", "bob", "carol", "--wait", "60", "--live", "1")
                #expect(away.status == 0, "\(away.everything)")
                #expect(away.text.contains(/\ntwo +away +/), "\(away.text)")
                try hosts[1].startRelay()
                try hosts[1].waitUntilAtEnd(client)
                for host in hosts { #expect(try host.users() == []) }
                let status = try fleet(machine, hosts[0], "status")
                #expect(status.status == 0, "\(status.everything)")
                let rows = status.text.matches(of: /\n(one|two) +live +\d+-\d+ +0 +\d+ s ago +0(?=\n)/)
                #expect(rows.count == 2, "\(status.text)")
            }
        }

        @Test func `with nobody there, without a server, or without a user there is no success`() throws {
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
                #expect(try fleet(machine, host, "logout").status == 2)
                #expect(try fleet(machine, host, "logout", "*").status == 2)
                redis.kill()
                #expect(try fleet(machine, host, "status").status == 3)
            }
        }
    }
}
