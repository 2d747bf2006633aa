import LinuxSupport

/// What a log-in has to show to its origin.
public struct LoginTokens: Sendable, Equatable {
    /// Sent with downloads as `Authorization: Bearer` (RFC 6750 section 2.1).
    public var access: Secret?
    /// How long ``access`` lasts. Nil for one that came with LOGIN: it is sent until the origin refuses it.
    public var life: TokenLife?
    /// Gets new access tokens (RFC 6749 section 6). Sent to the origin's token endpoint only.
    public var refresh: Secret?
    /// Tells whose ``access`` is: another where a LOGIN brings another, or where it came of a refresh token that did
    /// not come with the one before. An answer that varies by Authorization is for one family alone (RFC 9111 section
    /// 4.1). A number that is made of no token: kept with the log-in, it ends with it and the images that name it.
    public var family: UInt32
    /// The family of what ``refresh`` brings: ``family``, where that came with ``access`` or one from the other. Chosen
    /// by the LOGIN and durable with it, so that no number names two families, whatever becomes of a refresh.
    public var refreshFamily: UInt32

    /// - Parameter refreshFamily: nil where the two tokens came together.
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

    /// A LOGIN brings tokens; nil keeps what there is. With another refresh token alone, an access token that the old
    /// one had brought goes: whose it is, nobody can tell any more. One that a LOGIN brought stays until the origin
    /// refuses it.
    mutating func logIn(access: Secret?, refresh: Secret?) {
        let isOtherAccess = access != nil && access != self.access
        let isOtherRefresh = refresh != nil && refresh != self.refresh
        let next = max(family, refreshFamily) &+ 1
        self.refresh = refresh ?? self.refresh
        if isOtherAccess {
            replaceAccess(by: access, of: next)
            // Of the one that is there nobody said whose it is.
            if refresh == nil, self.refresh != nil { refreshFamily = next &+ 1 }
        } else if access != nil {
            // Now it is said that they belong together.
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

    /// What the refresh token brought.
    mutating func take(_ grant: TokenGrant, askedAt: Int64) {
        access = grant.accessToken
        life = TokenLife(issuedAt: askedAt, seconds: grant.lifetime)
        family = refreshFamily
    }
}

/// The life of an access token that a token endpoint issued. By the wall clock, since it has to be right after a
/// restart; a clock that was wrong costs one refresh more or one 401, and nothing else.
public struct TokenLife: Sendable, Equatable {
    /// Seconds since 1970, when it was asked for.
    public var issuedAt: Int64
    /// `expires_in` (RFC 6749 section 5.1), in seconds; nil where the endpoint does not say.
    public var seconds: Int64?

    /// Seconds before its end that a token is renewed at the earliest.
    static let longestMargin: Int64 = 60

    public init(issuedAt: Int64, seconds: Int64?) {
        self.issuedAt = issuedAt
        self.seconds = seconds
    }

    /// Whether it is to be renewed before it is used again: a tenth of its life before its end, ``longestMargin``
    /// before it at most, and not within a second of its issue, whatever the endpoint says.
    func isDue(at now: Int64) -> Bool {
        guard let seconds else { return false }
        return age(at: now) >= max(1, seconds - min(seconds / 10, Self.longestMargin))
    }

    func isOver(at now: Int64) -> Bool {
        seconds.map { age(at: now) >= $0 } ?? false
    }

    /// What is read from a file may be any number.
    private func age(at now: Int64) -> Int64 {
        let (age, isBeyond) = now.subtractingReportingOverflow(issuedAt)
        return isBeyond ? .max : age
    }
}
