import Foundation
import Testing

extension EndToEnd.Clients {
    /// thumbcachectl on a pseudoterminal, which `python/terminal.py` controls.
    struct TerminalTests {
        /// - Parameter steps: arguments of `python/terminal.py`.
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

        @Test func `show uses graphics if the terminal supports them, and cells otherwise`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                let image = try read("\(Files.repository)/examples/images/bob.png")
                _ = try client.call("PUT", "alice", "bob", image)

                let graphics = try run(machine, daemon, ["show", "alice", "bob"], ["--graphics"])
                #expect(graphics.status == 0)
                #expect(graphics.text.contains("\u{1b}_Ga=T,f=32,s=160,v=160,q=2,m=1;"), "\(graphics.summary)")

                let cells = try run(machine, daemon, ["show", "alice", "bob"], ["size=30x10"])
                #expect(cells.status == 0)
                #expect(cells.text.contains("▀") && cells.text.contains("\u{1b}[38;2;"))
                #expect(!cells.text.contains("\u{1b}_Ga=T"))
                #expect(cells.text.split(separator: "\u{1b}[0m\r\n").count == 9, "\(cells.summary)")

                let chosen = try run(machine, daemon, ["show", "alice", "bob", "--cells"], ["--graphics"])
                #expect(chosen.status == 0 && !chosen.text.contains("\u{1b}_G"))

                let plain = try run(
                    machine, daemon, ["show", "alice", "bob"], ["--graphics"], environment: ["NO_COLOR": "1"])
                #expect(plain.status == 0 && !plain.text.contains("\u{1b}"))
                #expect(try run(machine, daemon, ["show", "alice", "carol", "--cached"], []).status == 4)

                // Without an answer of the terminal, show uses cells. ^C interrupts the wait.
                let silent = try run(machine, daemon, ["show", "alice", "bob"], ["--silent"])
                #expect(silent.status == 0 && silent.text.contains("▀"), "\(silent.summary)")
                let stopped = try run(
                    machine, daemon, ["show", "alice", "bob"], ["--silent", "see=\u{1b}[c", "type=\u{3}"])
                #expect(stopped.status == 130 && !stopped.text.contains("▀"), "\(stopped.summary)")
            }
        }

        @Test func `show reports a damaged image and does not print its bytes`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                // The header is valid, the rest is not.
                let broken = TestImage.gif("a", size: 200).prefix(40) + Array("\u{1b}]0;owned\u{7}\u{1b}[2J".utf8)
                _ = try client.call("PUT", "alice", "bob", Array(broken))
                let shown = try run(machine, daemon, ["show", "alice", "bob"], ["--graphics"])
                #expect(shown.status == 1, "\(shown.summary)")
                #expect(shown.text.contains("the image is damaged"))
                #expect(!shown.text.contains("owned"))
            }
        }

        /// Replies of a compromised renderer: length, number, outcome, format, width, height.
        @Test(arguments: [
            "(4 * 65535 * 65535 % 2 ** 32, 1, 0, 4, 65535, 65535)", "(4 * 900, 1, 0, 4, 1, 900)", "(4, 2, 0, 4, 1, 1)",
            "(5, 1, 0, 1, 1, 1)", "(4, 1, 0, 4, 2, 1)", "()",
        ])
        func `an invalid reply of a renderer is rejected and not printed`(_ answer: String) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                _ = try client.call("PUT", "alice", "bob", TestImage.gif("a"))
                let script = """
                    #!/usr/bin/python3
                    import socket, struct
                    control = socket.socket(fileno=0)
                    _, (descriptor,), _, _ = socket.recv_fds(control, 1, 1)
                    connection = socket.socket(fileno=descriptor)
                    def receive():
                        fields, body = struct.unpack(">II", connection.recv(8, socket.MSG_WAITALL))
                        connection.recv(fields + body, socket.MSG_WAITALL)
                    receive()
                    connection.sendall(struct.pack(">II", 1, 0) + b"r")
                    receive()
                    answer = \(answer)
                    if answer:
                        head = struct.pack(">II", 10, answer[0]) + struct.pack(">IBBHH", *answer[1:])
                        connection.sendall(head + b"\\x1b]0;owned\\x07" * 1000)
                    """
                try write(script, to: machine.path("thumbcached-renderer"))
                Files.makeExecutable(machine.path("thumbcached-renderer"))
                try write(read("\(Files.programs)/thumbcachectl"), to: machine.path("thumbcachectl"))
                Files.makeExecutable(machine.path("thumbcachectl"))
                let shown = try run(
                    machine, daemon, ["show", "alice", "bob"], ["--graphics"], program: machine.path("thumbcachectl"))
                #expect(shown.status == 1, "\(shown.summary)")
                let reason = answer == "()" ? "Broken pipe" : "invalid message"
                #expect(shown.summary.contains(reason), "\(shown.summary)")
                #expect(!shown.text.contains("owned") && !shown.text.contains("_Ga=T"))
            }
        }

        @Test(arguments: [
            ("type=q", CInt(0)), ("signal=INT", 0), ("type=\u{3}", 0), ("signal=TERM", 143), ("signal=HUP", 129),
        ])
        func `top follows the terminal size and restores the terminal`(
            _ ending: String, _ status: CInt
        ) throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let client = try daemon.connect(loggedInAs: "alice")
                _ = try client.call("PUT", "alice", "bob", TestImage.gif("a"))
                let top = try run(
                    machine, daemon, ["top"],
                    // The first screen, one with rates, and one of another size.
                    [
                        "size=100x30", "see=\u{1b}[?1049h", "see=requests", "see=p99", "see=0/s stale", "size=40x12",
                        "see=total\u{1b}[0m\r", ending,
                    ])
                #expect(top.status == status, "\(top.summary)")
                #expect(top.text.contains("1 images"))
                #expect(top.text.hasSuffix("\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l"), "\(top.summary)")
            }
        }

        @Test func `top reports a stopped daemon`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                let steps = [
                    "see=requests", "see=0/s stale", "run=kill \(daemon.pid)", "see=no daemon at", "type=q",
                ]
                let top = try run(machine, daemon, ["top"], steps)
                #expect(top.status == 0, "\(top.summary)")
                let without = try run(machine, daemon, ["top"], [])
                #expect(without.status == 3 && without.text.contains("no daemon at"), "\(without.summary)")
            }
        }

        @Test func `top --once prints one screen as text or as JSON`() throws {
            try withMachine { machine in
                let daemon = try machine.daemon()
                func top(_ arguments: String...) throws -> Finished {
                    try machine.run(["\(Files.programs)/thumbcachectl", "--socket", daemon.socket, "top"] + arguments)
                }
                let once = try top("--once")
                #expect(once.status == 0 && once.text.hasPrefix("thumbcached "), "\(once.summary)")
                #expect(!once.text.contains("\u{1b}") && once.text.contains("\nbreakers    0 hosts open"))
                let json = try top("--once", "--json")
                let object = try JSONSerialization.jsonObject(with: Data(json.output)) as? [String: Any]
                #expect(object?["requests"] is [String: Any], "\(json.summary)")
                #expect(try top().status == 2)
            }
        }
    }
}
