import CacheCore
import Testing

@testable import ImageFetcher

@Suite struct RetryAfterTests {
    private static let date = "Sun, 06 Nov 1994 08:49:37 GMT"
    private static let moment: Int64 = 784_111_777

    static let rows: [(value: String, date: String?, milliseconds: Int64?)] = [
        ("120", nil, 120_000), ("1", nil, 1_000), ("0", nil, nil), ("007", nil, 7_000),
        ("99999999999999999999", nil, DeltaSeconds.most * 1_000),
        ("9223372036854775807", nil, DeltaSeconds.most * 1_000),
        ("-1", nil, nil), ("+1", nil, nil), ("1.5", nil, nil), ("1 s", nil, nil), ("", nil, nil), ("soon", nil, nil),
        // RFC 9110 section 5.6.7: the three forms of a date, relative to the response's Date.
        ("Sun, 06 Nov 1994 08:50:07 GMT", date, 30_000), ("Sunday, 06-Nov-94 08:50:07 GMT", date, 30_000),
        ("Sun Nov  6 08:50:07 1994", date, 30_000),
        (date, date, nil), ("Sun, 06 Nov 1994 08:49:07 GMT", date, nil), ("Sun, 06 Nov 1994 08:50:07 GMT", nil, 20_000),
        ("Sun, 06 Nov 1994 08:50:07 GMT", "no date", 20_000), ("Sun, 06 Nov 1994", date, nil),
        ("Sun, 99 Foo 1994 08:50:07 GMT", date, nil), ("1994-11-06 08:50:07", date, nil),
    ]

    @Test(arguments: rows)
    func `F14, F37: Retry-After is seconds, or a date relative to the response's Date`(
        _ row: (value: String, date: String?, milliseconds: Int64?)
    ) {
        // The local clock is 10 s ahead of the origin's.
        #expect(RetryAfter.milliseconds(row.value, date: row.date, now: Self.moment + 10) == row.milliseconds)
    }
}
