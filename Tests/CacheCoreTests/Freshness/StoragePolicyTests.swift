import Testing

@testable import CacheCore

@Suite struct StoragePolicyTests {
    /// Sun, 06 Nov 1994 08:49:37 GMT.
    private static let now: Int64 = 784_111_777
    private static let responseTime = ResponseTime(now: now, wallClock: now)
    /// A day by default, ten minutes and an hour of staleness, five minutes for what is missing.
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
        Case(rule: "nothing said: the origin's default-ttl", headers: [:], lifetime: 86_400),
        Case(rule: "5.2.2.1 max-age", headers: ["cache-control": ["max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.5 no-store", headers: ["cache-control": ["no-store, max-age=60"]], lifetime: 0,
            storable: false, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "5.2.2.5 no-store in a second field line",
            headers: ["cache-control": ["max-age=60", "no-store"]], lifetime: 0, storable: false, whileRevalidate: 0,
            ifError: 0),
        Case(
            rule: "5.2.2.3 must-understand: the status is understood, so no-store is not meant",
            headers: ["cache-control": ["no-store, must-understand, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.7 private is no hindrance to a private cache",
            headers: ["cache-control": ["private, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.10 s-maxage is for shared caches, its ban on staleness too",
            headers: ["cache-control": ["s-maxage=5, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.8 proxy-revalidate is for shared caches",
            headers: ["cache-control": ["proxy-revalidate, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.4 and 4.2.4 no-cache: kept, never served unasked, not even when the origin fails",
            headers: ["cache-control": ["no-cache, max-age=60, stale-if-error=5"]], lifetime: 0, whileRevalidate: 0,
            ifError: 0),
        Case(
            rule: "5.2.2.4 no-cache with fields: no field is handed on",
            headers: ["cache-control": ["no-cache=\"a, b\"", "max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.2 must-revalidate: never stale", headers: ["cache-control": ["must-revalidate, max-age=60"]],
            lifetime: 60, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "5.2.2.2 must-revalidate beats RFC 5861's permissions",
            headers: ["cache-control": ["must-revalidate, max-age=60, stale-while-revalidate=9, stale-if-error=9"]],
            lifetime: 60, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "RFC 5861: the answer's windows before the configured ones",
            headers: ["cache-control": ["max-age=60, stale-while-revalidate=9, stale-if-error=99999"]],
            lifetime: 60, whileRevalidate: 9, ifError: 99_999),
        Case(
            rule: "RFC 5861: windows of zero forbid it",
            headers: ["cache-control": ["max-age=60, stale-while-revalidate=0, stale-if-error=0"]],
            lifetime: 60, whileRevalidate: 0, ifError: 0),
        Case(
            rule: "RFC 8246 immutable changes nothing", headers: ["cache-control": ["immutable, max-age=60"]],
            lifetime: 60),
        Case(
            rule: "5.3 Expires, from Date",
            headers: [
                "date": ["Sun, 06 Nov 1994 08:49:37 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"],
            ], lifetime: 60),
        Case(
            rule: "5.3 Expires without Date, or with a bad one: from now",
            headers: ["expires": ["Sun, 06 Nov 1994 08:50:37 GMT"], "date": ["foo"]], lifetime: 60),
        Case(
            rule: "5.3 Expires before a Date of the future",
            headers: ["date": ["Sun, 06 Nov 1994 08:51:17 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]],
            lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "5.3 an invalid Expires is the past", headers: ["expires": ["0"]], lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "4.2.4 max-age=0 asks to be asked: served stale on errors only",
            headers: ["cache-control": ["max-age=0"]], lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "RFC 5861: stale as it arrives, and served stale as it says itself",
            headers: ["cache-control": ["max-age=0, stale-while-revalidate=9, stale-if-error=99"]], lifetime: 0,
            whileRevalidate: 9, ifError: 99),
        Case(
            rule: "4.2.1 a max-age that cannot be read is stale as it arrives",
            headers: ["cache-control": ["max-age=1.5"]], lifetime: 0, whileRevalidate: 0),
        Case(
            rule: "4.2.4 as old as its lifetime: stale as it arrives",
            headers: ["cache-control": ["max-age=60"], "age": ["60"]], lifetime: 60, initialAge: 60,
            whileRevalidate: 0),
        Case(
            rule: "4.2.4 a second younger: the operator's windows",
            headers: ["cache-control": ["max-age=60"], "age": ["59"]], lifetime: 60, initialAge: 59),
        Case(
            rule: "4.2.4 older than any guess: stale as it arrives", headers: ["age": ["86400"]], lifetime: 86_400,
            initialAge: 86_400, whileRevalidate: 0),
        Case(
            rule: "4.2.1 the first of two Expires", headers: ["expires": ["Sun, 06 Nov 1994 08:50:37 GMT", "0"]],
            lifetime: 60),
        Case(
            rule: "5.3 max-age before Expires",
            headers: ["cache-control": ["max-age=60"], "expires": ["0"]], lifetime: 60),
        Case(
            rule: "5.1 and 4.2.3 Age", headers: ["cache-control": ["max-age=60"], "age": ["25"]], lifetime: 60,
            initialAge: 25),
        Case(
            rule: "5.1 an invalid Age is none", headers: ["cache-control": ["max-age=60"], "age": ["-3"]],
            lifetime: 60),
        Case(
            rule: "4.2.3 a Date of ten minutes ago: apparent age",
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
            rule: "4.2.2 guessed from Last-Modified", headers: ["last-modified": ["Sun, 06 Nov 1994 00:49:37 GMT"]],
            lifetime: 2_880),
        Case(
            rule: "4.2.2 nothing is guessed where something is said",
            headers: ["last-modified": ["Sun, 06 Nov 1994 00:49:37 GMT"], "cache-control": ["max-age=60"]],
            lifetime: 60),
        Case(
            rule: "5.4 Pragma where nothing else is said: no guess",
            headers: ["pragma": ["no-cache"], "last-modified": ["Sun, 06 Nov 1994 00:49:37 GMT"]], lifetime: 0,
            whileRevalidate: 0, ifError: 0),
        Case(
            rule: "5.4 Pragma beside Cache-Control is not read",
            headers: ["pragma": ["no-cache"], "cache-control": ["max-age=60"]], lifetime: 60),
        Case(
            rule: "5.4 Pragma beside Expires is not read",
            headers: ["pragma": ["no-cache"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]], lifetime: 60),
        Case(rule: "5.4 Pragma with anything else", headers: ["pragma": ["x"]], lifetime: 86_400),
        Case(
            rule: "4.1 Vary: *", headers: ["vary": ["Accept", "*"], "cache-control": ["max-age=60"]], lifetime: 0,
            whileRevalidate: 0, ifError: 0),
        Case(
            rule: "4.1 Vary by fields of our own", headers: ["vary": ["Accept, Authorization"]], lifetime: 86_400),
    ]

    @Test(arguments: cases)
    func `RFC 9111: whether an answer may be kept, and for how long`(given: Case) {
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
        _ fields: [String: [String]], behind redirects: [[String: [String]]], delays: [Int64] = [], delay: Int64 = 0
    ) -> StoragePolicy {
        let hops = redirects.enumerated().map { index, fields in
            ResponseHeaders(fields, delay: delays.indices.contains(index) ? delays[index] : 0)
        }
        let headers = ResponseHeaders(fields, delay: delay, redirects: hops)
        return StoragePolicy(StoredFields(headers), headers, origin: origin, at: responseTime)
    }

    @Test func `section 3: a redirect that may not be stored keeps its image from being stored`() {
        for (controls, storable) in [
            (["max-age=0, no-cache"], true), ([""], true), (["private", "no-store"], false), (["No-Store"], false),
            (["no-store, must-understand"], true),
        ] {
            let policy = Self.policy(["cache-control": ["max-age=60"]], behind: [["cache-control": controls]])
            #expect(policy.mayStore == storable, "\(controls)")
        }
    }

    @Test func `F35: Cache-Control of a redirect that is too long to be kept forbids to store the image behind it`() {
        for text in ["\"", "\"\\", "\"a", "x=\"\\", ","] {
            let long = String(repeating: text, count: (16 << 10) / text.utf8.count)
            let policy = Self.policy(["cache-control": ["max-age=60"]], behind: [["cache-control": [long]]])
            #expect(!policy.mayStore)
        }
    }

    @Test(
        arguments: [
            ("a day for one that says nothing: default-ttl", [[:]], 86_400),
            ("its own", [["cache-control": ["max-age=60"]]], 60),
            (
                "the shortest of several", [["cache-control": ["max-age=90"]], ["cache-control": ["max-age=60"]], [:]],
                60
            ),
            ("no-cache: never", [["cache-control": ["no-cache"]]], 0),
            ("no-cache beside a lifetime: never", [["cache-control": ["no-cache, max-age=60"]]], 0),
            ("Pragma where nothing else is said: never", [["pragma": ["no-cache"]]], 0),
            ("Vary: *: never", [["vary": ["*"]]], 0),
            ("one stale since it was made", [["cache-control": ["max-age=0"]]], 0),
            ("one that has grown old on the way", [["cache-control": ["max-age=60"], "age": ["25"]]], 35),
            ("one that is older than it may get", [["cache-control": ["max-age=60"], "age": ["90"]]], 0),
            (
                "Expires", [["date": ["Sun, 06 Nov 1994 08:49:37 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]]],
                60
            ),
            ("Expires that is past", [["expires": ["0"]]], 0),
            ("no guess from when its page was changed", [["last-modified": ["Sun, 06 Nov 1994 08:49:36 GMT"]]], 86_400),
            ("longer than the image's own", [["cache-control": ["max-age=99999999"]]], 31_536_000),
        ] as [(String, [[String: [String]]], Int64)])
    func `section 4.2: behind redirects an image is fresh no longer than each of them`(
        rule: String, redirects: [[String: [String]]], lifetime: Int64
    ) {
        let policy = Self.policy(["cache-control": ["max-age=31536000"]], behind: redirects)
        #expect(policy.mayStore)
        #expect(policy.freshness.timeToLive(at: Self.now) == lifetime, "\(rule)")
    }

    @Test func `section 4.2: an image that is old already and the redirect to it each count their own age`() {
        let old = ["cache-control": ["max-age=31536000"], "age": ["1000"]]
        let policy = Self.policy(old, behind: [["cache-control": ["max-age=60"]]])
        #expect(policy.freshness.age(at: Self.now) == 1_000)
        #expect(policy.freshness.state(at: Self.now + 59) == .fresh)
        #expect(policy.freshness.state(at: Self.now + 60) == .staleServable)
        let outlived = Self.policy(["cache-control": ["max-age=500"], "age": ["1000"]], behind: [[:]])
        #expect(outlived.freshness.timeToLive(at: Self.now) == -500)
    }

    @Test func `section 4.2.3: a redirect has aged by all that came after it`() {
        let redirects = [["cache-control": ["max-age=60"]], ["cache-control": ["max-age=100"]]]
        let policy = Self.policy(["cache-control": ["max-age=100"]], behind: redirects, delays: [1, 2], delay: 3)
        #expect(policy.freshness.timeToLive(at: Self.now) == 54)
    }

    @Test func `section 4.2.4: where a redirect forbids it, the image behind it is not served stale`() {
        for (control, isForbidden) in [
            ("max-age=60, must-revalidate", true), ("no-cache", true), ("max-age=60", false), ("", false),
        ] {
            let policy = Self.policy(
                ["cache-control": ["max-age=60, stale-if-error=9"]], behind: [[:], ["cache-control": [control]]])
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
    func `section 4.2.4: an image behind a redirect is served stale no longer than each of the two allows`(
        image: String, redirect: String, whileRevalidate: Int64, ifError: Int64
    ) {
        let policy = Self.policy(["cache-control": [image]], behind: [["cache-control": [redirect]]])
        #expect(policy.freshness.staleWhileRevalidate == whileRevalidate)
        #expect(policy.freshness.staleIfError == ifError)
    }

    @Test func `section 4.2.3: the time an answer was under way counts`() {
        let headers = ResponseHeaders(["age": ["25"]], delay: 3)
        let policy = StoragePolicy(StoredFields(headers), headers, origin: Self.origin, at: Self.responseTime)
        #expect(policy.freshness.age(at: Self.now + 10) == 38)
    }

    @Test func `F14: a wall clock that was set a year ahead or back makes no new answer old`() {
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
        `section 4.2: a 404 or 410 is believed as long as it says itself, else for negative-ttl, but no longer than negative-ttl-max`(
            headers: [String: [String]], seconds: Int64
        )
    {
        let until = NegativePolicy.believedUntil(
            ResponseHeaders(headers), origin: Self.origin, at: Self.responseTime)
        #expect(until == Self.now + seconds)
    }
}
