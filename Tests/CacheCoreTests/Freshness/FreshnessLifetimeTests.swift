import Testing

@testable import CacheCore

/// RFC 9111 sections 4.2.1, 4.2.2, 5.2.2.1 and 5.3.
@Suite struct FreshnessLifetimeTests {
    /// Sun, 06 Nov 1994 08:49:37 GMT.
    private static let now: Int64 = 784_111_777

    private func stated(_ control: String = "", expires: String?, date: Int64 = now) -> Int64? {
        FreshnessLifetime.explicit(CacheControl(control), expires: expires, date: date, now: Self.now)
    }

    @Test func `Expires counts from Date, by whatever clock wrote both`() {
        #expect(stated(expires: "Sun, 06 Nov 1994 08:50:37 GMT") == 60)
        #expect(stated(expires: "Sun, 06 Nov 1994 08:50:37 GMT", date: Self.now - 100) == 160)
        #expect(stated(expires: "Sun, 06 Nov 1994 08:50:37 GMT", date: Self.now + 20) == 40)
        #expect(stated(expires: "Fri, 31 Dec 9999 23:59:59 GMT") == 252_618_189_022)
        #expect(stated(expires: nil) == nil)
    }

    @Test(arguments: [
        "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:40:00 GMT", "0", "-1", "", "soon",
        "Sun, 06 Nov 1995 08:49:37 CET", "Sun, 06 Nov 95 08:49:37 GMT",
    ])
    func `section 5.3: Expires in the past, now, or unreadable is stale`(expires: String) {
        #expect(stated(expires: expires) == 0)
    }

    @Test func `section 5.3: max-age counts before Expires, also when it is shorter or unreadable`() {
        #expect(stated("max-age=60", expires: "0") == 60)
        #expect(stated("max-age=0", expires: "Fri, 31 Dec 9999 23:59:59 GMT") == 0)
        #expect(stated("max-age=x", expires: "Fri, 31 Dec 9999 23:59:59 GMT") == 0)
        #expect(stated("s-maxage=60", expires: nil) == nil)
    }

    @Test(
        arguments: [
            (nil, 86_400),
            // A tenth of the time since the last change,
            (100_000, 10_000), (36_000, 3_600),
            // but no longer than default-ttl,
            (864_000, 86_400), (10_000_000, 86_400),
            // and no shorter than five minutes.
            (2_999, 300), (5, 300), (0, 300), (-3_600, 300),
        ] as [(Int64?, Int64)])
    func `section 4.2.2: what is not said is guessed from Last-Modified`(unchangedFor: Int64?, lifetime: Int64) {
        let date = Self.now + 10_000_000
        let changed = unchangedFor.map { HTTPDateWriting.text(date - $0) }
        let guessed = HeuristicFreshness.lifetime(lastModified: changed, date: date, longest: 86_400, now: date)
        #expect(guessed == lifetime)
    }

    @Test func `section 4.2.2: nothing is guessed beyond what the operator allows, nor from what is no date`() {
        let changed = "Sun, 06 Nov 1994 08:49:37 GMT"
        func guess(_ longest: Int64, _ lastModified: String) -> Int64 {
            HeuristicFreshness.lifetime(lastModified: lastModified, date: Self.now, longest: longest, now: Self.now)
        }
        #expect(guess(0, changed) == 0)
        #expect(guess(60, changed) == 60)
        #expect(guess(3_600, "yesterday") == 3_600)
    }
}

/// The preferred form of a date, for tests that make one.
enum HTTPDateWriting {
    static func text(_ seconds: Int64) -> String {
        let days = seconds / 86_400
        let time = seconds % 86_400
        // Counted through: tests may be slow and plain.
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
