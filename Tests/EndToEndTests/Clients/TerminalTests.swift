import Foundation
import Testing

extension EndToEnd {
    /// thumbcachectl on a terminal, which `python/terminal.py` plays.
    struct TerminalTests {
        /// - Parameter steps: of `python/terminal.py`.
        private func run(
            _ machine: Machine, _ daemon: Daemon, _ arguments: [String], _ steps: [String],
            environment: [String: String] = [:], program: String = "\(Files.programs)/thumbcachectl"
        ) throws -> Finished {
            try machine.run(
                ["python3", "\(Files.repository)/Tests/EndToEndTests/python/terminal.py"] + steps
                    + ["--", program, "--socket", daemon.socket] + arguments,
                environment: ["TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": ""].merging(environment) {
                    $1
                })
        }

        @Test func `show draws with graphics where the terminal says it has them, else with cells`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                _ = try client.call("LOGIN", "alice")
                let picture = try read("\(Files.repository)/examples/pictures/bob.png")
                _ = try client.call("PUT", "alice", "bob", picture)

                let graphics = try run(machine, daemon, ["show", "alice", "bob"], ["--graphics"])
                #expect(graphics.status == 0)
                #expect(graphics.text.contains("\u{1b}_Ga=T,f=32,s=160,v=160,q=2,m=1;"), "\(graphics.everything)")

                let cells = try run(machine, daemon, ["show", "alice", "bob"], ["size=30x10"])
                #expect(cells.status == 0)
                #expect(cells.text.contains("▀") && cells.text.contains("\u{1b}[38;2;"))
                #expect(!cells.text.contains("\u{1b}_Ga=T"))
                #expect(cells.text.split(separator: "\u{1b}[0m\r\n").count == 9, "\(cells.everything)")

                let chosen = try run(machine, daemon, ["show", "alice", "bob", "--cells"], ["--graphics"])
                #expect(chosen.status == 0 && !chosen.text.contains("\u{1b}_G"))

                let plain = try run(
                    machine, daemon, ["show", "alice", "bob"], ["--graphics"], environment: ["NO_COLOR": "1"])
                #expect(plain.status == 0 && !plain.text.contains("\u{1b}"))
                #expect(try run(machine, daemon, ["show", "alice", "carol", "--cached"], []).status == 4)

                // A terminal that does not answer is drawn on with cells, and ^C ends the wait.
                let silent = try run(machine, daemon, ["show", "alice", "bob"], ["--silent"])
                #expect(silent.status == 0 && silent.text.contains("▀"), "\(silent.everything)")
                let stopped = try run(
                    machine, daemon, ["show", "alice", "bob"], ["--silent", "see=\u{1b}[c", "type=\u{3}"])
                #expect(stopped.status == 130 && !stopped.text.contains("▀"), "\(stopped.everything)")
                try daemon.stop()
            }
        }

        @Test func `a picture that nothing can be drawn of says so, and its bytes reach no terminal`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                _ = try client.call("LOGIN", "alice")
                // By its header it is a picture, and behind that it is not.
                let broken = Picture.gif("a", size: 200).prefix(40) + Array("\u{1b}]0;owned\u{7}\u{1b}[2J".utf8)
                _ = try client.call("PUT", "alice", "bob", Array(broken))
                let shown = try run(machine, daemon, ["show", "alice", "bob"], ["--graphics"])
                #expect(shown.status == 1, "\(shown.everything)")
                #expect(shown.text.contains("the picture is broken"))
                #expect(!shown.text.contains("owned"))
                try daemon.stop()
            }
        }

        /// What a renderer says that somebody has broken into: length, number, outcome, format, width, height.
        @Test(arguments: [
            "(4 * 65535 * 65535 % 2 ** 32, 1, 0, 4, 65535, 65535)", "(4 * 900, 1, 0, 4, 1, 900)", "(4, 2, 0, 4, 1, 1)",
            "(5, 1, 0, 1, 1, 1)", "(4, 1, 0, 4, 2, 1)", "()",
        ])
        func `a renderer that lies is not believed, and what it says reaches no terminal`(_ answer: String) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                _ = try client.call("LOGIN", "alice")
                _ = try client.call("PUT", "alice", "bob", Picture.gif("a"))
                let script = """
                    #!/usr/bin/python3
                    import socket, struct
                    handing = socket.socket(fileno=0)
                    _, (descriptor,), _, _ = socket.recv_fds(handing, 1, 1)
                    connection = socket.socket(fileno=descriptor)
                    head = connection.recv(16, socket.MSG_WAITALL)
                    connection.recv(struct.unpack(">I", head[:4])[0], socket.MSG_WAITALL)
                    answer = \(answer)
                    if answer:
                        connection.sendall(struct.pack(">IIBBHHH", *answer, 0) + b"\\x1b]0;owned\\x07" * 1000)
                    """
                try write(script, to: machine.path("thumbcached-renderer"))
                Files.makeExecutable(machine.path("thumbcached-renderer"))
                try write(read("\(Files.programs)/thumbcachectl"), to: machine.path("thumbcachectl"))
                Files.makeExecutable(machine.path("thumbcachectl"))
                let shown = try run(
                    machine, daemon, ["show", "alice", "bob"], ["--graphics"], program: machine.path("thumbcachectl"))
                #expect(shown.status == 1, "\(shown.everything)")
                #expect(!shown.text.contains("owned") && !shown.text.contains("_Ga=T"))
                try daemon.stop()
            }
        }

        @Test(arguments: [
            ("type=q", CInt(0)), ("signal=INT", 0), ("type=\u{3}", 0), ("signal=TERM", 143), ("signal=HUP", 129),
        ])
        func `top shows what happens, follows the size, and leaves the terminal as it was`(
            _ ending: String, _ status: CInt
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                _ = try client.call("LOGIN", "alice")
                _ = try client.call("PUT", "alice", "bob", Picture.gif("a"))
                let top = try run(
                    machine, daemon, ["top"],
                    // The first screen, one with rates, and one of another width.
                    [
                        "size=100x30", "see=\u{1b}[?1049h", "see=requests", "see=p99", "see=0/s stale", "size=40x12",
                        "see=in all\u{1b}[0m\r", ending,
                    ])
                #expect(top.status == status, "\(top.everything)")
                #expect(top.text.contains("1 images"))
                #expect(top.text.hasSuffix("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"), "\(top.everything)")
                try daemon.stop()
            }
        }

        @Test func `top says that the daemon is gone, and goes on when it is back`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let steps = [
                    "see=requests", "see=0/s stale", "run=kill \(daemon.pid)", "see=no daemon at", "type=q",
                ]
                let top = try run(machine, daemon, ["top"], steps)
                #expect(top.status == 0, "\(top.everything)")
                let without = try run(machine, daemon, ["top"], [])
                #expect(without.status == 3 && without.text.contains("no daemon at"), "\(without.everything)")
            }
        }

        @Test func `top prints one screen for a pipe, and an object for programs`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                func top(_ arguments: String...) throws -> Finished {
                    try machine.run(["\(Files.programs)/thumbcachectl", "--socket", daemon.socket, "top"] + arguments)
                }
                let once = try top("--once")
                #expect(once.status == 0 && once.text.hasPrefix("thumbcached "), "\(once.everything)")
                #expect(!once.text.contains("\u{1b}") && once.text.contains("\nbreakers    0 hosts open"))
                let json = try top("--once", "--json")
                let object = try JSONSerialization.jsonObject(with: Data(json.output)) as? [String: Any]
                #expect(object?["requests"] is [String: Any], "\(json.everything)")
                #expect(try top().status == 2)
                try daemon.stop()
            }
        }
    }
}
