import Foundation
import ProgramSupport
import TestSupport
import Testing

@testable import thumbcached

@Suite struct MutatedConfigurationTests {
    @Test func `F50: a mutated file is read or rejected with a reason`() throws {
        let example = try #require(ConfigurationTests.example)
        // Short and with an origin, so that most mutations change something.
        let lines = example.split(separator: "\n").map { $0.hasPrefix("# ") ? $0.dropFirst(2) : $0 }
        let text = Array(lines.filter { $0.contains("=") || $0.hasPrefix("[") }.joined(separator: "\n").utf8)
        let pieces = [
            "[", "]", "{", "}", "\"", "'", "'''", "\"\"\"", "=", ".", ",", "\n", "\\", "#", "-1", "0x", "1e9",
        ]
        var random = SeededRandom(seed: 0x7468_756d_6263_6163)
        func number(below bound: Int) -> Int { Int.random(in: 0..<bound, using: &random) }
        var rejected = 0
        for _ in 0..<1500 {
            var bytes = text
            for _ in 0...number(below: 3) {
                let place = number(below: bytes.count)
                switch number(below: 4) {
                case 0: bytes.remove(at: place)
                case 1: bytes[place] = UInt8(number(below: 256))
                case 2: bytes.removeSubrange(place..<min(bytes.count, place + number(below: 40)))
                default: bytes.insert(contentsOf: Array(pieces[number(below: pieces.count)].utf8), at: place)
                }
            }
            do {
                _ = try Fixture.decode(String(decoding: bytes, as: UTF8.self))
            } catch let error as ConfigurationError {
                #expect(!error.problems.isEmpty)
                #expect(error.problems.allSatisfy { !$0.sentence.isEmpty && !$0.sentence.contains("\n") })
                rejected += 1
            }
        }
        #expect(rejected > 500)
    }

    @Test(arguments: [
        String(repeating: "[", count: 100_000), "a = " + String(repeating: "[", count: 100_000),
        "a = " + String(repeating: "{a=", count: 100_000), String(repeating: "a.", count: 100_000) + "a = 1",
        "[" + String(repeating: "a.", count: 100_000) + "a]",
    ])
    func `F50: deep nesting is rejected`(_ text: String) {
        #expect(throws: ConfigurationError.self) { try Fixture.decode(text) }
    }
}
