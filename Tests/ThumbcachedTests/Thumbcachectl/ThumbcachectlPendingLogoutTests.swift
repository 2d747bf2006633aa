import Foundation
import Testing

/// `logout --pending` (F46).
@Suite struct ThumbcachectlPendingLogoutTests {
    private static let receipt = "%1\r\n$5\r\nusers\r\n:1\r\n"

    private func pendingFiles(_ directory: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: directory).sorted()
    }

    private func withPendingFiles(_ names: String..., body: (String) throws -> Void) throws {
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

    @Test
    func `F46: a successful logout leaves no pending-logout file and removes older ones of the uid`()
        throws
    {
        try withPendingFiles(Self.name(1000, "a"), Self.name(1001, "b"), "1000.txt") { pending in
            let run = try Thumbcachectl.run(
                ["logout", "--all", "--uid", "1000", "--pending", pending, "--timeout", "60"],
                against: FakeDaemon(replies: [Self.receipt]))
            #expect(run.status == 0)
            #expect(run.errors == "")
            #expect(run.text == "users 1\n")
            #expect(run.requests == [["LOGOUT", "*", "UID", "1000"]])
            #expect(try pendingFiles(pending) == ["1000.txt", Self.name(1001, "b")])
        }
    }

    @Test(arguments: [
        (["-IOERR the disk is broken\r\n"], "IOERR the disk is broken"),
        (["-SHUTTINGDOWN the daemon is stopping\r\n"], "SHUTTINGDOWN the daemon is stopping"),
        (["-DENIED you are no admin\r\n"], "DENIED you are no admin"),
        ([], "closed the connection before responding"),
    ])
    func `F46: any error leaves a pending-logout file and gives status 5`(
        replies: [String], reason: String
    ) throws {
        try withPendingFiles(Self.name(1000, "a"), Self.name(1001, "b")) { pending in
            let run = try Thumbcachectl.run(
                ["logout", "--all", "--uid", "1000", "--pending", pending], against: FakeDaemon(replies: replies))
            #expect(run.status == 5)
            #expect(run.text == "")
            let left = try pendingFiles(pending).filter { $0 != Self.name(1001, "b") }
            // The new file replaces the older one.
            let name = try #require(left.first)
            #expect(left.count == 1 && name != Self.name(1000, "a"))
            #expect(name.wholeMatch(of: /1000\.[0-9a-f]{32}/) != nil)
            #expect(try FileManager.default.attributesOfItem(atPath: "\(pending)/\(name)")[.size] as? Int == 0)
            #expect(run.errors.contains(reason))
            #expect(run.errors.contains("left \(pending)/\(name): the daemon will process"))
        }
    }

    @Test func `F46: without a daemon, each logout replaces the uid's pending-logout file by a new one`()
        throws
    {
        try withPendingFiles { pending in
            var names: Set<String> = []
            for _ in 0..<3 {
                let run = try Thumbcachectl.run(
                    ["--socket", "/nonexistent/s", "logout", "--all", "--pending", pending, "--timeout", "1"])
                #expect(run.status == 5)
                let left = try pendingFiles(pending)
                #expect(left.count == 1)
                #expect(left[0].hasPrefix("\(geteuid())."))
                names.insert(left[0])
            }
            #expect(names.count == 3)
        }
    }

    @Test func `F46: a silent daemon causes a timeout`() throws {
        try withPendingFiles { pending in
            let path = "\(pending)/../s"
            let listener = try UnixSocket.listen(path)
            defer { close(listener) }
            let run = try Thumbcachectl.run(
                ["--socket", path, "logout", "--all", "--pending", pending, "--timeout", "1"])
            #expect(run.status == 5)
            #expect(run.errors.contains("did not respond within 1 s"))
            #expect(try pendingFiles(pending).count == 1)
        }
    }

    @Test func `F46: if no pending-logout file can be created, a warning is printed and the request is sent`()
        throws
    {
        let arguments = ["logout", "--all", "--uid", "1000", "--pending", "/nonexistent/pending"]
        let done = try Thumbcachectl.run(arguments, against: FakeDaemon(replies: [Self.receipt]))
        #expect(done.status == 0)
        #expect(
            done.errors
                == "thumbcachectl: cannot open the directory /nonexistent/pending: No such file or directory; "
                + "continuing without a pending-logout file\n")
        let refused = try Thumbcachectl.run(arguments, against: FakeDaemon(replies: ["-IOERR no\r\n"]))
        #expect(refused.status == 1)
        #expect(refused.errors.contains("continuing without a pending-logout file"))
        #expect(refused.errors.hasSuffix("thumbcachectl: IOERR no\n"))
    }

    @Test func `F24: a symbolic link instead of the directory is not followed`() throws {
        try withPendingFiles { pending in
            let link = "\(pending)-link"
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: pending)
            let run = try Thumbcachectl.run(["--socket", "/nonexistent/s", "logout", "--all", "--pending", link])
            #expect(run.status == 3)
            #expect(try pendingFiles(pending) == [])
        }
    }

    @Test func `F46: in the journal, a pending logout has priority err, a warning has priority warning`() throws {
        try withPendingFiles { pending in
            // systemd sets JOURNAL_STREAM to device and inode of standard error.
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
    func `status 0 with a warning if the receipt cannot be written`(arguments: [String]) throws {
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
                if redirection == ">/dev/full" { #expect(errors.contains("is complete, but cannot write the output")) }
            }
        }
    }
}
