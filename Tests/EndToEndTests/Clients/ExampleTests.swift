import Foundation
import Testing

extension EndToEnd {
    /// The programs in `examples` do what examples/README.md says, with the clients that it names. A client that is not
    /// installed is an error: `make test` installs those of ``ExampleTests``, `make test-examples` the others as well.
    struct ExampleTests {
        @Test(arguments: [
            AvatarProgram("avatar.py", ["/usr/bin/python3"]),
            AvatarProgram("avatar.py", [pythonOfTests]),
            AvatarProgram("avatar_asyncio.py", ["/usr/bin/python3"]),
            AvatarProgram("avatar_asyncio.py", [pythonOfTests]),
            AvatarProgram("avatar.sh", ["sh"]),
            AvatarProgram("avatar.c", build: ["clang", "-Wall", "-Wextra", "-Werror", "-lhiredis"]),
            AvatarProgram("avatar.js", ["node"], environment: ["NODE_PATH": "/usr/share/nodejs"]),
            AvatarProgram("avatar.rb", ["ruby"]),
            AvatarProgram("avatar.php", ["php"]),
            AvatarProgram("avatar.pl", ["perl"]),
        ])
        func `a picture comes by an ordinary client of Redis, and is gone behind the log-out`(
            program: AvatarProgram
        ) throws {
            try program.prove()
        }

        @Test func `every example stands in the table of the examples`() throws {
            let table = try String(decoding: read("\(AvatarProgram.examples)/README.md"), as: UTF8.self)
            for folder in ["avatar", "contacts", "web"] {
                for name in try FileManager.default.contentsOfDirectory(atPath: "\(AvatarProgram.examples)/\(folder)")
                where !name.hasSuffix(".html") && name != "__pycache__" {
                    #expect(table.contains("[\(name)](\(folder)/\(name))"))
                }
            }
        }

        @Test func `a web service shows pictures to whom they belong, and to nobody behind the log-out`() throws {
            try withContacts { machine, daemon in
                let port = try machine.startWebService(daemon)
                let asked = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/web_service.py", "\(port)",
                    daemon.socket, "\(AvatarProgram.examples)/pictures/bob.png",
                ])
                #expect(asked.status == 0, "\(asked.everything)")
                #expect(asked.text.hasSuffix("answers were right\n"))
            }
        }
    }

    /// What takes more than the other tests to install: Go, Java, GTK and a browser.
    @Suite(.enabled(if: hasLargeExamples, "make test-examples runs them"))
    struct LargeExampleTests {
        @Test(arguments: [
            AvatarProgram(
                "avatar.go",
                environment: [
                    "GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOFLAGS": "",
                    "GOCACHE": "\(Files.repository)/.build/go-cache",
                ], build: ["go", "build"]),
            AvatarProgram("Avatar.java", ["java"]),
        ])
        func `a picture comes by an ordinary client of Redis, and is gone behind the log-out`(
            program: AvatarProgram
        ) throws {
            try program.prove()
        }

        @Test func `a window shows the contacts, and nobody once the user is logged out elsewhere`() throws {
            try withContacts { machine, daemon in
                let window = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/window.py", daemon.socket,
                    "alice@example.org", try screenshot("example-window.png"),
                ])
                #expect(window.text == "faces: 6\nfaces after the log-out: 0\n", "\(window.everything)")
                #expect(!window.errors.contains("Traceback"), "\(window.errors)")
                try expectNobody(daemon)
            }
        }

        @Test func `a window without a daemon opens, and shows nobody`() throws {
            try withMachine { machine in
                let window = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/window.py",
                    machine.path("no-socket"), "alice@example.org", "nobody",
                ])
                #expect(window.text == "faces: 0\n", "\(window.everything)")
                #expect(!window.errors.contains("Traceback"), "\(window.errors)")
            }
        }

        @Test func `a browser shows the pictures, asks whether they have changed, and has none behind the log-out`()
            throws
        {
            try withContacts { machine, daemon in
                let port = try machine.startWebService(daemon)
                let browser = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/browser.py",
                    "http://127.0.0.1:\(port)/", "alice@example.org", try screenshot("example-web.png"),
                ])
                #expect(
                    browser.text == """
                        pictures shown: 8 of 8, 0 of them unchanged
                        pictures shown again: 8 of 8, 8 of them unchanged
                        behind the log-out: Sign in
                        the service answers 401
                        the browser's own copies: none

                        """, "\(browser.everything)")
                try expectNobody(daemon)
            }
        }

        private func expectNobody(_ daemon: Daemon) throws {
            #expect(try daemon.connect().call("USERS") == .array([]))
        }
    }
}

/// Where a test leaves what it saw, for the documents.
func screenshot(_ name: String) throws -> String {
    let directory = "\(Files.repository)/.build/screenshots"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    return "\(directory)/\(name)"
}

let hasLargeExamples = ProcessInfo.processInfo.environment["THUMBCACHED_EXAMPLES"] != nil

/// The interpreter with the client from PyPI.
private let pythonOfTests = "\(Files.repository)/.build/python-client/bin/python"

/// Whose portraits there are.
private let people = ["bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan"]

/// A daemon whose origin has the portraits in `examples/pictures`, of people at example.org.
private func withContacts(_ body: (Machine, Daemon) throws -> Void) throws {
    try withMachine { machine in
        let pictures = try machine.makeDirectory("pictures")
        for name in people {
            try write(read("\(AvatarProgram.examples)/pictures/\(name).png"), to: "\(pictures)/\(name)@example.org.png")
        }
        let nginx = try Nginx(machine, serving: pictures)
        try body(machine, machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") })
    }
}

extension Machine {
    /// The web service of the examples, once it listens; gives its port.
    fileprivate func startWebService(_ daemon: Daemon) throws -> UInt16 {
        let port = try freePort()
        let contacts = people.map { "\($0.capitalized) <\($0)@example.org>" }
        let surroundings = ProcessInfo.processInfo.environment.merging(["THUMBCACHED_SOCKET": daemon.socket]) { $1 }
        let service = try start(
            ["/usr/bin/python3", "\(AvatarProgram.examples)/web/avatars.py", "\(port)"] + contacts,
            environment: surroundings, errors: .file(path("web.log")))
        try eventually("the web service listens on port \(port)") {
            if let status = service.ending() { throw Failure("the web service ended with status \(status)") }
            guard let connection = try? connectTCP(port) else { return false }
            close(connection)
            return true
        }
        return port
    }
}
