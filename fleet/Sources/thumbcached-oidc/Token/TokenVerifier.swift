import JWTKit

/// A verified token.
struct LogoutToken: Equatable, Sendable {
    var id: String
    var subject: String?
    var session: String?
    /// The last second since 1970 in which the token is valid.
    var end: Int64
}

/// The payload of a token that the provider has signed. Its claims are not checked yet.
struct SignedPayload: Sendable {
    fileprivate let bytes: [UInt8]
}

/// Verifies a token: OpenID Connect Back-Channel Logout 1.0, section 2.6. ``ReplayMemory`` handles repeated ids.
struct TokenVerifier: Sendable {
    let rules: TokenRules
    let keys: KeyStore

    /// Verifies the signature, with a key of the provider.
    func authenticate(_ text: some Sequence<UInt8>) async throws(LogoutFailure) -> SignedPayload {
        let token = try CompactToken(text)
        let algorithm = try rules.check(token.header)
        let key = try await keys.verifier(id: token.header.keyID, for: algorithm)
        guard isSigned(token, by: key) else { throw .invalid("the logout token's signature is wrong") }
        return SignedPayload(bytes: token.payload)
    }

    /// Checks the claims.
    /// - Parameter now: seconds since 1970.
    func check(_ payload: SignedPayload, at now: Double) throws(LogoutFailure) -> LogoutToken {
        let claims = try LogoutClaims(payload.bytes)
        let end = try rules.check(claims, at: now)
        return LogoutToken(id: claims.id, subject: claims.subject, session: claims.session, end: end)
    }

    private func isSigned(_ token: CompactToken, by key: any JWTAlgorithm) -> Bool {
        do {
            return try key.verify(token.signature, signs: token.signed)
        } catch {
            // For example, a signature of the wrong length.
            return false
        }
    }
}
