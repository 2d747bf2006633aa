import Testing

@testable import CacheCore

/// RFC 9110 section 5.6.7, and the leniency that RFC 9111 section 4.2 requires of caches.
@Suite struct HTTPDateTests {
    /// 2026-11-21.
    private static let now: Int64 = 1_795_219_200

    @Test(arguments: [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
        ("Tue, 29 Feb 2000 12:00:00 GMT", 951_825_600),
        ("Fri, 01 Mar 1900 00:00:00 GMT", -2_203_891_200),
        ("Tue, 19 Jan 2038 03:14:08 GMT", 2_147_483_648),
        ("Sun, 21 Nov 2286 04:46:39 GMT", 10_000_039_599),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
        ("Fri, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
    ])
    func `the preferred form is converted to seconds since 1970`(text: String, seconds: Int64) {
        #expect(HTTPDate.seconds(text, now: Self.now) == seconds)
    }

    @Test(arguments: [
        "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994", "Sun Nov 06 08:49:37 1994",
        "SUN, 06 NOV 1994 08:49:37 GMT", "sun, 06 nov 1994 08:49:37 gMT", "SUNDAY, 06-nov-94 08:49:37 gmt",
        "sun NOV  6 08:49:37 1994",
    ])
    func `the obsolete forms give the same time, and names are case-insensitive`(text: String) {
        #expect(HTTPDate.seconds(text, now: Self.now) == 784_111_777)
    }

    @Test(
        arguments: [
            // From 2026, at most 50 years ahead.
            ("Thursday, 18-Aug-50 02:01:18 GMT", 2_544_400_878, now),
            ("Friday, 20-Nov-76 00:00:00 GMT", 3_373_056_000, now),
            // More than 50 years ahead means the most recent past year with these digits.
            ("Sunday, 20-Nov-77 00:00:00 GMT", 248_832_000, now), ("Friday, 31-Dec-99 00:00:00 GMT", 946_598_400, now),
            // The same text, read in another century.
            ("Friday, 31-Dec-99 00:00:00 GMT", 4_102_358_400, 4_000_000_000),
        ] as [(String, Int64, Int64)])
    func `a two-digit year is the nearest one that is at most 50 years ahead`(
        text: String, seconds: Int64, now: Int64
    ) {
        #expect(HTTPDate.seconds(text, now: now) == seconds)
    }

    @Test(arguments: [
        "", "0", "-1", "1994", "foo", "Sun", "Sun,", "Sun, 06 Nov 1994", "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 CET", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 Now 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:00:00 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov 1994 8:49:37 GMT", "Sun, 06 Nov 1994 08.49.37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT", "Sun, 06 Nov 19944 08:49:37 GMT", "Sun,  06 Nov 1994 08:49:37 GMT",
        "Sun, 06  Nov  1994 08:49:37 GMT", "Sun,06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov +994 08:49:37 GMT",
        "Sun 06 Nov 1994 08:49:37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT", "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT", "Sun, 06-Nov-94 08:49:37 GMT", "Sum, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT ", " Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 -8:49:37 GMT",
        "Sun, ٠٦ Nov 1994 08:49:37 GMT", "Sun Nov 6 08:49:37 1994", "Sunday Nov  6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT", "Fri, 30 Feb 2001 00:00:00 GMT", "Thu, 31 Apr 2003 00:00:00 GMT",
        "Wed, 29 Feb 2100 00:00:00 GMT", "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
    ])
    func `all other texts are rejected`(text: String) {
        #expect(HTTPDate.seconds(text, now: Self.now) == nil)
    }
}
