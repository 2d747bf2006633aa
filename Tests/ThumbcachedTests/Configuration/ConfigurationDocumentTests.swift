import Foundation
import LinuxSupport
import ProgramSupport
import Testing

@testable import thumbcached

/// docs/configuration.md against the program's own list of keys. `make check` holds config/thumbcached.toml and its
/// values against that document, and ConfigurationTests these values against the defaults.
@Suite struct ConfigurationDocumentTests {
    struct Row: CustomTestStringConvertible, Sendable {
        let key: String
        let values: String
        let isReloaded: Bool
        var testDescription: String { key }
    }

    static let rows: [Row] = {
        let file = repository.appending(path: "docs/configuration.md")
        var isReloaded = false
        return ((try? String(contentsOf: file, encoding: .utf8)) ?? "").split(separator: "\n").compactMap { line in
            if line.hasPrefix("#") { isReloaded = line.contains("↻") }
            guard line.hasPrefix("| `") else { return nil }
            let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
            let key = cells[0].split(separator: "`")[0]
            return Row(key: String(key), values: cells[2], isReloaded: isReloaded || cells[0].contains("↻"))
        }
    }()

    @Test func `the document has a row for each key and for nothing else`() {
        let origins = Configuration.originSettings.map { "origins.NAME.\($0.name)" }
        let keys = Configuration.settings(accounts: .system).map(\.name) + origins
        #expect(Self.rows.map(\.key).sorted() == keys.sorted())
    }

    @Test func `the document marks what a reload takes over`() {
        let fixed = Set(Configuration.settings(accounts: .system).filter { !$0.isReloadable }.map(\.name))
        for row in Self.rows { #expect(row.isReloaded == !fixed.contains(row.key), "\(row.key)") }
    }

    /// The least and the most that a row names, as a file writes them, and what is beyond.
    struct Range: Sendable {
        let bounds: [String]
        let beyond: [String]

        init?(_ values: String) {
            let words = values.replacing(",", with: "").split(separator: " ").map(String.init)
            guard words.count >= 3, words[1] == "to" else { return nil }
            let (least, most) = (words[0], words[2])
            if let lower = Int(least), let upper = Int(most) {
                bounds = [least, most]
                beyond = ["\(lower - 1)", "\(upper + 1)"]
                return
            }
            for (quantity, unit) in [(Quantity.size, "B"), (Quantity.time, "ms")] {
                guard let lower = quantity.parse(least), let upper = quantity.parse(most) else { continue }
                bounds = ["\"\(least)\"", "\"\(most)\""]
                beyond = (lower > 0 ? ["\"\(lower - 1)\(unit)\""] : []) + ["\"\(upper + 1)\(unit)\""]
                return
            }
            return nil
        }
    }

    static let ranges = rows.filter { Range($0.values) != nil }

    @Test func `the document names ranges`() { #expect(Self.ranges.count > 25) }

    @Test(arguments: ranges) func `I8: what the document calls the least and the most is so`(row: Row) throws {
        let range = try #require(Range(row.values))
        let isOrigins = row.key.hasPrefix("origins.NAME.")
        let name = isOrigins ? String(row.key.dropFirst("origins.NAME.".count)) : row.key
        let before = isOrigins ? "[origins.default]\nurl = \"https://a.example/{profile}\"\n" : ""
        // Another key may be in the way: that is a matter of its own.
        func isInRange(_ value: String) throws -> Bool {
            do {
                _ = try Fixture.decode("\(before)\(name) = \(value)\n")
                return true
            } catch let error as ConfigurationError {
                return !["out of range", "negative", "too much", "too little", "too long", "too short"].contains {
                    "\(error)".contains($0)
                }
            }
        }
        for value in range.bounds { #expect(try isInRange(value), "\(row.key) = \(value)") }
        for value in range.beyond where value != "\"0B\"" || !row.values.contains("\"0\"") {
            #expect(try !isInRange(value), "\(row.key) = \(value)")
        }
    }
}
