import Testing

@testable import thumbcached

/// The account that a uid is charged to (F80).
@Suite struct SubordinateUIDsTests {
    private static func uid(_ name: String) -> UInt32? { ["alice": 1000, "bob": 1001][name] }

    private func read(_ text: String) -> (SubordinateUIDs, [SubordinateUIDs.BadLine]) {
        var problems: [SubordinateUIDs.BadLine] = []
        let accounts = SubordinateUIDs(text, uidOf: Self.uid) { problems.append($0) }
        return (accounts, problems)
    }

    @Test func `F80: uids of a range belong to its account, other uids to themselves`() {
        let (accounts, problems) = read(
            "bob:165536:65536\nalice:100000:65536\n# more\n\n1002:300000:1\nalice:400000:10")
        #expect(problems.isEmpty)
        let expected: [(UInt32, UInt32)] = [
            (0, 0), (1000, 1000), (99_999, 99_999), (100_000, 1000), (165_535, 1000), (165_536, 1001), (231_071, 1001),
            (231_072, 231_072), (299_999, 299_999), (300_000, 1002), (300_001, 300_001), (400_009, 1000), (.max, .max),
        ]
        for (uid, account) in expected { #expect(accounts.account(of: uid) == account, "\(uid)") }
        #expect(SubordinateUIDs().account(of: 100_000) == 100_000)
    }

    @Test(arguments: [
        "alice:100000", "alice:100000:1:1", "alice:a:1", "alice:-1:1", "alice:1:", "alice:100000:0", "alice:0:5",
        "alice:4294967295:1", "alice:4294967290:6", "alice:4294967290:100", "carol:100000:1", "::",
        "alice:99999999999:1",
        "alice:499999:2", "alice:500005:1", "alice:500009:5", "alice:400000:200000", "\u{0}:\u{FFFD}:1",
    ])
    func `an invalid line is ignored`(_ line: String) {
        let (accounts, problems) = read("bob:500000:10\n\(line)\nalice:600000:10")
        #expect(problems.map(\.line) == [2])
        #expect(problems.allSatisfy { !$0.reason.contains("alice") })
        #expect(accounts.account(of: 500_005) == 1001 && accounts.account(of: 600_000) == 1000)
        #expect(accounts.account(of: 0) == 0)
    }

    @Test func `I8: the number of ranges is limited`() {
        let lines = (0..<(SubordinateUIDs.mostRanges + 5)).map { "alice:\(100_000 + 2 * $0):1\n" }.joined()
        let (accounts, problems) = read(lines)
        #expect(problems.count == 1)
        #expect(accounts.account(of: UInt32(100_000 + 2 * SubordinateUIDs.mostRanges - 2)) == 1000)
        let beyond = UInt32(100_000 + 2 * SubordinateUIDs.mostRanges)
        #expect(accounts.account(of: beyond) == beyond)
    }
}
