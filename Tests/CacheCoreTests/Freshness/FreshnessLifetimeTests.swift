import Testing

@testable import CacheCore

/// RFC 9111 sections 4.2.1, 4.2.2, 5.2.2.1 and 5.3.
@Suite struct FreshnessLifetimeTests {
    /// Sun, 06 Nov 1994 08:49:37 GMT.
    private static let now: Int64 = 784_111_777

    private func lifetime(_ control: String = "", expires: String?, date: Int64 = now) -> Int64? {
        FreshnessLifetime.explicit(CacheControl(control), expires: expires, date: date, now: Self.now)
    }

    @Test func `Expires is relative to Date, whatever the local clock shows`() {
        #expect(lifetime(expires: "Sun, 06 Nov 1994 08:50:37 GMT") == 60)
        #expect(lifetime(expires: "Sun, 06 Nov 1994 08:50:37 GMT", date: Self.now - 100) == 160)
        #expect(lifetime(expires: "Sun, 06 Nov 1994 08:50:37 GMT", date: Self.now + 20) == 40)
        #expect(lifetime(expires: "Fri, 31 Dec 9999 23:59:59 GMT") == 252_618_189_022)
        #expect(lifetime(expires: nil) == nil)
    }

    @Test(arguments: [
        "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:40:00 GMT", "0", "-1", "", "soon",
        "Sun, 06 Nov 1995 08:49:37 CET", "Sun, 06 Nov 95 08:49:37 GMT",
    ])
    func `section 5.3: Expires in the past, now, or unreadable means stale`(expires: String) {
        #expect(lifetime(expires: expires) == 0)
    }

    @Test func `section 5.3: max-age takes precedence over Expires, even if it is shorter or unreadable`() {
        #expect(lifetime("max-age=60", expires: "0") == 60)
        #expect(lifetime("max-age=0", expires: "Fri, 31 Dec 9999 23:59:59 GMT") == 0)
        #expect(lifetime("max-age=x", expires: "Fri, 31 Dec 9999 23:59:59 GMT") == 0)
        #expect(lifetime("s-maxage=60", expires: nil) == nil)
    }

    @Test(
        arguments: [
            (nil, 86_400),
            // A tenth of the time since the last change,
            (100_000, 10_000), (36_000, 3_600),
            // at most default-ttl,
            (864_000, 86_400), (10_000_000, 86_400),
            // and at least five minutes.
            (2_999, 300), (5, 300), (0, 300), (-3_600, 300),
        ] as [(Int64?, Int64)])
    func `section 4.2.2: a missing lifetime is estimated from Last-Modified`(unchangedFor: Int64?, lifetime: Int64) {
        let date = Self.now + 10_000_000
        let changed = unchangedFor.map { HTTPDateWriting.text(date - $0) }
        let guessed = HeuristicFreshness.lifetime(lastModified: changed, date: date, longest: 86_400, now: date)
        #expect(guessed == lifetime)
    }

    @Test func `section 4.2.2: the estimate is limited by default-ttl and ignores invalid dates`() {
        let changed = "Sun, 06 Nov 1994 08:49:37 GMT"
        func estimate(_ longest: Int64, _ lastModified: String) -> Int64 {
            HeuristicFreshness.lifetime(lastModified: lastModified, date: Self.now, longest: longest, now: Self.now)
        }
        #expect(estimate(0, changed) == 0)
        #expect(estimate(60, changed) == 60)
        #expect(estimate(3_600, "yesterday") == 3_600)
    }
}

/// Formats IMF-fixdate timestamps.
enum HTTPDateWriting {
    static func text(_ seconds: Int64) -> String {
        let days = seconds / 86_400
        let time = seconds % 86_400
        var year: Int64 = 1970
        var left = days
        func isLeap(_ year: Int64) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }
        while left >= (isLeap(year) ? 366 : 365) {
            left -= isLeap(year) ? 366 : 365
            year += 1
        }
        let lengths: [Int64] = [31, isLeap(year) ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
        var month = 0
        while left >= lengths[month] {
            left -= lengths[month]
            month += 1
        }
        let day = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][Int(days % 7)]
        func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
        return "\(day), \(two(left + 1)) \(names[month]) \(year) "
            + "\(two(time / 3_600)):\(two(time / 60 % 60)):\(two(time % 60)) GMT"
    }
}
