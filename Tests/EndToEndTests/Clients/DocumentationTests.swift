import Foundation
import Glibc
import Testing

extension EndToEnd.Clients {
    /// Runs the console blocks of the documents and compares the output.
    ///
    /// A block marked `console` is a session: one shell runs the lines that begin with `$ `, in one directory. SOCKET
    /// and THUMBCACHED_SOCKET are a daemon's socket, and `redis-cli` and `thumbcachectl` are on PATH. The lines after a
    /// command are its output, in which `…` matches the rest of a line, and a line `…` matches any number of lines. A
    /// block after a line with a name and a colon, such as "`name.py`:", is a file in that directory.
    ///
    /// A block marked `sh` of "Try it" in README.md starts the daemon of README.md's sessions, in an empty directory.
    struct DocumentationTests {
        struct Step: CustomStringConvertible {
            var line: Int
            var command: String
            var output: [String]
            var description: String { "line \(line): \(command)" }
        }

        @Test func `the console blocks of protocol.md print what it says`() throws {
            let text = try readText("\(Files.repository)/docs/protocol.md")
            #expect(!Self.blocks(text).isEmpty)
            try Self.run(text, of: "docs/protocol.md", withImage: true)
        }

        @Test func `README.md, pasted into an empty directory, shows an image and prints what it says`() throws {
            let text = try readText("\(Files.repository)/README.md")
            let section = try #require(Self.sections(text).first { $0.title == "Try it" })
            let pasted = try #require(section.text.firstMatch(of: /(?m)^```sh\n((?s).*?\n)```$/)).output.1
            try withMachine { machine in
                // Another program may use the document's port.
                let port = try freePort()
                let start = Step(
                    line: 0, command: String(pasted).replacing("8000", with: "\(port)"), output: ["…"])
                let steps = Self.blocks(text).joined()
                let outputs = try machine.session(
                    [start] + steps, directory: machine.makeDirectory("empty"), within: 60)
                // show draws with characters, since its output is no terminal.
                #expect(outputs[0].filter { $0.wholeMatch(of: /[@+=.#]{16}/) != nil }.count == 8, "\(outputs[0])")
                Self.compare(outputs.dropFirst(), with: steps, of: "README.md")
            }
        }

        /// Quick starts with large dependencies or long builds.
        private static let largeQuickStarts: Set = ["Go", "Java", "Swift"]

        @Test(arguments: try quickStarts().filter { hasLargeExamples || !largeQuickStarts.contains($0.title) })
        func `each quick start works in an empty directory, and reports a missing image`(
            section: Section
        ) throws {
            let minutes = Self.largeQuickStarts.contains(section.title) ? 15 : 1
            try Self.run(
                section.text, of: "docs/quick-starts.md, \(section.title)", within: minutes * 60,
                againWithoutImage: true)
        }

        @Test func `the quick starts are found`() throws {
            let titles = try Self.quickStarts().map(\.title)
            #expect(Self.largeQuickStarts.isSubset(of: titles))
            #expect(titles.count >= 11)
        }

        struct Section: CustomTestStringConvertible {
            var title: String
            var text: String
            var testDescription: String { title }
        }

        /// The sections of the document that have a console block.
        private static func quickStarts() throws -> [Section] {
            try sections(readText("\(Files.repository)/docs/quick-starts.md")).filter { !blocks($0.text).isEmpty }
        }

        private static func sections(_ document: String) -> [Section] {
            document.split(separator: "\n## ").dropFirst()
                .map { Section(title: String($0.prefix { $0 != "\n" }), text: String($0)) }
        }

        /// Runs each session of a text in a directory of its own, with the files that the text contains, and a daemon
        /// whose origin has an image of bob.
        ///
        /// - Parameters:
        ///   - withImage: whether the directory contains `bob.png`.
        ///   - seconds: timeout of each session.
        ///   - againWithoutImage: whether the session, without its last step, must report the missing image when it
        ///     runs again and the origin has no image.
        private static func run(
            _ text: String, of document: String, withImage: Bool = false, within seconds: Int = 60,
            againWithoutImage: Bool = false
        ) throws {
            try withMachine { machine in
                let blocks = Self.blocks(text)
                try machine.runSuccessfully(["\(Files.repository)/tools/make-images", machine.path("made"), "1"])
                for block in blocks {
                    // Each session has a daemon of its own.
                    let name = "daemon-\(machine.nextNumber())"
                    let images = try machine.makeDirectory("images-\(name)")
                    let work = try machine.makeDirectory("work-\(name)")
                    let image = try read(machine.path("made/friend-001.png"))
                    for name in ["bob.png", "bob@example.org"] { try write(image, to: "\(images)/\(name)") }
                    if withImage { try write(image, to: "\(work)/bob.png") }
                    for (name, contents) in Self.files(text) { try write(Array(contents.utf8), to: "\(work)/\(name)") }
                    try linkRepository(beside: work)
                    let nginx = try Nginx(machine, serving: images)
                    let daemon = try machine.daemon(name) { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                    let outputs = try machine.session(block, socket: daemon.socket, directory: work, within: seconds)
                    Self.compare(outputs[...], with: block, of: document)
                    if againWithoutImage {
                        try FileManager.default.removeItem(atPath: "\(images)/bob@example.org")
                        let output = try machine.session(
                            block.dropLast(), socket: daemon.socket, directory: work, within: seconds
                        ).joined().joined(separator: "\n")
                        #expect(
                            output.contains("neither the cache nor the origin has one")
                                || output.contains("the origin had no image"),
                            "\(document) without an image printed:\n\(output)")
                    }
                    try daemon.stop()
                }
            }
        }

        private static func compare(
            _ outputs: ArraySlice<[String]>, with steps: some Sequence<Step>, of document: String
        ) {
            for (output, step) in zip(outputs, steps) {
                #expect(
                    matches(output[...], step.output[...]),
                    "\(document), \(step)\nprinted:\n\(output.joined(separator: "\n"))")
            }
        }

        /// Links the repository to `../thumbcached`, where the documents expect it.
        private static func linkRepository(beside work: String) throws {
            let link = URL(filePath: work).deletingLastPathComponent().appending(path: "thumbcached").path
            guard !FileManager.default.fileExists(atPath: link) else { return }
            try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: Files.repository)
        }

        /// Blocks that follow the name of a file.
        static func files(_ text: String) -> [(name: String, contents: String)] {
            text.matches(of: /(?m)^`([A-Za-z.]+)`:\n\n```[a-z]+\n((?s).*?\n)```$/).map {
                (String($0.output.1), String($0.output.2))
            }
        }

        static func blocks(_ text: String) -> [[Step]] {
            var blocks: [[Step]] = []
            var block: [Step]?
            for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
                if block == nil {
                    if line == "```console" { block = [] }
                } else if line == "```" {
                    if let block, !block.isEmpty { blocks.append(block) }
                    block = nil
                } else if line.hasPrefix("$ ") {
                    block?.append(Step(line: index + 1, command: String(line.dropFirst(2)), output: []))
                } else if let last = block?.indices.last {
                    block?[last].output.append(String(line))
                }
            }
            return blocks
        }

        static func matches(_ output: ArraySlice<String>, _ expected: ArraySlice<String>) -> Bool {
            guard let pattern = expected.first else { return output.isEmpty }
            if pattern == "…" {
                return (output.startIndex...output.endIndex).contains { matches(output[$0...], expected.dropFirst()) }
            }
            guard let line = output.first else { return false }
            let fits = pattern.hasSuffix("…") ? line.hasPrefix(pattern.dropLast()) : line == pattern
            return fits && matches(output.dropFirst(), expected.dropFirst())
        }

        @Test func `sessions are parsed and compared`() {
            let output = ["one", "two", "three"][...]
            #expect(Self.matches(output, ["one", "two", "three"]))
            #expect(Self.matches(output, ["one", "…"]))
            #expect(Self.matches(output, ["…", "three"]))
            #expect(Self.matches(output, ["one", "t…", "thr…"]))
            #expect(!Self.matches(output, ["one", "two"]))
            #expect(!Self.matches(output, ["one", "two", "three", "four"]))
            #expect(!Self.matches(output, ["…", "two"]))
            #expect(!Self.matches(output, ["two", "…"]))
            let blocks = Self.blocks("text\n```console\n$ a\nb\n\n$ c\n```\n```sh\n$ no\n```\n")
            #expect(blocks.map { $0.map(\.command) } == [["a", "c"]])
            #expect(blocks[0][0].output == ["b", ""])
            let files = Self.files(
                "text\n\n`a.py`:\n\n```python\none\n\ntwo\n```\n\n`b.c`:\n\n```c\nthree\n```\n\n```c\nno\n```\n")
            #expect(files.map(\.name) == ["a.py", "b.c"])
            #expect(files.map(\.contents) == ["one\n\ntwo\n", "three\n"])
        }
    }
}

extension Machine {
    /// Runs the commands in one shell, as if pasted, and returns the lines that each printed. Ends what they started.
    fileprivate func session(
        _ steps: some Sequence<EndToEnd.Clients.DocumentationTests.Step>, socket: String? = nil, directory: String,
        within seconds: Int
    ) throws -> [[String]] {
        let prefix = path("session-\(nextNumber())")
        let commands = steps.map(\.command)
        let script = commands.enumerated().map { "{\n\($1)\n} </dev/null >\(prefix).\($0) 2>&1\n" }
        var environment = [
            "PATH": Files.programs + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin")
        ]
        if let socket {
            environment["SOCKET"] = socket
            environment["THUMBCACHED_SOCKET"] = socket
        }
        // timeout(1) signals the shell's children, too.
        let finished = try run(
            ["timeout", "\(seconds)", "bash", "-c", "trap 'kill $(jobs -p); wait' EXIT\n" + script.joined()],
            environment: environment, directory: directory, within: Double(seconds) + longestWait)
        guard finished.status != 124 else { throw Failure("\(commands) ran longer than \(seconds) s") }
        return try commands.indices.map {
            // The lines of INFO end with CR and LF.
            let lines = try readText("\(prefix).\($0)").split(
                omittingEmptySubsequences: false, whereSeparator: \.isNewline
            ).map(String.init)
            return lines.last == "" ? lines.dropLast() : lines
        }
    }
}
