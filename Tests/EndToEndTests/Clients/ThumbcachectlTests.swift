import Foundation
import Testing

extension EndToEnd.Clients {
    /// Commands of thumbcachectl that send several requests, with a running daemon.
    struct ThumbcachectlTests {
        private func run(
            _ machine: Machine, _ daemon: Daemon, _ arguments: [String]
        ) throws -> (status: Int32, text: String) {
            let finished = try machine.run(
                ["\(Files.programs)/thumbcachectl", "--socket", daemon.socket] + arguments, environment: [:])
            return (finished.status, finished.text)
        }

        @Test func `warm waits for all images and counts missing ones`() throws {
            try withMachine { machine in
                let images = try machine.makeDirectory("images")
                let profiles = (0..<12).map { "p\($0)" }
                for profile in profiles { try write(TestImage.gif(profile), to: "\(images)/\(profile)") }
                let list = machine.path("list")
                try write(Array((profiles + ["nobody", "p0"]).joined(separator: "\n").utf8), to: list)
                let nginx = try Nginx(machine, serving: images)
                let daemon = try machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                #expect(try run(machine, daemon, ["login", "alice"]).status == 0)
                let warmed = try run(machine, daemon, ["warm", "alice", "--from", list])
                #expect(warmed.status == 0)
                #expect(warmed.text.contains("images 12\nnone 1\nfailed 0\n"))
                #expect(try run(machine, daemon, ["stat", "alice", "p11"]).status == 0)
                #expect(try run(machine, daemon, ["warm", "bob", "p0"]).status == 1)
            }
        }

        @Test func `verify reads the directories from the daemon's configuration`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                #expect(try run(machine, daemon, ["login", "alice"]).status == 0)
                let verified = try run(machine, daemon, ["verify", "--config", daemon.configuration])
                #expect(verified.status == 0 && verified.text.contains("1 user is logged in"), "\(verified.text)")
            }
        }

        @Test func `info accepts every section of INFO`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let titles = try run(machine, daemon, ["info"]).text.split(separator: "\n").filter {
                    $0.hasPrefix("# ")
                }
                #expect(titles.count > 5)
                for title in titles {
                    let section = try run(machine, daemon, ["info", title.dropFirst(2).lowercased()])
                    #expect(section.status == 0 && section.text.hasPrefix(title), "\(title)")
                }
            }
        }

        @Test func `warm counts failed downloads and exits with status 1`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon { $0.settings.setOrigin("http://127.0.0.1:1/{profile}") }
                #expect(try run(machine, daemon, ["login", "alice"]).status == 0)
                let warmed = try run(machine, daemon, ["warm", "alice", "bob"])
                #expect(warmed.status == 1)
                #expect(warmed.text.contains("failed 1"))
            }
        }
    }
}
