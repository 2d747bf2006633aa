import Foundation
import Glibc
import Testing

extension EndToEnd.Clients {
    /// References in documents: paths, links, headings, types, and codes of faults and invariants.
    struct DocumentReferenceTests {
        @Test func `guarantees.md defines every code that sources and tests name, and every code has a test`() throws {
            let guarantees = try readText("\(Files.repository)/docs/guarantees.md")
            let rows = guarantees.split(separator: "\n").filter { $0.hasPrefix("| ") }
            let defined = rows.compactMap { row -> String? in
                let code = String(row.dropFirst(2).prefix { $0 != "|" }.filter { $0 != "*" && $0 != " " })
                return code.wholeMatch(of: /[FI][0-9]+/) == nil ? nil : code
            }
            #expect(defined.count > 90 && Set(defined).count == defined.count)
            var tested: Set<String> = []
            for folder in ["Sources", "Tests", "fleet/Sources", "fleet/Tests", "tools"] {
                for path in Files.under("\(Files.repository)/\(folder)") {
                    let isSource = path.hasSuffix(".swift") || path.hasSuffix(".py")
                    guard isSource || folder == "tools" else { continue }
                    let codes = try Self.codes(read(path))
                    if folder.hasSuffix("Tests") || folder == "tools" { tested.formUnion(codes) }
                    guard isSource else { continue }
                    for code in codes {
                        #expect(defined.contains(code), "\(path) names the undefined code \(code)")
                    }
                }
            }
            // I10 has no test but this line, since the compiler checks it.
            #expect(Set(defined).subtracting(tested).isEmpty)
        }

        @Test(arguments: try documents())
        func `every path in a document exists`(document: String) throws {
            let text = try readText("\(Files.repository)/\(document)")
            for path in Self.paths(text) {
                #expect(Files.exists("\(Files.repository)/\(path)"), "\(document) names \(path)")
            }
        }

        @Test func `the check of paths finds those in CONTRIBUTING.md`() throws {
            let text = try readText("\(Files.repository)/CONTRIBUTING.md")
            #expect(Self.paths(text).count > 30)
        }

        @Test func `every type in design.md is in the sources`() throws {
            let text = try readText("\(Files.repository)/docs/design.md")
            let names = Set(text.matches(of: /`([A-Z][a-z]+[A-Z][A-Za-z]+)`/).map { String($0.output.1) })
            #expect(names.count > 20)
            let folders = ["Sources", "fleet/Sources"].map { "\(Files.repository)/\($0)" }
            var missing = names.filter { name in !folders.contains { Files.exists("\($0)/\(name)") } }
            for path in folders.flatMap(Files.under) where path.hasSuffix(".swift") {
                let source = try readText(path)
                missing = missing.filter { !source.contains($0) }
            }
            #expect(missing.isEmpty)
        }

        private static func documents() throws -> [String] {
            try ["", "clients/python/", "docs/", "examples/", "fleet/docs/"].flatMap { folder in
                try FileManager.default.contentsOfDirectory(atPath: "\(Files.repository)/\(folder)")
                    .filter { $0.hasSuffix(".md") }.map { folder + $0 }
            }.sorted()
        }

        @Test func `every link in the documents has a target`() throws {
            try withMachine { machine in
                try machine.runSuccessfully(["\(Files.repository)/tools/check-links"])
            }
        }

        @Test func `every link in the installed documents has a target`() throws {
            try withMachine { machine in
                let root = try machine.makeDirectory("installed")
                try machine.runSuccessfully(
                    [
                        "make", "-C", Files.repository, "install-documents", "install-fleet-documents",
                        "DESTDIR=\(root)", "PREFIX=/usr",
                    ])
                #expect(Files.exists("\(root)/usr/share/doc/thumbcached/quick-starts.md"))
                try machine.runSuccessfully(["\(Files.repository)/tools/check-links", root])
            }
        }

        @Test func `check-links reports broken links and ignores code blocks`() throws {
            try withMachine { machine in
                let folder = try machine.makeDirectory("documents")
                let document = """
                    # Some `words`, and **more**

                    ## More
                    [good](#some-words-and-more) [file](other.md#more-1)
                    ![image](other.md "title") <https://example.org>
                    `[code](nothing.md)` [bad](#words) [gone](gone.md) [wrong](other.md#more-2)
                    [web](https://) [out](../../etc/passwd)

                    ```sh
                    # No heading
                    [block](nothing.md)
                    ```
                    [block](#no-heading)
                    """
                try write(Array(document.utf8), to: "\(folder)/document.md")
                try write(Array("# More\n\n## More\n".utf8), to: "\(folder)/other.md")
                let check = try machine.run(["\(Files.repository)/tools/check-links", folder])
                #expect(check.status == 1)
                let found = check.errors.split(separator: "\n").compactMap {
                    $0.split(separator: ": ").dropFirst(2).first
                }
                #expect(
                    found.sorted() == [
                        "#no-heading", "#words", "../../etc/passwd", "gone.md", "https://", "other.md#more-2",
                    ], "\(check.summary)")
            }
        }

        @Test func `protocol.md or metrics.md explains every field of INFO`() throws {
            let text = try ["protocol", "metrics"].map {
                try readText("\(Files.repository)/docs/\($0).md")
            }.joined()
            let explained = Set(text.matches(of: /`([a-z0-9_]+)`/).map { String($0.output.1) })
            try withMachine { machine in
                let daemon = try machine.daemon()
                let lines = try (daemon.connect().call("INFO").text ?? "").split(whereSeparator: \.isNewline)
                let names = lines.filter { !$0.hasPrefix("#") }.compactMap { $0.split(separator: ":").first }
                #expect(names.count > 50)
                #expect(names.filter { !explained.contains(String($0)) } == [])
            }
        }

        @Test func `the table of mutations matches the sources`() throws {
            try withMachine { machine in
                try machine.runSuccessfully(["\(Files.repository)/tools/mutations", "--check"])
            }
        }

        /// The codes in a text, such as F14 and I3. A code is a whole word, so 0xF5 contains none.
        static func codes(_ text: [UInt8]) -> Set<String> {
            let words = text.split { isalnum(CInt($0)) == 0 && $0 != UInt8(ascii: "_") }
            var codes: Set<String> = []
            for word in words where word.count == 2 || word.count == 3 {
                let number = word.dropFirst()
                guard word.first == UInt8(ascii: "F") || word.first == UInt8(ascii: "I"),
                    number.first != UInt8(ascii: "0"), number.allSatisfy({ isdigit(CInt($0)) != 0 })
                else { continue }
                codes.insert(String(decoding: word, as: UTF8.self))
            }
            return codes
        }

        /// Paths of the repository between backquotes, without the arguments of commands.
        static func paths(_ document: String) -> [String] {
            let folders = [
                "Sources/", "Tests/", "clients/", "fleet/", "bench/", "config/", "docs/", "systemd/", "tools/",
            ]
            var paths: [String] = []
            for line in document.split(separator: "\n") {
                let pieces = line.split(separator: "`", omittingEmptySubsequences: false)
                for (index, piece) in pieces.enumerated() where index % 2 == 1 {
                    guard folders.contains(where: { piece.hasPrefix($0) }) else { continue }
                    paths.append(String(piece.prefix { $0 != " " }))
                }
            }
            return paths
        }

        @Test func `codes and paths are recognized`() {
            #expect(Self.codes([UInt8]("F14, (I3; `F2`) 0xF5 UTF8 F0 F_1 F123 I7x".utf8)) == ["F14", "I3", "F2"])
            let document = "`Sources/RESP`, Sources/no and `swift build`\n`tools/fuzz 60`, `docs/design.md`"
            #expect(Self.paths(document) == ["Sources/RESP", "tools/fuzz", "docs/design.md"])
        }
    }
}
