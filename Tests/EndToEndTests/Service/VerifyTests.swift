import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// `thumbcachectl verify`: the store is looked over from outside, beside a daemon and without one.
    struct VerifyTests {
        private static let control = "\(Files.programs)/thumbcachectl"

        private func verify(
            _ machine: Machine, _ daemon: Daemon, _ arguments: String...
        ) throws -> (status: CInt, output: String, errors: String) {
            let directories = ["--cache-directory", daemon.cache, "--state-directory", daemon.state]
            let run = try machine.run([Self.control, "verify"] + directories + arguments)
            return (run.status, run.text, run.errors)
        }

        private func fill(_ client: RESPClient, _ users: [String]) throws {
            for user in users {
                #expect(try client.call("LOGIN", user) == .ok)
                for number in 0..<10 {
                    #expect(try client.call("PUT", user, "friend \(number)", Picture.gif("\(number)")) == .ok)
                }
            }
        }

        @Test func `I2: verify shows who is logged in, and behind the receipt that nothing of the user is left`() throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                try fill(client, ["alice", "eve"])
                for isRunning in [true, false] {
                    if !isRunning { try daemon.stop() }
                    let whole = try verify(machine, daemon)
                    #expect(whole.status == 0, "\(whole)")
                    #expect(whole.output.hasPrefix("The store is whole.\n2 users are logged in, with 20 images in "))
                    let there = try verify(machine, daemon, "--user", "alice")
                    #expect(there.status == 1)
                    #expect(there.output.hasPrefix("alice is logged in, with 10 images in "), "\(there)")
                    #expect(there.output.contains("\(daemon.state)/keys/\(geteuid())/"))
                    #expect(there.errors == "thumbcachectl: something of the user is there\n")
                    #expect(try verify(machine, daemon, "--user", "alice", "--uid", "77").status == 0)
                }
                try daemon.start()
                #expect(try daemon.connect().call("LOGOUT", "alice")["users"] == .integer(1))
                for isRunning in [true, false] {
                    if !isRunning { daemon.kill() }
                    let gone = try verify(machine, daemon, "--user", "alice")
                    #expect(gone.status == 0, "\(gone)")
                    #expect(gone.output.hasPrefix("Nothing of alice is in the store: no key, no session, no images.\n"))
                    #expect(gone.errors == "")
                    #expect(try verify(machine, daemon, "--user", "eve").status == 1)
                    #expect(try verify(machine, daemon).output.contains("1 user is logged in, with 10 images in "))
                }
            }
        }

        @Test func `I4, F1: behind kill -9 the store is whole, or what the kill left is said and the start mends it`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                for round in 0..<3 {
                    let client = try daemon.connect()
                    try fill(client, ["alice"])
                    // Some are still on their way when it dies.
                    for number in 0..<50 {
                        try client.send(["PUT", "alice", "\(number)", Picture.gif("\(number)", size: 60_000)])
                    }
                    #expect(try client.receive() == .ok)
                    daemon.kill()
                    let found = try verify(machine, daemon)
                    // A file on its way may be left, and nothing else.
                    let wrong = found.output.split(separator: "\n").filter { $0.hasPrefix("/") }
                    #expect(wrong.allSatisfy { $0.contains("/tmp.") }, "round \(round): \(found)")
                    #expect(found.status == (wrong.isEmpty ? 0 : 1))
                    try daemon.start()
                    try eventually("the start has mended what the kill left") {
                        try verify(machine, daemon).status == 0
                    }
                }
                #expect(try daemon.connect().call("LOGOUT", "alice")["users"] == .integer(1))
                daemon.kill()
                // Behind the receipt images go to the trash; what the kill left of that is noise without a key.
                let left = try verify(machine, daemon, "--user", "alice").output
                #expect(!left.contains("is the key file") && !left.contains("is the session file"), "\(left)")
                try daemon.start()
                try eventually("nothing of alice is left") {
                    try verify(machine, daemon, "--user", "alice").status == 0
                }
            }
        }

        @Test func `I5, F10, F11, F24: what somebody has done to the store is named, for people and for programs`()
            throws
        {
            try withMachine { machine in
                let daemon = try machine.daemon()
                try fill(try daemon.connect(), ["alice"])
                let entries = Files.under("\(daemon.cache)/users")
                var bytes = try read(entries[0])
                bytes[40] ^= 1
                // Over its own bytes: a new file would have another mode.
                let file = try FileHandle(forWritingTo: URL(fileURLWithPath: entries[0]))
                try file.write(contentsOf: bytes)
                try file.close()
                #expect(truncate(entries[1], 30) == 0)
                #expect(symlink("/etc/passwd", "\(daemon.cache)/li\u{1b}nk") == 0)
                let people = try verify(machine, daemon)
                #expect(people.status == 1)
                #expect(people.errors == "thumbcachectl: the store is not whole\n")
                #expect(people.output.hasPrefix("The store is not whole: 3 things are wrong.\n"))
                #expect(people.output.contains("\n\(entries[0]) is an image that was altered"))
                #expect(people.output.contains("\n\(entries[1]) is a torn image"))
                #expect(people.output.contains("\n\(daemon.cache)/li\\x1bnk was not made by the store."))
                let programs = try verify(machine, daemon, "--json")
                #expect(programs.status == 1)
                let json = try JSONSerialization.jsonObject(with: Data(programs.output.utf8)) as? [String: Any]
                let findings = try #require(json?["findings"] as? [[String: String]])
                #expect(findings.compactMap { $0["problem"] }.sorted() == ["altered", "foreign", "torn"])
                #expect(json?["users"] as? Int == 1)
                #expect(json?["images"] as? Int == 8)
                for text in [people.output, programs.output] { #expect(!text.contains("alice")) }
                // It was only looked at: the daemon serves the rest, and misses these.
                #expect(try read(entries[0]) == bytes)
                #expect(try daemon.info("rejected_entries") == "0")
            }
        }

        @Test func `a store that is not there, or is somebody else's, is no whole store: status 3`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                try daemon.writeConfiguration()
                for arguments in [[], ["--user", "alice"], ["--json"]] {
                    let run = try machine.run(
                        [Self.control, "verify", "--cache-directory", daemon.cache, "--state-directory", daemon.state]
                            + arguments)
                    #expect(run.status == 3)
                    #expect(run.text == "")
                    #expect(run.errors.contains("there is no store in the cache directory \(daemon.cache)"))
                }
                #expect(try verify(machine, daemon, "--uid", "3").status == 2)
                #expect(try verify(machine, daemon, "--user", "*").status == 2)
                #expect(try verify(machine, daemon, "--pending", "relative").status == 2)
            }
        }
    }
}
