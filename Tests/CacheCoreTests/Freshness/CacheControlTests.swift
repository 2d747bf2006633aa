import Testing

@testable import CacheCore

/// RFC 9111 sections 5.2 and 5.2.2, RFC 5861.
@Suite struct CacheControlTests {
    @Test(
        arguments: [
            ("", nil), ("max-age=60", 60), ("MAX-AGE=60", 60), ("MaX-aGe=60", 60), ("max-age=0", 0),
            ("max-age=0060", 60), (" max-age=60 , private", 60), ("private,max-age=60", 60), (",,max-age=60,,", 60),
            ("foobar, max-age=60", 60), ("max-age=60;x=y, max-age=30", 0), ("x=y, , max-age=60", 60),
            // Tokens and quoted strings are accepted as arguments (section 5.2).
            ("max-age=\"60\"", 60), ("max-age=\"6\\0\"", 60),
            // The first of several values applies (section 4.2.1).
            ("max-age=60, max-age=30", 60), ("max-age=30, max-age=60", 30), ("max-age=60, max-age=x", 60),
            ("max-age=x, max-age=60", 0),
            // Invalid values mean stale (section 4.2.1), including spaces around the argument.
            ("max-age=ten", 0), ("max-age", 0), ("max-age=", 0), ("max-age=-1", 0), ("max-age=-3600", 0),
            ("max-age=+1", 0), ("max-age=1.5", 0), ("max-age=3600.0", 0), ("max-age=60s", 0), ("max-age=a60", 0),
            ("max-age='60'", 0), ("max-age =60", 0), ("max-age= 60", 0), ("max-age = 60", 0), ("max-age=60 30", 0),
            ("max-age=\"60", 0), ("max-age=\"\"", 0), ("max-age=\"60\"0", 0), ("max-age=٦٠", 0),
            // Values that overflow become 2^31 (section 1.2.2).
            ("max-age=2147483647", 2_147_483_647), ("max-age=2147483648", 1 << 31), ("max-age=2147483649", 1 << 31),
            ("max-age=99999999999", 1 << 31), ("max-age=99999999999999999999999", 1 << 31),
            // Quoted text contains no directives, and a comma in it ends none.
            ("extension=\"max-age=3600\", max-age=1", 1), ("max-age=1, extension=\"max-age=3600\"", 1),
            ("extension=\"a, max-age=5, \\\" max-age=6\", max-age=60", 60), ("\"max-age=5\", max-age=60", 60),
            ("a\"b, max-age=5\", max-age=60", 60),
            // s-maxage applies to shared caches only (section 5.2.2.10).
            ("s-maxage=5", nil), ("s-maxage=5, max-age=60", 60), ("max-age=60, s-maxage=0", 60),
        ] as [(String, Int64?)])
    func `RFC 9111 section 5.2.2.1: max-age`(value: String, seconds: Int64?) {
        #expect(CacheControl(value).maxAge == seconds)
    }

    @Test(
        arguments: [
            ("no-store", true), ("No-StOrE", true), ("max-age=60,no-store", true), ("no-store=1", true),
            ("no-store junk", true), ("x=\"no-store\"", false), ("no-storage", false), ("x-no-store", false),
            ("\"no-store\"", false), ("x=no-store", false),
        ] as [(String, Bool)])
    func `RFC 9111 section 5.2.2.5: no-store is recognized in every spelling, and not inside other text`(
        value: String, forbids: Bool
    ) {
        #expect(CacheControl(value).noStore == forbids)
    }

    @Test(
        arguments: [
            ("no-cache", true), ("NO-CACHE", true), ("no-cache, max-age=60", true), ("no-cache=", true),
            ("no-cache=\"\"", true), ("no-cache=\" \"", true), ("no-cache=\"set-cookie", true),
            // With field names, no-cache applies to those fields only.
            ("no-cache=\"set-cookie\"", false), ("no-cache=\"a, b\"", false), ("no-cache=set-cookie", false),
            ("no-cache=\"a\", no-cache", true),
        ] as [(String, Bool)])
    func `RFC 9111 section 5.2.2.4: no-cache`(value: String, forbids: Bool) {
        #expect(CacheControl(value).noCache == forbids)
    }

    @Test(arguments: ["", "x=", "x", "x, y="])
    func `F35: unclosed quotes are scanned once, and directives after them apply`(
        start: String
    ) {
        // A scan per quote would take quadratic time.
        let quotes = start + "\"" + String(repeating: "\\\"", count: 128 << 10)
        let control = CacheControl(quotes + ", no-store, max-age=60")
        #expect(control.noStore && control.maxAge == 60)
        #expect(CacheControl(quotes) == CacheControl(""))
    }

    @Test func `RFC 9111 sections 5.2.2.2 and 5.2.2.3: must-revalidate and must-understand`() {
        #expect(CacheControl("Must-Revalidate").mustRevalidate)
        #expect(CacheControl("must-understand, no-store").mustUnderstand)
        #expect(CacheControl("must-understand, no-store").noStore)
    }

    @Test(arguments: [
        "private", "private=\"set-cookie\"", "public", "immutable", "proxy-revalidate", "no-transform", "s-maxage=0",
        "community=\"UCI\"", "x", "=", "===", "\"", "@", "a b c", ",", "no-cache-x", "min-fresh=5", "only-if-cached",
        "max-stale=5", "stale-if-error", "stale-while-revalidate=soon",
    ])
    func `RFC 9111 sections 5.2.2.6 to 5.2.3: unknown, unreadable and shared-cache directives have no effect`(
        value: String
    ) {
        #expect(CacheControl(value) == CacheControl(""))
    }

    @Test func `RFC 5861 sections 3 and 4: the first of several stale windows applies`() {
        let control = CacheControl(
            "max-age=1, stale-while-revalidate=30, Stale-If-Error=\"60\", stale-if-error=5, "
                + "stale-while-revalidate=99999999999")
        #expect(control.staleWhileRevalidate == 30)
        #expect(control.staleIfError == 60)
        #expect(CacheControl("stale-while-revalidate=x, stale-while-revalidate=30").staleWhileRevalidate == 30)
        #expect(CacheControl("stale-if-error=0").staleIfError == 0)
        #expect(CacheControl("stale-if-error=99999999999").staleIfError == 1 << 31)
    }

    @Test func `random bytes are parsed without a trap`() {
        var generator = SystemRandomNumberGenerator()
        let alphabet = Array("max-age=,\"\\ \t0123no-storecache*;'".utf8)
        for _ in 0..<2_000 {
            let bytes = (0..<Int.random(in: 0...40, using: &generator)).map { _ in alphabet.randomElement() ?? 0 }
            let value = String(decoding: bytes, as: UTF8.self)
            let control = CacheControl(value)
            #expect(control.maxAge.map { (0...(1 << 31)).contains($0) } ?? true, "\(value)")
            _ = Vary(value).matchesNothing
            _ = AgeCalculation.ageValue([value])
            _ = HTTPDate.seconds(value, now: 0)
        }
    }
}
