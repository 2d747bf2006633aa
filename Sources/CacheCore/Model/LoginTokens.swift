import LinuxSupport

/// The tokens of a login for its origin.
public struct LoginTokens: Sendable, Equatable {
    /// Sent with downloads as `Authorization: Bearer` (RFC 6750 section 2.1).
    public var access: Secret?
    /// The lifetime of ``access``. Nil for a token from LOGIN, which is sent until the origin rejects it.
    public var life: TokenLife?
    /// The refresh token (RFC 6749 section 6), sent to the origin's token endpoint only.
    public var refresh: Secret?
    /// Identifies the identity of ``access``. A response that varies by Authorization is used for one family only (RFC
    /// 9111 section 4.1). Changes when a LOGIN brings another access token, and when a refresh uses a refresh token
    /// that did not come with the previous access token. Stored with the login.
    public var family: UInt32
    /// The family of the access tokens that ``refresh`` brings. Chosen and made durable by LOGIN, so that no number
    /// stands for two families even if a refresh fails.
    public var refreshFamily: UInt32

    /// - Parameter refreshFamily: nil if both tokens belong together.
    public init(
        access: Secret? = nil, life: TokenLife? = nil, refresh: Secret? = nil, family: UInt32 = 0,
        refreshFamily: UInt32? = nil
    ) {
        self.access = access
        self.life = life
        self.refresh = refresh
        self.family = family
        self.refreshFamily = refreshFamily ?? family
    }

    /// Accepts the tokens of a LOGIN; nil keeps the existing one. A new refresh token alone removes an access token
    /// that the old refresh token brought, since it may belong to another identity.
    mutating func logIn(access: Secret?, refresh: Secret?) {
        let isOtherAccess = access != nil && access != self.access
        let isOtherRefresh = refresh != nil && refresh != self.refresh
        let next = max(family, refreshFamily) &+ 1
        self.refresh = refresh ?? self.refresh
        if isOtherAccess {
            replaceAccess(by: access, of: next)
            // The existing refresh token may belong to another identity.
            if refresh == nil, self.refresh != nil { refreshFamily = next &+ 1 }
        } else if access != nil {
            // This LOGIN states that both belong together.
            if refresh != nil, refreshFamily != family { (family, refreshFamily) = (next, next) }
        } else if isOtherRefresh {
            if self.access == nil || life != nil { replaceAccess(by: nil, of: next) } else { refreshFamily = next }
        }
    }

    private mutating func replaceAccess(by token: Secret?, of family: UInt32) {
        access = token
        life = nil
        self.family = family
        refreshFamily = family
    }

    mutating func accept(_ grant: TokenGrant, requestedAt: Int64) {
        access = grant.accessToken
        life = TokenLife(issuedAt: requestedAt, seconds: grant.lifetime)
        family = refreshFamily
    }
}

/// The lifetime of an access token from a token endpoint. It uses the wall clock, because it must survive a restart; a
/// wrong clock costs at most one refresh or one 401.
public struct TokenLife: Sendable, Equatable {
    /// Seconds since 1970, when the token was requested.
    public var issuedAt: Int64
    /// `expires_in` (RFC 6749 section 5.1), in seconds; nil if the endpoint does not state it.
    public var seconds: Int64?

    /// Most seconds before expiry at which a token is refreshed.
    static let longestMargin: Int64 = 60

    public init(issuedAt: Int64, seconds: Int64?) {
        self.issuedAt = issuedAt
        self.seconds = seconds
    }

    /// Whether the token must be refreshed before its next use: when a tenth of its lifetime is left, but at most
    /// ``longestMargin`` before expiry, and never within the first second.
    func isDue(at now: Int64) -> Bool {
        guard let seconds else { return false }
        return age(at: now) >= max(1, seconds - min(seconds / 10, Self.longestMargin))
    }

    func hasExpired(at now: Int64) -> Bool {
        seconds.map { age(at: now) >= $0 } ?? false
    }

    /// Saturates, because a file may contain any number.
    private func age(at now: Int64) -> Int64 {
        let (age, isBeyond) = now.subtractingReportingOverflow(issuedAt)
        return isBeyond ? .max : age
    }
}
