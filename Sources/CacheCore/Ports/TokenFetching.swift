import LinuxSupport

/// Refreshes access tokens (RFC 6749 section 6).
public protocol TokenFetching: Sendable {
    /// Requests an access token from a token endpoint. Never blocks.
    ///
    /// `onEnd` is called exactly once, on the fetcher client's loop, unless ``DownloadHandle/cancel()`` came first.
    /// After a cancel it may still be called; the caller must ignore it.
    /// - Throws: when too many requests of the account wait, and when the endpoint's circuit breaker is open.
    func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, FetchFailure>) -> Void
    ) throws(FetchFailure) -> any DownloadHandle
}

/// An origin's token endpoint (RFC 6749 section 3.2).
public struct TokenEndpoint: Sendable, Equatable {
    /// Absolute URL; https unless the origin may be at private addresses.
    public var url: String
    /// `client_id`, issued by the authorization server.
    public var clientID: String
    /// For HTTP Basic (RFC 6749 section 2.3.1). Without a secret, the client sends only its id, in the body.
    public var clientSecret: Secret?

    public init(url: String, clientID: String, clientSecret: Secret? = nil) {
        (self.url, self.clientID, self.clientSecret) = (url, clientID, clientSecret)
    }
}

public struct TokenRequest: Sendable {
    /// The account that the request is charged to.
    public let account: UInt32
    /// Its timeouts, proxy, authorities and permission for private addresses apply to the endpoint as well.
    public let origin: Origin
    public let endpoint: TokenEndpoint
    public let refreshToken: Secret

    public init(account: UInt32, origin: Origin, endpoint: TokenEndpoint, refreshToken: Secret) {
        (self.account, self.origin, self.endpoint, self.refreshToken) = (account, origin, endpoint, refreshToken)
    }
}

/// The tokens that a token endpoint issued (RFC 6749 section 5.1).
public struct TokenGrant: Sendable, Equatable {
    public let accessToken: Secret
    /// Seconds; nil if the endpoint does not state one.
    public let lifetime: Int64?
    /// Replaces the refresh token that was sent; nil if that one stays valid.
    public let refreshToken: Secret?

    public init(accessToken: Secret, lifetime: Int64? = nil, refreshToken: Secret? = nil) {
        (self.accessToken, self.lifetime, self.refreshToken) = (accessToken, lifetime, refreshToken)
    }
}
