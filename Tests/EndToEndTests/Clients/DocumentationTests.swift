import Foundation
import Testing

extension EndToEnd {
    /// What the documents show is what happens.
    ///
    /// A block marked `console` is a session: lines that begin with `$ ` are run by a shell, one after another in the same
    /// directory, which holds `bob.png`; SOCKET is a daemon's socket, and `redis-cli` and `thumbcachectl` are on PATH. What
    /// follows a command is its output. `…` stands for the rest of a line, a line that is only `…` for any lines.
    struct DocumentationTests {
        struct Step: CustomStringConvertible {
            var line: Int
            var command: String
            var output: [String]
            var description: String { "line \(line): \(command)" }
        }

        @Test(arguments: ["README.md", "docs/protocol.md"])
        func `the examples run, and print what the document says`(document: String) throws {
            try withMachine { machine in
                let text = try String(decoding: read("\(Files.repository)/\(document)"), as: UTF8.self)
                let blocks = Self.blocks(text)
                #expect(!blocks.isEmpty, "\(document) shows no session")
                let made = try machine.run(["\(Files.repository)/tools/make-images", machine.path("made"), "1"])
                #expect(made.status == 0)
                for block in blocks {
                    // Each session starts on a daemon that nobody has used.
                    let name = "daemon-\(machine.takeNumber())"
                    let pictures = try machine.makeDirectory("pictures-\(name)")
                    let work = try machine.makeDirectory("work-\(name)")
                    for directory in [pictures, work] {
                        try write(read(machine.path("made/friend-001.png")), to: "\(directory)/bob.png")
                    }
                    let nginx = try Nginx(machine, serving: pictures)
                    let daemon = try machine.daemon(name) { $0.settings.setOrigin("\(nginx.url)/{profile}") }
                    let path = Files.programs + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin:/bin")
                    for step in block {
                        let finished = try machine.run(
                            ["sh", "-c", "exec 2>&1; \(step.command)"],
                            environment: [
                                "PATH": path, "SOCKET": daemon.socket, "THUMBCACHED_SOCKET": daemon.socket,
                            ], directory: work)
                        let lines = finished.text.split(separator: "\n", omittingEmptySubsequences: false).map(
                            String.init)
                        let output = lines.last == "" ? lines.dropLast() : lines[...]
                        #expect(
                            Self.matches(output, step.output[...]),
                            "\(document), \(step)\nprinted:\n\(finished.text)")
                    }
                    try daemon.stop()
                }
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
        }
    }
}
