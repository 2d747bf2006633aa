import Foundation
import Testing

/// What a log-out hook leaves for a daemon that it could not reach (F46).
@Suite struct ThumbcachectlMarkerTests {
    private static let receipt = "%1\r\n$5\r\nusers\r\n:1\r\n"

    private func markers(_ directory: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory).sorted()
    }

    private func withMarkers(_ names: String..., body: (String) throws -> Void) throws {
        try Fixture.withDirectory { directory in
            let pending = "\(directory)/pending"
            try FileManager.default.createDirectory(atPath: pending, withIntermediateDirectories: false)
            for name in names { try Data().write(to: URL(filePath: "\(pending)/\(name)")) }
            try body(pending)
        }
    }

    private static func name(_ uid: Int, _ digit: String) -> String {
        "\(uid)." + String(repeating: digit, count: 32)
    }

    @Test func `F46: a log-out that the daemon has done leaves no marker, and takes away older ones of the uid`() throws
    {
        try withMarkers(Self.name(1000, "a"), Self.name(1001, "b"), "1000.txt") { pending in
            let run = try Thumbcachectl.run(
                ["logout", "--all", "--uid", "1000", "--pending", pending, "--timeout", "60"],
                against: PlayedDaemon(replies: [Self.receipt]))
            #expect(run.status == 0)
            #expect(run.errors == "")
            #expect(run.text == "users 1\n")
            #expect(run.requests == [["LOGOUT", "*", "UID", "1000"]])
            #expect(try markers(pending) == ["1000.txt", Self.name(1001, "b")])
        }
    }

    @Test(arguments: [
        (["-IOERR the disk is broken\r\n"], "IOERR the disk is broken"),
        (["-SHUTTINGDOWN the daemon is stopping\r\n"], "SHUTTINGDOWN the daemon is stopping"),
        (["-DENIED you are no admin\r\n"], "DENIED you are no admin"),
        ([], "closed the connection before it answered"),
    ])
    func `F46: whatever else the daemon says, the log-out is left as a marker, and the status is 5`(
        replies: [String], reason: String
    ) throws {
        try withMarkers(Self.name(1000, "a"), Self.name(1001, "b")) { pending in
            let run = try Thumbcachectl.run(
                ["logout", "--all", "--uid", "1000", "--pending", pending], against: PlayedDaemon(replies: replies))
            #expect(run.status == 5)
            #expect(run.text == "")
            let left = try markers(pending).filter { $0 != Self.name(1001, "b") }
            // The new one stands for the older one.
            let name = try #require(left.first)
            #expect(left.count == 1 && name != Self.name(1000, "a"))
            #expect(name.wholeMatch(of: /1000\.[0-9a-f]{32}/) != nil)
            #expect(try FileManager.default.attributesOfItem(atPath: "\(pending)/\(name)")[.size] as? Int == 0)
            #expect(run.errors.contains(reason))
            #expect(run.errors.contains("left the marker \(pending)/\(name)"))
        }
    }

    @Test func `F46: without a daemon, a second log-out of the uid has a marker of its own, the only one`() throws {
        try withMarkers { pending in
            var names: Set<String> = []
            for _ in 0..<3 {
                let run = try Thumbcachectl.run(
                    ["--socket", "/nonexistent/s", "logout", "--all", "--pending", pending, "--timeout", "1"])
                #expect(run.status == 5)
                let left = try markers(pending)
                #expect(left.count == 1)
                #expect(left[0].hasPrefix("\(geteuid())."))
                names.insert(left[0])
            }
            #expect(names.count == 3)
        }
    }

    @Test func `F46: a daemon that takes the connection and says nothing is given up in time`() throws {
        try withMarkers { pending in
            let path = "\(pending)/../s"
            let listener = try UnixSocket.listen(path)
            defer { close(listener) }
            let run = try Thumbcachectl.run(
                ["--socket", path, "logout", "--all", "--pending", pending, "--timeout", "1"])
            #expect(run.status == 5)
            #expect(run.errors.contains("did not answer within 1 s"))
            #expect(try markers(pending).count == 1)
        }
    }

    @Test func `F46: where no marker can be left, that is said, and the daemon is asked all the same`() throws {
        let arguments = ["logout", "--all", "--uid", "1000", "--pending", "/nonexistent/pending"]
        let done = try Thumbcachectl.run(arguments, against: PlayedDaemon(replies: [Self.receipt]))
        #expect(done.status == 0)
        #expect(
            done.errors
                == "thumbcachectl: cannot open the directory /nonexistent/pending: No such file or directory; "
                + "the daemon is "
                + "asked without a marker\n")
        let refused = try Thumbcachectl.run(arguments, against: PlayedDaemon(replies: ["-IOERR no\r\n"]))
        #expect(refused.status == 1)
        #expect(refused.errors.contains("asked without a marker"))
        #expect(refused.errors.hasSuffix("thumbcachectl: IOERR no\n"))
    }

    @Test func `F24: a link in place of the directory is not followed`() throws {
        try withMarkers { pending in
            let link = "\(pending)-link"
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: pending)
            let run = try Thumbcachectl.run(["--socket", "/nonexistent/s", "logout", "--all", "--pending", link])
            #expect(run.status == 3)
            #expect(try markers(pending) == [])
        }
    }

    @Test func `F46: to the journal a log-out that is not done is an error, and a warning is one`() throws {
        try withMarkers { pending in
            // What systemd sets where standard error is the journal's: its device and inode.
            let script = "export JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2); \"$@\""
            for (directory, prefixes) in [(pending, ["<3>"]), ("/nonexistent/pending", ["<4>", "<3>"])] {
                let process = Process()
                process.executableURL = URL(filePath: "/bin/sh")
                process.arguments = [
                    "-c", script, "sh", Thumbcachectl.program.path, "--socket", "/nonexistent/s", "logout", "--all",
                    "--pending", directory,
                ]
                let errors = URL(filePath: "\(pending)/../errors")
                try Data().write(to: errors)
                process.standardError = try FileHandle(forWritingTo: errors)
                try process.run()
                process.waitUntilExit()
                let lines = try String(contentsOf: errors, encoding: .utf8).split(separator: "\n")
                #expect(lines.map { String($0.prefix(3)) } == prefixes, "\(lines)")
            }
        }
    }

    // MARK: Outputs

    @Test(arguments: [["logout", "alice"], ["purge", "alice"]])
    func `0 when it is done and the receipt cannot be written, with a warning`(arguments: [String]) throws {
        try Fixture.withDirectory { directory in
            let path = "\(directory)/s"
            let listener = try UnixSocket.listen(path)
            defer { close(listener) }
            for redirection in [">/dev/full", ">&-", "| true"] {
                let script = "set -o pipefail; \"$@\" 2>\(directory)/err \(redirection)"
                let process = Process()
                process.executableURL = URL(filePath: "/bin/bash")
                process.arguments =
                    ["-c", script, "sh", Thumbcachectl.program.path, "--socket", path] + arguments
                try process.run()
                try Thumbcachectl.answer([Self.receipt], on: listener)
                process.waitUntilExit()
                #expect(process.terminationStatus == 0, "\(redirection)")
                let errors = try String(contentsOfFile: "\(directory)/err", encoding: .utf8)
                if redirection == ">/dev/full" { #expect(errors.contains("is done, but cannot write the output")) }
            }
        }
    }
}
