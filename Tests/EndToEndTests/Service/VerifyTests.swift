import Foundation
import Glibc
import Testing

extension EndToEnd.Service {
    /// `thumbcachectl verify`, with and without a running daemon.
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
                    #expect(try client.call("PUT", user, "friend \(number)", TestImage.gif("\(number)")) == .ok)
                }
            }
        }

        @Test func `I2: verify lists logged-in users, and finds no data of a user after the logout`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                try fill(client, ["alice", "eve"])
                for isRunning in [true, false] {
                    if !isRunning { try daemon.stop() }
                    let whole = try verify(machine, daemon)
                    #expect(whole.status == 0, "\(whole)")
                    #expect(
                        whole.output.hasPrefix("The store has no problems.\n2 users are logged in, with 20 images in "))
                    let present = try verify(machine, daemon, "--user", "alice")
                    #expect(present.status == 1)
                    #expect(present.output.hasPrefix("alice is logged in, with 10 images in "), "\(present)")
                    #expect(present.output.contains("\(daemon.state)/keys/\(geteuid())/"))
                    #expect(present.errors == "thumbcachectl: the store contains data of the user\n")
                    #expect(try verify(machine, daemon, "--user", "alice", "--uid", "77").status == 0)
                }
                try daemon.start()
                #expect(try daemon.connect().call("LOGOUT", "alice")["users"] == .integer(1))
                for isRunning in [true, false] {
                    if !isRunning { daemon.kill() }
                    let removed = try verify(machine, daemon, "--user", "alice")
                    #expect(removed.status == 0, "\(removed)")
                    #expect(
                        removed.output.hasPrefix("The store contains nothing of alice: no key, no session, no images."))
                    #expect(removed.errors == "")
                    #expect(try verify(machine, daemon, "--user", "eve").status == 1)
                    #expect(try verify(machine, daemon).output.contains("1 user is logged in, with 10 images in "))
                }
            }
        }

        @Test func `I4, F1: after a kill, verify finds only temporary files, and the next start removes them`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                for round in 0..<3 {
                    let client = try daemon.connect()
                    try fill(client, ["alice"])
                    // Some of these are not yet processed at the kill.
                    for number in 0..<50 {
                        try client.send(["PUT", "alice", "\(number)", TestImage.gif("\(number)", size: 60_000)])
                    }
                    #expect(try client.receive() == .ok)
                    daemon.kill()
                    let found = try verify(machine, daemon)
                    // Only temporary files may be left.
                    let wrong = found.output.split(separator: "\n").filter { $0.hasPrefix("/") }
                    #expect(wrong.allSatisfy { $0.contains("/tmp.") }, "round \(round): \(found)")
                    #expect(found.status == (wrong.isEmpty ? 0 : 1))
                    try daemon.start()
                    try eventually("the temporary files are removed") {
                        try verify(machine, daemon).status == 0
                    }
                }
                #expect(try daemon.connect().call("LOGOUT", "alice")["users"] == .integer(1))
                daemon.kill()
                // After the logout, remaining images are in the trash and cannot be decrypted.
                let left = try verify(machine, daemon, "--user", "alice").output
                #expect(!left.contains("is the key file") && !left.contains("is the session file"), "\(left)")
                try daemon.start()
                try eventually("no data of alice is left") {
                    try verify(machine, daemon, "--user", "alice").status == 0
                }
            }
        }

        @Test func `I5, F10, F11, F24: verify reports altered, torn and foreign files as text and as JSON`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                try fill(try daemon.connect(), ["alice"])
                let entries = Files.under("\(daemon.cache)/users")
                var bytes = try read(entries[0])
                bytes[40] ^= 1
                // Overwritten in place: a new file would have another mode.
                let file = try FileHandle(forWritingTo: URL(fileURLWithPath: entries[0]))
                try file.write(contentsOf: bytes)
                try file.close()
                #expect(truncate(entries[1], 30) == 0)
                #expect(symlink("/etc/passwd", "\(daemon.cache)/li\u{1b}nk") == 0)
                let text = try verify(machine, daemon)
                #expect(text.status == 1)
                #expect(text.errors == "thumbcachectl: the store has problems\n")
                #expect(text.output.hasPrefix("The store has 3 problems.\n"))
                #expect(text.output.contains("\n\(entries[0]) is an image that was altered or moved"))
                #expect(text.output.contains("\n\(entries[1]) is a torn image"))
                #expect(text.output.contains("\n\(daemon.cache)/li\\x1bnk was not created by the store."))
                let json = try verify(machine, daemon, "--json")
                #expect(json.status == 1)
                let report = try JSONSerialization.jsonObject(with: Data(json.output.utf8)) as? [String: Any]
                let findings = try #require(report?["findings"] as? [[String: String]])
                #expect(findings.compactMap { $0["problem"] }.sorted() == ["altered", "foreign", "torn"])
                #expect(report?["users"] as? Int == 1)
                #expect(report?["images"] as? Int == 8)
                for output in [text.output, json.output] { #expect(!output.contains("alice")) }
                // verify changes nothing.
                #expect(try read(entries[0]) == bytes)
                #expect(try daemon.info("rejected_entries") == "0")
            }
        }

        @Test func `verify exits with status 3 without a store, and with status 2 for invalid arguments`() throws {
            try withMachine { machine in
                let daemon = Daemon(machine, "daemon")
                try daemon.writeConfiguration()
                for arguments in [[], ["--user", "alice"], ["--json"]] {
                    let run = try machine.run(
                        [Self.control, "verify", "--cache-directory", daemon.cache, "--state-directory", daemon.state]
                            + arguments)
                    #expect(run.status == 3)
                    #expect(run.text == "")
                    #expect(run.errors.contains("no store in the cache directory \(daemon.cache)"))
                }
                #expect(try verify(machine, daemon, "--uid", "3").status == 2)
                #expect(try verify(machine, daemon, "--user", "*").status == 2)
                #expect(try verify(machine, daemon, "--pending", "relative").status == 2)
            }
        }
    }
}
