import CacheCore
import Foundation
import LinuxSupport
import Origins
import ProgramSupport
import Testing

@testable import thumbcached

/// Compares docs/configuration.md with the program's settings. `make check` compares config/thumbcached.toml with the
/// document.
@Suite struct ConfigurationDocumentTests {
    struct Row: CustomTestStringConvertible, Sendable {
        let key: String
        /// As TOML; nil if the document describes it in words.
        let defaultValue: String?
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
            let literal = cells[1].hasPrefix("`") ? cells[1].replacing("`", with: "") : nil
            return Row(
                key: String(key), defaultValue: literal, values: cells[2],
                isReloaded: isReloaded || cells[0].contains("↻"))
        }
    }()

    @Test func `the document has a row for each key, and no other rows`() {
        let origins = Origin.settings.map { "origins.NAME.\($0.setting.name)" }
        let keys = Configuration.settings(accounts: .system).map(\.name) + origins
        #expect(Self.rows.map(\.key).sorted() == keys.sorted())
    }

    @Test(arguments: rows.filter { $0.defaultValue != nil })
    func `the document names the default`(row: Row) throws {
        let isOrigins = row.key.hasPrefix("origins.NAME.")
        let origin = "[origins.default]\nurl = \"https://a.example/{profile}\"\n"
        let (before, name) = isOrigins ? (origin, String(row.key.dropFirst("origins.NAME.".count))) : ("", row.key)
        let written = try Fixture.decode("\(before)\(name) = \(row.defaultValue ?? "")\n")
        #expect(written == (try Fixture.decode(before)))
    }

    @Test func `the document marks the keys that a reload applies`() {
        let fixed = Set(Configuration.settings(accounts: .system).filter { !$0.isReloadable }.map(\.name))
        for row in Self.rows { #expect(row.isReloaded == !fixed.contains(row.key), "\(row.key)") }
    }

    /// The bounds in a row as TOML, and values beyond them.
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

    @Test(arguments: ranges) func `I8: the document names the bounds of each value`(row: Row) throws {
        let range = try #require(Range(row.values))
        let isOrigins = row.key.hasPrefix("origins.NAME.")
        let name = isOrigins ? String(row.key.dropFirst("origins.NAME.".count)) : row.key
        let before = isOrigins ? "[origins.default]\nurl = \"https://a.example/{profile}\"\n" : ""
        // An error about another key does not matter here.
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
