import Foundation
import Testing

extension EndToEnd.Clients {
    /// Runs the programs in `examples`. A missing dependency is an error: `make test` installs those of
    /// ``ExampleTests``, and `make test-examples` also those of ``LargeExampleTests``.
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
        func `a Redis client gets an image, and none after the logout`(
            program: AvatarProgram
        ) throws {
            try program.checkOutcomes()
        }

        @Test func `examples/README.md lists every example`() throws {
            let table = try readText("\(AvatarProgram.examples)/README.md")
            for folder in ["avatar", "contacts", "web"] {
                for name in try FileManager.default.contentsOfDirectory(atPath: "\(AvatarProgram.examples)/\(folder)")
                where !name.hasSuffix(".html") && name != "__pycache__" {
                    #expect(table.contains("[\(name)](\(folder)/\(name))"))
                }
            }
        }

        @Test func `the web service shows images only to their user, and none after the logout`() throws {
            try withContacts { machine, daemon in
                let port = try machine.startWebService(daemon)
                let run = try machine.runSuccessfully([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/web_service.py", "\(port)",
                    daemon.socket, "\(AvatarProgram.examples)/images/bob.png",
                ])
                #expect(run.text.hasSuffix("responses were correct\n"))
            }
        }
    }

    /// Examples with large dependencies: Go, Java, GTK and a browser.
    @Suite(.enabled(if: hasLargeExamples, "run by make test-examples"))
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
        func `a Redis client gets an image, and none after the logout`(
            program: AvatarProgram
        ) throws {
            try program.checkOutcomes()
        }

        @Test func `the window shows images until the user is logged out`() throws {
            try withContacts { machine, daemon in
                let window = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/window.py", daemon.socket,
                    "alice@example.org", try screenshot("example-window.png"),
                ])
                #expect(window.text == "images: 6\nimages after the logout: 0\n", "\(window.summary)")
                #expect(!window.errors.contains("Traceback"), "\(window.errors)")
                try expectNoUsers(daemon)
            }
        }

        @Test func `the window opens without a daemon and shows no images`() throws {
            try withMachine { machine in
                let window = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/window.py",
                    machine.path("no-socket"), "alice@example.org", "nobody",
                ])
                #expect(window.text == "images: 0\n", "\(window.summary)")
                #expect(!window.errors.contains("Traceback"), "\(window.errors)")
            }
        }

        @Test func `a browser shows and revalidates images, and has none after the logout`() throws {
            try withContacts { machine, daemon in
                let port = try machine.startWebService(daemon)
                let browser = try machine.run([
                    "/usr/bin/python3", "\(Files.repository)/Tests/EndToEndTests/python/browser.py",
                    "http://127.0.0.1:\(port)/", "alice@example.org", try screenshot("example-web.png"),
                ])
                #expect(
                    browser.text == """
                        images shown: 7 of 8, 0 not modified
                        initials: JN
                        images shown again: 7 of 8, 7 not modified
                        after the logout: Sign in
                        status of an image: 401
                        cached copies: none

                        """, "\(browser.summary)")
                try expectNoUsers(daemon)
            }
        }

        @Test func `a page of a Django site has images through django-gravatar2 and python3-libravatar`() throws {
            try withMachine { machine in
                let members = ["bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan"]
                let images = try machine.makeDirectory("images")
                for name in members {
                    // The hash of the address, as both libraries send it.
                    let sum = try machine.runSuccessfully(["md5sum"], input: Array("\(name)@example.org".utf8)).text
                    try write(
                        read("\(AvatarProgram.examples)/images/\(name).png"), to: "\(images)/\(sum.prefix(32)).png")
                }
                let origin = try Nginx(machine, serving: images)
                let daemon = try machine.daemon { $0.settings.setOrigin("\(origin.url)/{profile}") }
                let port = try freePort()
                _ = try HTTPService(machine, daemon, port: port, "user = \"site\"\nlog-in = true")
                try eventually("the user of the site is logged in") {
                    try daemon.connect().call("USERS").elements?.count == 1
                }
                let site = try machine.run(
                    [
                        pythonOfTests, "\(Files.repository)/Tests/EndToEndTests/python/django_site.py",
                        "http://localhost:\(port)", try screenshot("http-django.png"),
                    ] + members + ["nobody"])
                // The default image of nobody is drawn by thumbcached-http.
                #expect(
                    site.text.split(separator: "\n").filter { !$0.hasPrefix("DNS Error") } == [
                        "gravatar: 8 image/png, 1 image/svg+xml; 9 shown",
                        "libravatar: 8 image/png, 1 image/svg+xml; 9 shown",
                    ], "\(site.summary)")
                #expect(try origin.requests().count { $0.hasSuffix(" 200") } == members.count)
            }
        }

        private func expectNoUsers(_ daemon: Daemon) throws {
            #expect(try daemon.connect().call("USERS") == .array([]))
        }
    }
}

/// The path for a screenshot that the documents use.
func screenshot(_ name: String) throws -> String {
    let directory = "\(Files.repository)/.build/screenshots"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    return "\(directory)/\(name)"
}

let hasLargeExamples = ProcessInfo.processInfo.environment["THUMBCACHED_EXAMPLES"] != nil

/// A Python interpreter with redis-py from PyPI.
let pythonOfTests = "\(Files.repository)/.build/python-client/bin/python"

private let people = [
    "Bob Amari", "Carol Lindqvist", "Dave Okafor", "Erin Castellanos", "Frank Weiss", "Grace Mbeki", "Heidi Brunner",
]
/// A contact without an image.
private let judith = "Judith Nakamura"

/// The address of a person at example.org.
private func address(_ name: String) -> String { name.lowercased().prefix { $0 != " " } + "@example.org" }

/// Starts a daemon whose origin serves the portraits in `examples/images` for addresses at example.org.
private func withContacts(_ body: (Machine, Daemon) throws -> Void) throws {
    try withMachine { machine in
        let images = try machine.makeDirectory("images")
        for name in people {
            let image = try read("\(AvatarProgram.examples)/images/\(address(name).prefix { $0 != "@" }).png")
            try write(image, to: "\(images)/\(address(name)).png")
        }
        let nginx = try Nginx(machine, serving: images)
        try body(machine, machine.daemon { $0.settings.setOrigin("\(nginx.url)/{profile}") })
    }
}

extension Machine {
    /// Starts the web service of the examples, waits until it listens and returns its port.
    fileprivate func startWebService(_ daemon: Daemon) throws -> UInt16 {
        let port = try freePort()
        let contacts = (people + [judith]).map { "\($0) <\(address($0))>" }
        let variables = ProcessInfo.processInfo.environment.merging([
            "THUMBCACHED_SOCKET": daemon.socket, "PYTHONPATH": PythonPackage.sources,
        ]) { $1 }
        let service = try start(
            ["/usr/bin/python3", "\(AvatarProgram.examples)/web/avatars.py", "\(port)"] + contacts,
            environment: variables, errors: .file(path("web.log")))
        try eventually("the web service listens on port \(port)") {
            if let status = service.exitStatus() { throw Failure("the web service ended with status \(status)") }
            guard let connection = try? connectTCP(port) else { return false }
            close(connection)
            return true
        }
        return port
    }
}
