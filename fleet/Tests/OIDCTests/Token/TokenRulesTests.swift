import Testing

@testable import thumbcached_oidc

@Suite struct TokenRulesTests {
    private func claims(issuedAt: Double, expires: Double?) throws -> LogoutClaims {
        let events = "{\"\(LogoutClaims.event)\":{}}"
        let members =
            [
                "\"iss\":\"https://id.example.org/realms/staff\"", "\"aud\":\"thumbnails\"", "\"iat\":\(issuedAt)",
                "\"jti\":\"1\"", "\"events\":\(events)", "\"sub\":\"alice\"",
            ] + (expires.map { ["\"exp\":\($0)"] } ?? [])
        return try LogoutClaims(Array("{\(members.joined(separator: ","))}".utf8))
    }

    /// Arguments: issued, expires, and the last second in which the token is accepted, with a maximum age of 300 s and
    /// 60 s of skew.
    @Test(arguments: [
        (1_000.0, 1_120.0, Int64(1_180)), (1_000, 1_300, 1_360), (1_000, 9_000, 1_360), (1_000.5, 1_120.25, 1_181),
    ])
    func `F83: an id is kept as long as its token is accepted`(_ issued: Double, _ expires: Double, _ end: Int64)
        throws
    {
        let (rules, claims) = (TokenRules.ofTests, try claims(issuedAt: issued, expires: expires))
        #expect(try rules.check(claims, at: issued) == end)
        // Accepted from 60 s before it was issued, and rejected earlier.
        #expect(throws: LogoutFailure.self) { try rules.check(claims, at: issued - 60.1) }
        #expect(try rules.check(claims, at: issued - 60) == end)
        for step in 0...40_000 {
            let now = issued - 20 + Double(step) / 50
            let isAccepted = (try? rules.check(claims, at: now)) != nil
            #expect(isAccepted == (now < min(expires + 60, issued + 360) || now == issued + 360 && expires + 60 > now))
            if isAccepted { #expect(Int64(now) <= end) }
        }
    }

    @Test func `with require-exp = false, a token without exp is valid for the maximum age after its iat`() throws {
        var rules = TokenRules.ofTests
        let claims = try claims(issuedAt: 1_000, expires: nil)
        let sentence = "the logout token has no exp; oidc.require-exp = false accepts it by its iat"
        #expect(throws: LogoutFailure.invalid(sentence)) { try rules.check(claims, at: 1_000) }
        rules.requiresExpiry = false
        for now in [940.0, 1_000, 1_360] { #expect(try rules.check(claims, at: now) == 1_360) }
        for now in [939.9, 1_360.1] { #expect(throws: LogoutFailure.self) { try rules.check(claims, at: now) } }
        // An exp still limits the validity.
        let expired = try self.claims(issuedAt: 1_000, expires: 1_010)
        #expect(throws: LogoutFailure.invalid("the logout token has expired")) { try rules.check(expired, at: 1_070) }
        #expect(try rules.check(expired, at: 1_000) == 1_070)
    }

    @Test(arguments: [-Double.infinity, -1e308, -0x1p63, 0x1p63, 1e308, .infinity])
    func `F83: times of any size do not trap`(_ time: Double) throws {
        var (rules, claims) = (TokenRules.ofTests, try claims(issuedAt: 1_000, expires: 1_120))
        rules.requiresExpiry = false
        for now in [0, 1_000, -time, time] {
            for (issued, expires) in [(time, 1_120), (1_000, time), (time, time), (time, nil), (-time, time)] {
                (claims.issuedAt, claims.expires) = (issued, expires)
                do throws(LogoutFailure) {
                    let end = try rules.check(claims, at: now)
                    #expect(Double(end) >= now && Double(end) <= now + 421)
                } catch {
                    #expect(!error.description.isEmpty)
                }
            }
        }
    }

    @Test func `claims are compared byte by byte`() throws {
        var rules = TokenRules.ofTests
        rules.clientID = "caf\u{E9}"
        let claims = try LogoutClaims(
            Array(
                """
                {"iss": "\(rules.issuer)", "aud": "cafe\u{301}", "iat": 1000, "exp": 1100, "jti": "1", "sub": "a",
                 "events": {"\(LogoutClaims.event)": {}}}
                """.utf8))
        #expect(throws: LogoutFailure.invalid("the logout token's aud lacks oidc.client-id")) {
            try rules.check(claims, at: 1_000)
        }
    }
}
