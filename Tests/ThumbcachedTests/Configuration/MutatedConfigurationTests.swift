import Foundation
import ProgramSupport
import Testing

@testable import thumbcached

@Suite struct MutatedConfigurationTests {
    /// Numbers that are the same in every run, so that a failure can be had again (Marsaglia, xorshift64).
    struct Dice {
        var state: UInt64
        mutating func roll(_ sides: Int) -> Int {
            state ^= state << 13
            state ^= state >> 7
            state ^= state << 17
            return Int(state % UInt64(sides))
        }
    }

    @Test func `F50: whatever becomes of a file, it is read or refused with a reason`() throws {
        let example = try #require(ConfigurationTests.example)
        // Short, with an origin, so that most of what is hit means something.
        let lines = example.split(separator: "\n").map { $0.hasPrefix("# ") ? $0.dropFirst(2) : $0 }
        let text = Array(lines.filter { $0.contains("=") || $0.hasPrefix("[") }.joined(separator: "\n").utf8)
        let pieces = [
            "[", "]", "{", "}", "\"", "'", "'''", "\"\"\"", "=", ".", ",", "\n", "\\", "#", "-1", "0x", "1e9",
        ]
        var dice = Dice(state: 0x7468_756d_6263_6163)
        var refused = 0
        for _ in 0..<1500 {
            var bytes = text
            for _ in 0...dice.roll(3) {
                let place = dice.roll(bytes.count)
                switch dice.roll(4) {
                case 0: bytes.remove(at: place)
                case 1: bytes[place] = UInt8(dice.roll(256))
                case 2: bytes.removeSubrange(place..<min(bytes.count, place + dice.roll(40)))
                default: bytes.insert(contentsOf: Array(pieces[dice.roll(pieces.count)].utf8), at: place)
                }
            }
            do {
                _ = try Fixture.decode(String(decoding: bytes, as: UTF8.self))
            } catch let error as ConfigurationError {
                #expect(!error.problems.isEmpty)
                #expect(error.problems.allSatisfy { !$0.sentence.isEmpty && !$0.sentence.contains("\n") })
                refused += 1
            }
        }
        #expect(refused > 500)
    }

    @Test(arguments: [
        String(repeating: "[", count: 100_000), "a = " + String(repeating: "[", count: 100_000),
        "a = " + String(repeating: "{a=", count: 100_000), String(repeating: "a.", count: 100_000) + "a = 1",
        "[" + String(repeating: "a.", count: 100_000) + "a]",
    ])
    func `F50: nesting without end is refused`(_ text: String) {
        #expect(throws: ConfigurationError.self) { try Fixture.decode(text) }
    }
}
