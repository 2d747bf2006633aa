import Testing

@testable import CacheCore

/// Exponential backoff with jitter (F37).
@Suite struct BackoffTests {
    static let rows: [(base: Int64, most: Int64, attempt: Int, ceiling: Int64)] = [
        (1_000, 60_000, 1, 1_000), (1_000, 60_000, 2, 2_000), (1_000, 60_000, 6, 32_000), (1_000, 60_000, 7, 60_000),
        (1_000, 60_000, 1_000_000, 60_000), (1_000, 60_000, .max, 60_000), (1_000, 60_000, 0, 1_000),
        (1, .max, 63, 1 << 62), (1, .max, 64, .max), (3, .max, 62, 3 << 61), (3, .max, 63, .max),
        (5_000, 1_000, 1, 5_000), (5_000, 1_000, 9, 5_000), (0, 0, 1, 1), (-7, -9, 3, 1),
    ]

    @Test(arguments: rows)
    func `F37: the longest wait doubles with each attempt, up to the maximum`(
        _ row: (base: Int64, most: Int64, attempt: Int, ceiling: Int64)
    ) {
        #expect(Backoff(base: row.base, most: row.most).ceiling(attempt: row.attempt) == row.ceiling)
    }

    @Test func `F37: the wait is drawn from the whole range and is at least a tenth of its upper bound`() {
        let backoff = Backoff(base: 1_000, most: 60_000)
        var ranges: [ClosedRange<Int64>] = []
        let wait: (Int64) -> Int64 = { drawn in
            backoff.wait(attempt: 3) { range in
                ranges.append(range)
                return drawn
            }
        }
        #expect([0, 399, 400, 401, 2_345, 4_000].map(wait) == [400, 400, 400, 401, 2_345, 4_000])
        // Draws outside the range are clamped.
        #expect([-5, 4_001, .max, .min].map(wait) == [400, 4_000, 4_000, 400])
        #expect(ranges.allSatisfy { $0 == 0...4_000 })
        #expect(Backoff(base: 1, most: 1).wait(attempt: 1) { _ in 0 } == 1)
    }
}
