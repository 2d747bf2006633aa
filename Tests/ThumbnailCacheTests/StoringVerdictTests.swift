import Testing

@testable import ThumbnailCache

@Suite struct CacheControlTests {
    @Test(
        arguments: [
            ("", nil), ("max-age=60", 60), ("MAX-AGE=60", 60), ("max-age=\"60\"", 60), (" max-age=60 , private", 60),
            ("max-age = 60", 60), ("max-age=60, max-age=30", 30), ("max-age=30, max-age=60", 30),
            // What cannot be read is stale (RFC 9111 section 4.2.1).
            ("max-age=ten", 0), ("max-age", 0), ("max-age=", 0), ("max-age=-1", 0), ("max-age=1.5", 0),
            ("max-age=60, max-age=x", 0),
            // A number too large to hold is 2^31 (RFC 9111 section 1.2.2).
            ("max-age=2147483649", 1 << 31), ("max-age=99999999999999999999999", 1 << 31),
            // A comma in a quoted string ends no directive.
            ("extension=\"a, max-age=5, \\\" max-age=6\", max-age=60", 60), ("s-maxage=5", nil),
        ] as [(String, Int64?)])
    func `RFC 9111 section 5.2.2.1: max-age`(value: String, seconds: Int64?) {
        #expect(CacheControl(value).maxAge == seconds)
    }

    @Test func `RFC 9111 section 5.2.2: directives are names in any case, unknown ones are ignored`() {
        let control = CacheControl("No-Store, NO-CACHE,must-Revalidate, , immutable, x=y")
        #expect(control.noStore)
        #expect(control.noCache)
        #expect(control.mustRevalidate)
        #expect(CacheControl("no-storage, x-no-store, community=\"no-store\"") == CacheControl(""))
    }

    @Test func `RFC 9111 section 5.2.2.4: no-cache with field names speaks of those fields only`() {
        #expect(!CacheControl("no-cache=\"set-cookie\"").noCache)
    }
}

@Suite struct StoringVerdictTests {
    private static let now: Int64 = 784_111_777
    /// A day by default, ten minutes and an hour of staleness.
    private static let origin = Origin(
        name: "default", url: "https://origin.test/{profile}", defaultTTL: 86_400, staleWhileRevalidate: 600,
        staleIfError: 3_600)

    struct Case: Sendable, CustomTestStringConvertible {
        let rule: String
        let headers: [String: [String]]
        let lifetime: Int64
        var storable = true
        var initialAge: Int64 = 0
        var mayBeStale = true
        var testDescription: String { rule }
    }

    static let cases = [
        Case(rule: "nothing said: the origin's default-ttl", headers: [:], lifetime: 86_400),
        Case(rule: "5.2.2.1 max-age", headers: ["cache-control": ["max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.5 no-store", headers: ["cache-control": ["no-store, max-age=60"]], lifetime: 60,
            storable: false),
        Case(
            rule: "5.2.2.5 no-store in a second field line",
            headers: ["cache-control": ["max-age=60", "no-store"]], lifetime: 60, storable: false),
        Case(
            rule: "5.2.2.7 private is no hindrance to a private cache",
            headers: ["cache-control": ["private, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.10 s-maxage is for shared caches",
            headers: ["cache-control": ["s-maxage=5, max-age=60"]], lifetime: 60),
        Case(
            rule: "5.2.2.4 and 4.2.4 no-cache: kept, never served unasked, not even when the origin fails",
            headers: ["cache-control": ["no-cache, max-age=60"]], lifetime: 0, mayBeStale: false),
        Case(
            rule: "5.2.2.2 must-revalidate: never stale", headers: ["cache-control": ["must-revalidate, max-age=60"]],
            lifetime: 60, mayBeStale: false),
        Case(
            rule: "5.3 Expires, from Date",
            headers: [
                "date": ["Sun, 06 Nov 1994 08:49:07 GMT"], "expires": ["Sun, 06 Nov 1994 08:50:07 GMT"],
            ], lifetime: 60),
        Case(
            rule: "5.3 Expires without Date: from now", headers: ["expires": ["Sun, 06 Nov 1994 08:50:37 GMT"]],
            lifetime: 60),
        Case(
            rule: "5.3 Expires in the past", headers: ["expires": ["Sun, 06 Nov 1994 08:40:00 GMT"]], lifetime: 0),
        Case(rule: "5.3 an invalid Expires is the past", headers: ["expires": ["0"]], lifetime: 0),
        Case(
            rule: "5.3 max-age before Expires",
            headers: ["cache-control": ["max-age=60"], "expires": ["0"]], lifetime: 60),
        Case(
            rule: "5.1 and 4.2.3 Age", headers: ["cache-control": ["max-age=60"], "age": ["25"]], lifetime: 60,
            initialAge: 25),
        Case(
            rule: "5.1 an invalid Age is none", headers: ["cache-control": ["max-age=60"], "age": ["-3"]],
            lifetime: 60),
    ]

    @Test(arguments: cases)
    func `RFC 9111: whether an answer may be kept, and for how long`(given: Case) {
        let verdict = StoringVerdict(ResponseHeaders(given.headers), origin: Self.origin, now: Self.now)
        #expect(verdict.mayStore == given.storable)
        #expect(
            verdict.freshness
                == Freshness(
                    storedAt: Self.now, initialAge: given.initialAge, lifetime: given.lifetime,
                    staleWhileRevalidate: given.mayBeStale ? 600 : 0, staleIfError: given.mayBeStale ? 3_600 : 0))
    }
}
