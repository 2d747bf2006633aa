import Testing

@testable import CacheCore

@Suite struct StoragePolicyTests {
    /// Sun, 06 Nov 1994 08:49:37 GMT.
    private static let now: Int64 = 784_111_777
    private static let responseTime = ResponseTime(now: now, wallClock: now)
    /// default-ttl is a day, the stale windows are ten minutes and an hour, and negative-ttl is five minutes.
    private static let origin = Origin(
        name: "default", url: "https://origin.test/{profile}", defaultTTL: 86_400, negativeTTL: 300,
        staleWhileRevalidate: 600, staleIfError: 3_600)

    struct Case: Sendable, CustomTestStringConvertible {
        let rule: String
        let headers: [String: [String]]
        let lifetime: Int64
        var storable = true
        var initialAge: Int64 = 0
        var whileRevalidate: Int64 = 600
        var ifError: Int64 = 3_600
        var testDescription: String { rule }
    }

    static let cases = [
        Case(rule: "no header fields: the origin's default-ttl", headers: [:], lifetime: 86_400),
        Case(rule: "5.2.2.1 max-age", headers: ["cache-control": ["max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.5 no-store", headers: ["cache-control": ["no-store, max-age=60"]], lifetime: 0,
            storable: false, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "5.2.2.5 no-store in a second field line",
            headers: ["cache-control": ["max-age=60", "no-store"]], lifetime: 0, storable: false, whileRevalidate: 0,
            ifError: 0),
        Case(
            rule: "5.2.2.3 must-understand: overrides no-store, because the status is understood",
            headers: ["cache-control": ["no-store, must-understand, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.7 private allows a private cache to store",
            headers: ["cache-control": ["private, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.10 s-maxage applies to shared caches only",
            headers: ["cache-control": ["s-maxage=5, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.8 proxy-revalidate applies to shared caches only",
            headers: ["cache-control": ["proxy-revalidate, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.4 and 4.2.4 no-cache: stored, and never served without revalidation",
            headers: ["cache-control": ["no-cache, max-age=60, stale-if-error=5"]], lifetime: 0, whileRevalidate: 0,
            ifError: 0),
        Case(
            rule: "5.2.2.4 no-cache with field names does not apply: clients get no fields",
            headers: ["cache-control": ["no-cache=\"a, b\"", "max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.2 must-revalidate: never served stale",
            headers: ["cache-control": ["must-revalidate, max-age=60"]],
            lifetime: 60, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "5.2.2.2 must-revalidate overrides RFC 5861",
            headers: ["cache-control": ["must-revalidate, max-age=60, stale-while-revalidate=9, stale-if-error=9"]],
            lifetime: 60, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "RFC 5861: the response's windows override the configured ones",
            headers: ["cache-control": ["max-age=60, stale-while-revalidate=9, stale-if-error=99999"]],
            lifetime: 60, whileRevalidate: 9, ifError: 99_999),
        Case(
            rule: "RFC 5861: windows of zero forbid stale responses",
            headers: ["cache-control": ["max-age=60, stale-while-revalidate=0, stale-if-error=0"]],
            lifetime: 60, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "RFC 8246 immutable changes nothing", headers: ["cache-control": ["immutable, max-age=60"]],
            lifetime: 60),
        Case(
            rule: "5.3 Expires, relative to Date",
            headers: [
                "date": ["Sun, 06 Nov 1994 08:49:37 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"],
            ], lifetime: 60),
        Case(
            rule: "5.3 Expires with a missing or invalid Date: relative to now",
            headers: ["expires": ["Sun, 06 Nov 1994 08:50:37 GMT"], "date": ["foo"]], lifetime: 60),
        Case(
            rule: "5.3 Expires before a Date in the future",
            headers: ["date": ["Sun, 06 Nov 1994 08:51:17 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]],
            lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "5.3 an invalid Expires is in the past", headers: ["expires": ["0"]], lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "4.2.4 max-age=0: served stale on errors only",
            headers: ["cache-control": ["max-age=0"]], lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "RFC 5861: stale on arrival, with windows of its own",
            headers: ["cache-control": ["max-age=0, stale-while-revalidate=9, stale-if-error=99"]], lifetime: 0,
            whileRevalidate: 9, ifError: 99),
        Case(
            rule: "4.2.1 an invalid max-age: stale on arrival",
            headers: ["cache-control": ["max-age=1.5"]], lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "4.2.4 as old as its lifetime: stale on arrival",
            headers: ["cache-control": ["max-age=60"], "age": ["60"]], lifetime: 60, initialAge: 60,
            whileRevalidate: 0),
        Case(
            rule: "4.2.4 a second younger: the operator's windows",
            headers: ["cache-control": ["max-age=60"], "age": ["59"]], lifetime: 60, initialAge: 59),
        Case(
            rule: "4.2.4 older than default-ttl: stale on arrival", headers: ["age": ["86400"]], lifetime: 86_400,
            initialAge: 86_400, whileRevalidate: 0),
        Case(
            rule: "4.2.1 the first of two Expires", headers: ["expires": ["Sun, 06 Nov 1994 08:50:37 GMT", "0"]],
            lifetime: 60),
        Case(
            rule: "5.3 max-age overrides Expires",
            headers: ["cache-control": ["max-age=60"], "expires": ["0"]], lifetime: 60),
        Case(
            rule: "5.1 and 4.2.3 Age", headers: ["cache-control": ["max-age=60"], "age": ["25"]], lifetime: 60,
            initialAge: 25),
        Case(
            rule: "5.1 an invalid Age is ignored", headers: ["cache-control": ["max-age=60"], "age": ["-3"]],
            lifetime: 60),
        Case(
            rule: "4.2.3 a Date ten minutes ago: the apparent age",
            headers: ["cache-control": ["max-age=60"], "date": ["Sun, 06 Nov 1994 08:39:37 GMT"]], lifetime: 60,
            initialAge: 600, whileRevalidate: 0),
        Case(
            rule: "4.2.3 Expires with a slow Date, and Age",
            headers: [
                "date": ["Sun, 06 Nov 1994 08:49:27 GMT"], "expires": ["Sun, 06 Nov 1994 08:49:47 GMT"],
                "age": ["25"],
            ], lifetime: 20, initialAge: 25, whileRevalidate: 0),
        Case(
            rule: "4.2.3 Expires with a fast Date, and Age",
            headers: [
                "date": ["Sun, 06 Nov 1994 08:49:47 GMT"], "expires": ["Sun, 06 Nov 1994 08:49:57 GMT"],
                "age": ["15"],
            ], lifetime: 10, initialAge: 15, whileRevalidate: 0),
        Case(
            rule: "4.2.2 estimated from Last-Modified", headers: ["last-modified": ["Sun, 06 Nov 1994 00:49:37 GMT"]],
            lifetime: 2_880),
        Case(
            rule: "4.2.2 no estimate beside an explicit lifetime",
            headers: ["last-modified": ["Sun, 06 Nov 1994 00:49:37 GMT"], "cache-control": ["max-age=60"]],
            lifetime: 60),
        Case(
            rule: "5.4 Pragma: no-cache alone: no estimate",
            headers: ["pragma": ["no-cache"], "last-modified": ["Sun, 06 Nov 1994 00:49:37 GMT"]], lifetime: 0,
            whileRevalidate: 0, ifError: 0),
        Case(
            rule: "5.4 Pragma is ignored beside Cache-Control",
            headers: ["pragma": ["no-cache"], "cache-control": ["max-age=60"]], lifetime: 60),
        Case(
            rule: "5.4 Pragma is ignored beside Expires",
            headers: ["pragma": ["no-cache"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]], lifetime: 60),
        Case(rule: "5.4 Pragma with another value is ignored", headers: ["pragma": ["x"]], lifetime: 86_400),
        Case(
            rule: "4.1 Vary: *", headers: ["vary": ["Accept", "*"], "cache-control": ["max-age=60"]], lifetime: 0,
            whileRevalidate: 0, ifError: 0),
        Case(
            rule: "4.1 Vary by fields of the daemon's requests", headers: ["vary": ["Accept, Authorization"]],
            lifetime: 86_400),
    ]

    @Test(arguments: cases)
    func `RFC 9111: whether a response may be stored, and its lifetime`(given: Case) {
        let headers = ResponseHeaders(given.headers)
        let policy = StoragePolicy(StoredFields(headers), headers, origin: Self.origin, at: Self.responseTime)
        #expect(policy.mayStore == given.storable)
        #expect(
            policy.freshness
                == Freshness(
                    storedAt: Self.now, initialAge: given.initialAge, lifetime: given.lifetime,
                    staleWhileRevalidate: given.whileRevalidate, staleIfError: given.ifError))
    }

    private static func policy(
        _ fields: [String: [String]], after redirects: [[String: [String]]], delays: [Int64] = [], delay: Int64 = 0
    ) -> StoragePolicy {
        let hops = redirects.enumerated().map { index, fields in
            ResponseHeaders(fields, delay: delays.indices.contains(index) ? delays[index] : 0)
        }
        let headers = ResponseHeaders(fields, delay: delay, redirects: hops)
        return StoragePolicy(StoredFields(headers), headers, origin: origin, at: responseTime)
    }

    @Test func `section 3: an image after a redirect with no-store is not stored`() {
        for (controls, storable) in [
            (["max-age=0, no-cache"], true), ([""], true), (["private", "no-store"], false), (["No-Store"], false),
            (["no-store, must-understand"], true),
        ] {
            let policy = Self.policy(["cache-control": ["max-age=60"]], after: [["cache-control": controls]])
            #expect(policy.mayStore == storable, "\(controls)")
        }
    }

    @Test func `F35: an image after a redirect whose Cache-Control is too long to store is not stored`() {
        for text in ["\"", "\"\\", "\"a", "x=\"\\", ","] {
            let long = String(repeating: text, count: (16 << 10) / text.utf8.count)
            let policy = Self.policy(["cache-control": ["max-age=60"]], after: [["cache-control": [long]]])
            #expect(!policy.mayStore)
        }
    }

    @Test(
        arguments: [
            ("no header fields: default-ttl", [[:]], 86_400),
            ("one redirect's max-age", [["cache-control": ["max-age=60"]]], 60),
            (
                "the shortest of several", [["cache-control": ["max-age=90"]], ["cache-control": ["max-age=60"]], [:]],
                60
            ),
            ("no-cache: never fresh", [["cache-control": ["no-cache"]]], 0),
            ("no-cache beside a lifetime: never fresh", [["cache-control": ["no-cache, max-age=60"]]], 0),
            ("Pragma: no-cache alone: never fresh", [["pragma": ["no-cache"]]], 0),
            ("Vary: *: never fresh", [["vary": ["*"]]], 0),
            ("a lifetime of zero", [["cache-control": ["max-age=0"]]], 0),
            ("a lifetime reduced by Age", [["cache-control": ["max-age=60"], "age": ["25"]]], 35),
            ("an Age beyond the lifetime", [["cache-control": ["max-age=60"], "age": ["90"]]], 0),
            (
                "Expires", [["date": ["Sun, 06 Nov 1994 08:49:37 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]]],
                60
            ),
            ("an Expires in the past", [["expires": ["0"]]], 0),
            ("no estimate from Last-Modified", [["last-modified": ["Sun, 06 Nov 1994 08:49:36 GMT"]]], 86_400),
            ("longer than the image's lifetime", [["cache-control": ["max-age=99999999"]]], 31_536_000),
        ] as [(String, [[String: [String]]], Int64)])
    func `section 4.2: the lifetime of an image after redirects is limited by each redirect`(
        rule: String, redirects: [[String: [String]]], lifetime: Int64
    ) {
        let policy = Self.policy(["cache-control": ["max-age=31536000"]], after: redirects)
        #expect(policy.mayStore)
        #expect(policy.freshness.timeToLive(at: Self.now) == lifetime, "\(rule)")
    }

    @Test func `section 4.2: the image and the redirect are each aged by their own Age`() {
        let old = ["cache-control": ["max-age=31536000"], "age": ["1000"]]
        let policy = Self.policy(old, after: [["cache-control": ["max-age=60"]]])
        #expect(policy.freshness.age(at: Self.now) == 1_000)
        #expect(policy.freshness.state(at: Self.now + 59) == .fresh)
        #expect(policy.freshness.state(at: Self.now + 60) == .staleServable)
        let expired = Self.policy(["cache-control": ["max-age=500"], "age": ["1000"]], after: [[:]])
        #expect(expired.freshness.timeToLive(at: Self.now) == -500)
    }

    @Test func `section 4.2.3: a redirect ages by the delays of all later responses`() {
        let redirects = [["cache-control": ["max-age=60"]], ["cache-control": ["max-age=100"]]]
        let policy = Self.policy(["cache-control": ["max-age=100"]], after: redirects, delays: [1, 2], delay: 3)
        #expect(policy.freshness.timeToLive(at: Self.now) == 54)
    }

    @Test func `section 4.2.4: a redirect can forbid serving its target stale`() {
        for (control, isForbidden) in [
            ("max-age=60, must-revalidate", true), ("no-cache", true), ("max-age=60", false), ("", false),
        ] {
            let policy = Self.policy(
                ["cache-control": ["max-age=60, stale-if-error=9"]], after: [[:], ["cache-control": [control]]])
            #expect(policy.freshness.staleWhileRevalidate == (isForbidden ? 0 : 600), "\(control)")
            #expect(policy.freshness.staleIfError == (isForbidden ? 0 : 9), "\(control)")
        }
    }

    @Test(
        arguments: [
            ("", "max-age=0", 0, 3_600), ("", "max-age=0, stale-while-revalidate=9", 9, 3_600),
            ("max-age=0, stale-while-revalidate=9", "", 9, 3_600),
            ("max-age=60, stale-while-revalidate=99", "", 99, 3_600),
            ("max-age=60, stale-while-revalidate=99", "max-age=60, stale-while-revalidate=9, stale-if-error=8", 9, 8),
            ("max-age=60, stale-while-revalidate=99999", "max-age=60", 600, 3_600),
        ] as [(String, String, Int64, Int64)])
    func `section 4.2.4: the stale windows of an image after a redirect are limited by both responses`(
        image: String, redirect: String, whileRevalidate: Int64, ifError: Int64
    ) {
        let policy = Self.policy(["cache-control": [image]], after: [["cache-control": [redirect]]])
        #expect(policy.freshness.staleWhileRevalidate == whileRevalidate)
        #expect(policy.freshness.staleIfError == ifError)
    }

    @Test func `section 4.2.3: the response delay is added to the age`() {
        let headers = ResponseHeaders(["age": ["25"]], delay: 3)
        let policy = StoragePolicy(StoredFields(headers), headers, origin: Self.origin, at: Self.responseTime)
        #expect(policy.freshness.age(at: Self.now + 10) == 38)
    }

    @Test func `F14: a wall clock that is a year off does not make a new response old`() {
        let headers = ResponseHeaders([
            "date": ["Sun, 06 Nov 1994 08:49:37 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"],
        ])
        for year in [31_536_000, -31_536_000] as [Int64] {
            let responseTime = ResponseTime(now: Self.now, wallClock: Self.now + year)
            let policy = StoragePolicy(StoredFields(headers), headers, origin: Self.origin, at: responseTime)
            #expect(policy.freshness.state(at: Self.now + 59) == .fresh)
            #expect(policy.freshness.state(at: Self.now + 60) == .staleServable)
        }
    }

    @Test(
        arguments: [
            ([:], 300), (["cache-control": ["max-age=60"]], 60),
            (["cache-control": ["max-age=60"], "age": ["45"]], 15),
            (["cache-control": ["max-age=60"], "age": ["90"]], 0), (["expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]], 60),
            (["expires": ["0"]], 0), (["cache-control": ["no-store"]], 0), (["cache-control": ["no-cache"]], 0),
            (["vary": ["*"]], 0), (["last-modified": ["Sun, 06 Nov 1904 08:50:37 GMT"]], 300),
            (["age": ["100"]], 200), (["cache-control": ["max-age=99999999999"]], 86_400),
            (["cache-control": ["max-age=31536000"]], 86_400),
        ] as [([String: [String]], Int64)])
    func
        `section 4.2: the lifetime of a 404 or 410 is its own or negative-ttl, up to negative-ttl-max`(
            headers: [String: [String]], seconds: Int64
        )
    {
        let until = NegativePolicy.believedUntil(
            ResponseHeaders(headers), origin: Self.origin, at: Self.responseTime)
        #expect(until == Self.now + seconds)
    }
}
