/// What a token has to be, besides signed: OpenID Connect Back-Channel Logout 1.0, section 2.6.
struct TokenRules: Equatable, Sendable {
    /// `iss`, byte for byte.
    var issuer = ""
    /// By which the provider knows us; has to be among `aud`.
    var clientID = ""
    /// Who else may be there. OpenID Connect Core 1.0, section 3.1.3.7: a token that is also for somebody who is not
    /// trusted is refused.
    var otherAudiences: [String] = []
    var algorithms: [SignatureAlgorithm] = [.rs256, .ps256, .es256, .edDSA]
    /// What `typ` may be, where a token has it.
    var types = ["logout+jwt"]
    /// Seconds that a token is taken for after it was made, at most.
    var longestAge: Int64 = 300
    /// Whether a token needs `exp`. Without one it is valid for ``longestAge`` after its `iat`.
    var requiresExpiry = true
    /// Seconds that the provider's clock may differ from ours.
    var skew: Int64 = 60

    /// - Returns: the algorithm, which is an allowed one.
    func check(_ header: TokenHeader) throws(LogoutFailure) -> SignatureAlgorithm {
        guard let algorithm = SignatureAlgorithm(rawValue: header.algorithm), algorithms.contains(algorithm) else {
            throw .invalid("the logout token's alg is none of oidc.algorithms")
        }
        guard !header.isCritical else { throw .invalid("the logout token's header has a crit") }
        if let type = header.type, !types.contains(where: { isSameType(type, $0) }) {
            throw .invalid("the logout token's typ is none of oidc.types")
        }
        return algorithm
    }

    /// - Parameter now: seconds since 1970.
    /// - Returns: the second since 1970 behind which the token is refused.
    func check(_ claims: LogoutClaims, at now: Double) throws(LogoutFailure) -> Int64 {
        guard isSame(claims.issuer, issuer) else { throw .invalid("the logout token's iss is not oidc.issuer") }
        guard claims.audiences.contains(where: { isSame($0, clientID) }) else {
            throw .invalid("the logout token's aud lacks oidc.client-id")
        }
        let trusted = [clientID] + otherAudiences
        guard claims.audiences.allSatisfy({ name in trusted.contains { isSame(name, $0) } }) else {
            throw .invalid("the logout token's aud has somebody who is not in oidc.other-audiences")
        }
        let (skew, longestAge) = (Double(skew), Double(longestAge))
        guard claims.issuedAt <= now + skew else { throw .invalid("the logout token's iat is in the future") }
        guard claims.issuedAt + longestAge + skew >= now else {
            throw .invalid("the logout token's iat is longer ago than oidc.max-age")
        }
        guard claims.expires != nil || !requiresExpiry else {
            throw .invalid("the logout token has no exp; oidc.require-exp = false accepts it by its iat")
        }
        let expires = claims.expires ?? .infinity
        guard expires > claims.issuedAt else { throw .invalid("the logout token's exp is not behind its iat") }
        guard expires + skew > now else { throw .invalid("the logout token has expired") }
        guard let end = Int64(exactly: (min(expires, claims.issuedAt + longestAge) + skew).rounded(.up)) else {
            throw .invalid("the logout token's times are out of range")
        }
        return end
    }

    /// Swift takes texts for equal that only look alike.
    private func isSame(_ one: String, _ other: String) -> Bool { one.utf8.elementsEqual(other.utf8) }

    /// RFC 7515, section 4.1.9: `application/` may be left out, and case does not count.
    private func isSameType(_ one: String, _ other: String) -> Bool {
        func short(_ type: String) -> String {
            let type = type.lowercased()
            return type.hasPrefix("application/") ? String(type.dropFirst("application/".count)) : type
        }
        return isSame(short(one), short(other))
    }
}
