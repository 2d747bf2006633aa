/// The required header and claims of a token: OpenID Connect Back-Channel Logout 1.0, section 2.6.
struct TokenRules: Equatable, Sendable {
    /// `iss`, byte for byte.
    var issuer = ""
    /// The client id, which `aud` must contain.
    var clientID = ""
    /// Other audiences allowed in `aud`: OpenID Connect Core 1.0, section 3.1.3.7.
    var otherAudiences: [String] = []
    var algorithms: [SignatureAlgorithm] = [.rs256, .ps256, .es256, .edDSA]
    /// Allowed values of `typ`, if present.
    var types = ["logout+jwt"]
    /// Maximum age of a token in seconds.
    var longestAge: Int64 = 300
    /// Whether a token needs `exp`. Without one it is valid for ``longestAge`` after its `iat`.
    var requiresExpiry = true
    /// Tolerated clock difference in seconds.
    var skew: Int64 = 60

    /// - Returns: the allowed algorithm.
    func check(_ header: TokenHeader) throws(LogoutFailure) -> SignatureAlgorithm {
        guard let algorithm = SignatureAlgorithm(rawValue: header.algorithm), algorithms.contains(algorithm) else {
            throw .invalid("the logout token's alg is not in oidc.algorithms")
        }
        guard !header.isCritical else { throw .invalid("the logout token's header has a crit") }
        if let type = header.type, !types.contains(where: { isSameType(type, $0) }) {
            throw .invalid("the logout token's typ is not in oidc.types")
        }
        return algorithm
    }

    /// - Parameter now: seconds since 1970.
    /// - Returns: the last second since 1970 in which the token is valid.
    func check(_ claims: LogoutClaims, at now: Double) throws(LogoutFailure) -> Int64 {
        guard isSame(claims.issuer, issuer) else { throw .invalid("the logout token's iss is not oidc.issuer") }
        guard claims.audiences.contains(where: { isSame($0, clientID) }) else {
            throw .invalid("the logout token's aud lacks oidc.client-id")
        }
        let trusted = [clientID] + otherAudiences
        guard claims.audiences.allSatisfy({ name in trusted.contains { isSame(name, $0) } }) else {
            throw .invalid("the logout token's aud has a value that is not in oidc.other-audiences")
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
        guard expires > claims.issuedAt else { throw .invalid("the logout token's exp is not after its iat") }
        guard expires + skew > now else { throw .invalid("the logout token has expired") }
        guard let end = Int64(exactly: (min(expires, claims.issuedAt + longestAge) + skew).rounded(.up)) else {
            throw .invalid("the logout token's times are out of range")
        }
        return end
    }

    /// Compares bytes, since Swift's == also equates canonically equivalent strings.
    private func isSame(_ one: String, _ other: String) -> Bool { one.utf8.elementsEqual(other.utf8) }

    /// RFC 7515, section 4.1.9: `application/` may be left out, and case is ignored.
    private func isSameType(_ one: String, _ other: String) -> Bool {
        func short(_ type: String) -> String {
            let type = type.lowercased()
            return type.hasPrefix("application/") ? String(type.dropFirst("application/".count)) : type
        }
        return isSame(short(one), short(other))
    }
}
