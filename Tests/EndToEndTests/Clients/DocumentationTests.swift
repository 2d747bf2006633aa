import Foundation
import Glibc
import Testing

extension EndToEnd {
    /// What the documents show is what happens, and what they name is there.
    ///
    /// A block marked `console` is a session: lines that begin with `$ ` are run by a shell, one after another in the
    /// same directory; SOCKET and THUMBCACHED_SOCKET are a daemon's socket, and `redis-cli` and `thumbcachectl` are on
    /// PATH. What follows a command is its output. `…` stands for the rest of a line, a line that is only `…` for any
    /// lines. A block behind a name, as in "`face.py`:", is a file of that directory.
    struct DocumentationTests {
        struct Step: CustomStringConvertible {
            var line: Int
            var command: String
            var output: [String]
            var description: String { "line \(line): \(command)" }
        }

        @Test(arguments: ["README.md", "docs/protocol.md"])
        func `the examples run, and print what the document says`(document: String) throws {
            let text = try String(decoding: read("\(Files.repository)/\(document)"), as: UTF8.self)
            #expect(!Self.blocks(text).isEmpty, "\(document) shows no session")
            try Self.follow(text, of: document, withPicture: true)
        }

        /// What takes more than the other tests to install, or minutes to build.
        private static let largeQuickStarts: Set = ["Go", "Java", "Swift"]

        @Test(arguments: try quickStarts().filter { hasLargeExamples || !largeQuickStarts.contains($0.title) })
        func `each quick start, followed to the letter in an empty directory, gets a picture`(
            section: Section
        ) throws {
            let minutes = Self.largeQuickStarts.contains(section.title) ? 15.0 : 1
            try Self.follow(section.text, of: "docs/quick-starts.md, \(section.title)", within: minutes * 60)
        }

        @Test func `every quick start that is known to be large is there, and others are too`() throws {
            let titles = try Self.quickStarts().map(\.title)
            #expect(Self.largeQuickStarts.isSubset(of: titles))
            #expect(titles.count >= 11)
        }

        struct Section: CustomTestStringConvertible {
            var title: String
            var text: String
            var testDescription: String { title }
        }

        /// The sections of the document that show a session.
        private static func quickStarts() throws -> [Section] {
            try String(decoding: read("\(Files.repository)/docs/quick-starts.md"), as: UTF8.self)
                .split(separator: "\n## ").dropFirst()
                .map { Section(title: String($0.prefix { $0 != "\n" }), text: String($0)) }
                .filter { !blocks($0.text).isEmpty }
        }

        /// Runs each session of a text in a directory of its own, with the files that the text shows, and a daemon whose
        /// origin has a picture of bob.
        ///
        /// - Parameters:
        ///   - withPicture: whether the reader of it has `bob.png` at hand.
        ///   - seconds: how long a command may take.
        private static func follow(
            _ text: String, of document: String, withPicture: Bool = false, within seconds: Double = 60
        ) throws {
            try withMachine { machine in
                let blocks = Self.blocks(text)
                let made = try machine.run(["\(Files.repository)/tools/make-images", machine.path("made"), "1"])
                #expect(made.status == 0)
                for block in blocks {
                    // Each session starts on a daemon that nobody has used.
                    let name = "daemon-\(machine.takeNumber())"
                    let pictures = try machine.makeDirectory("pictures-\(name)")
                    let work = try machine.makeDirectory("work-\(name)")
                    let picture = try read(machine.path("made/friend-001.png"))
                    for name in ["bob.png", "bob@example.org"] { try write(picture, to: "\(pictures)/\(name)") }
                    if withPicture {
                        try write(picture, to: "\(work)/bob.png")
                        try FileManager.default.createSymbolicLink(
                            atPath: "\(work)/examples", withDestinationPath: "\(Files.repository)/examples")
                    }
                    for (name, contents) in Self.files(text) { try write(Array(contents.utf8), to: "\(work)/\(name)") }
                    try linkRepository(beside: work)
                    let nginx = try Nginx(machine, serving: pictures)
                    let daemon = try machine.daemon(name) { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                    let path = Files.programs + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin")
                    for step in block {
                        let finished = try machine.run(
                            ["sh", "-c", "exec 2>&1; \(step.command)"],
                            environment: [
                                "PATH": path, "SOCKET": daemon.socket, "THUMBCACHED_SOCKET": daemon.socket,
                            ], directory: work, within: seconds)
                        // INFO ends its lines as Redis does, with CR and LF.
                        let lines = finished.text.split(
                            omittingEmptySubsequences: false, whereSeparator: \.isNewline
                        ).map(String.init)
                        let output = lines.last == "" ? lines.dropLast() : lines[...]
                        #expect(
                            Self.matches(output, step.output[...]),
                            "\(document), \(step)\nprinted:\n\(finished.text)")
                    }
                    try daemon.stop()
                }
            }
        }

        /// Where the documents say that a clone of this repository is.
        private static func linkRepository(beside work: String) throws {
            let place = URL(filePath: work).deletingLastPathComponent().appending(path: "thumbcached").path
            guard !FileManager.default.fileExists(atPath: place) else { return }
            try FileManager.default.createSymbolicLink(atPath: place, withDestinationPath: Files.repository)
        }

        /// Blocks whose name stands before them, as in `face.py`:
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

        @Test func `the comparison of sessions tells right from wrong`() {
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
