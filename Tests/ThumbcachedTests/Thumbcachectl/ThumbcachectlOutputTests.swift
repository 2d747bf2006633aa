import Foundation
import Testing

@Suite struct ThumbcachectlOutputTests {
    static let receipt = FakeDaemon(
        replies: [
            "%6\r\n$5\r\nusers\r\n:1\r\n$6\r\nimages\r\n_\r\n$5\r\nbytes\r\n_\r\n$9\r\ncancelled\r\n:2\r\n"
                + "$8\r\nsessions\r\n:0\r\n$5\r\nepoch\r\n:4097\r\n"
        ])

    static let meta = FakeDaemon(
        replies: [
            "%4\r\n$5\r\nimage\r\n$4\r\n\0img\r\n$4\r\ntype\r\n$9\r\nimage/png\r\n$6\r\nlength\r\n:4\r\n"
                + "$3\r\nttl\r\n_\r\n"
        ])

    @Test func `a receipt is aligned on a terminal`() throws {
        let run = try Thumbcachectl.run(["logout", "alice"], terminal: true, against: Self.receipt)
        #expect(
            run.text == """
                users      1
                images     -
                bytes      -
                cancelled  2
                sessions   0
                epoch      4097

                """)
    }

    @Test func `a receipt is one key and value per line in a pipe`() throws {
        let run = try Thumbcachectl.run(["purge", "alice"], against: Self.receipt)
        #expect(run.text == "users 1\nimages -\nbytes -\ncancelled 2\nsessions 0\nepoch 4097\n")
    }

    @Test func `a receipt is one JSON object, also on a terminal`() throws {
        for terminal in [false, true] {
            let run = try Thumbcachectl.run(["logout", "alice", "--json"], terminal: terminal, against: Self.receipt)
            #expect(
                run.text
                    == "{\"users\":1,\"images\":null,\"bytes\":null,\"cancelled\":2,\"sessions\":0,\"epoch\":4097}\n")
        }
    }

    @Test func `an image is written to a pipe unchanged`() throws {
        let image = String(decoding: UInt8.min...0x7f, as: UTF8.self)
        let run = try Thumbcachectl.run(
            ["get", "alice", "bob"], against: FakeDaemon(replies: ["$128\r\n\(image)\r\n"]))
        #expect(run.output == Array(UInt8.min...0x7f))
    }

    @Test func `an image for a terminal is refused before any request`() throws {
        let run = try Thumbcachectl.run(
            ["get", "alice", "bob"], environment: ["THUMBCACHED_SOCKET": "/nonexistent"], terminal: true)
        #expect(run.status == 2)
        #expect(run.text == "")
        #expect(
            run.errors
                == "thumbcachectl: an image is not written to a terminal; name a file with --output, or use a pipe\n")
    }

    @Test func `--meta prints a description instead of the image`() throws {
        let plain = try Thumbcachectl.run(["get", "alice", "bob", "--meta"], against: Self.meta)
        #expect(plain.text == "type image/png\nlength 4\nttl -\n")
        let json = try Thumbcachectl.run(["get", "alice", "bob", "--json"], terminal: true, against: Self.meta)
        #expect(json.text == "{\"type\":\"image/png\",\"length\":4,\"ttl\":null}\n")
        #expect(json.requests == [["GET", "alice", "bob", "META"]])
    }

    @Test func `--output replaces a file atomically, and --meta prints a description`() throws {
        try Fixture.withDirectory { directory in
            let file = "\(directory)/bob.png"
            try Data("an older and longer image".utf8).write(to: URL(filePath: file))
            let run = try Thumbcachectl.run(
                ["get", "alice", "bob", "--meta", "--output", file], terminal: true, against: Self.meta)
            #expect(run.status == 0)
            #expect(run.text == "type    image/png\nlength  4\nttl     -\n")
            #expect(try Data(contentsOf: URL(filePath: file)) == Data("\0img".utf8))
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == ["bob.png"])
        }
    }

    @Test func `a device is written to, not replaced`() throws {
        let daemon = FakeDaemon(replies: ["$3\r\nimg\r\n"])
        let run = try Thumbcachectl.run(["get", "alice", "bob", "--output", "/dev/null"], against: daemon)
        #expect(run.status == 0)
        var status = stat()
        try #require(stat("/dev/null", &status) == 0)
        #expect(status.st_mode & S_IFMT == S_IFCHR)

        let full = try Thumbcachectl.run(["get", "alice", "bob", "--output", "/dev/full"], against: daemon)
        #expect(full.status == 2)
        #expect(full.errors == "thumbcachectl: cannot write /dev/full: No space left on device\n")
    }

    @Test func `a failed write leaves no temporary file`() throws {
        try Fixture.withDirectory { directory in
            let daemon = FakeDaemon(replies: ["$3\r\nimg\r\n"])
            let target = "\(directory)/absent/bob.png"
            let run = try Thumbcachectl.run(["get", "alice", "bob", "--output", target], against: daemon)
            #expect(run.status == 2)
            #expect(run.errors == "thumbcachectl: cannot write \(target): No such file or directory\n")

            let result = try Thumbcachectl.run(["get", "alice", "bob", "--output", directory], against: daemon)
            #expect(result.status == 2)
            #expect(result.errors == "thumbcachectl: cannot write \(directory): Is a directory\n")
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == [])
        }
    }

    @Test func `F23: each id is printed on one line, whatever it contains`() throws {
        let ids = [
            "alice@example.org", "a\nb", "\u{1b}[2J", "back\\slash", "Zoë", "\u{202e}x", "\u{2028}", "\u{e000}", "\"",
        ]
        let reply = "*\(ids.count)\r\n" + ids.map { "$\($0.utf8.count)\r\n\($0)\r\n" }.joined()
        let run = try Thumbcachectl.run(["users"], against: FakeDaemon(replies: [reply]))
        #expect(
            run.text == """
                alice@example.org
                a\\x0ab
                \\x1b[2J
                back\\\\slash
                Zoë
                \\xe2\\x80\\xaex
                \\xe2\\x80\\xa8
                \\xee\\x80\\x80
                "

                """)
        let json = try Thumbcachectl.run(["users", "--json"], against: FakeDaemon(replies: [reply]))
        #expect(
            json.text
                == #"["alice@example.org","a\nb","\u001b[2J","back\\slash","Zoë","\u202ex","\u2028","\ue000","\""]"#
                + "\n")
        let decoded = try JSONSerialization.jsonObject(with: Data(json.output)) as? [String]
        #expect(decoded == ids)
    }

    @Test func `INFO is printed unchanged, or as one JSON object per section`() throws {
        let text = "# Server\r\nversion:0.1.0\r\nuptime:12\r\n\r\n# Cache\r\nhits:007\r\nsocket:/a:b\r\n"
        let daemon = FakeDaemon(replies: ["=\(text.utf8.count + 4)\r\ntxt:\(text)\r\n"])
        let plain = try Thumbcachectl.run(["info"], against: daemon)
        #expect(plain.text == "# Server\nversion:0.1.0\nuptime:12\n\n# Cache\nhits:007\nsocket:/a:b\n")
        let json = try Thumbcachectl.run(["info", "--json"], against: daemon)
        #expect(
            json.text
                == #"{"server":{"version":"0.1.0","uptime":12},"cache":{"hits":"007","socket":"/a:b"}}"# + "\n")
    }

    @Test func `ping prints the reply`() throws {
        let daemon = FakeDaemon(replies: ["+PONG\r\n"])
        #expect(try Thumbcachectl.run(["ping"], against: daemon).text == "PONG\n")
        #expect(try Thumbcachectl.run(["ping", "--json"], against: daemon).text == "{\"reply\":\"PONG\"}\n")
    }

    @Test func `a closed pipe ends the program by SIGPIPE`() throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let listener = try UnixSocket.listen(path)
            defer { close(listener) }
            let process = Process()
            // The test process ignores SIGPIPE, and a shell cannot reset that.
            process.executableURL = URL(filePath: "/usr/bin/env")
            // The image is larger than a pipe's buffer, so the program is still writing when the reader exits.
            process.arguments = [
                "--default-signal=PIPE", "bash", "-c",
                "\"$@\" 2>\(directory)/err | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}", "sh",
                Thumbcachectl.program.path, "--socket", path, "get", "alice", "bob",
            ]
            try process.run()
            let image = String(repeating: "x", count: 100_000)
            try Thumbcachectl.answer(["$\(image.utf8.count)\r\n\(image)\r\n"], on: listener)
            process.waitUntilExit()
            #expect(process.terminationStatus == 128 + SIGPIPE)
            #expect(try String(contentsOfFile: "\(directory)/err", encoding: .utf8) == "")
        }
    }
}
