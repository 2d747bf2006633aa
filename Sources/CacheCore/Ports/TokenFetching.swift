import LinuxSupport

/// Access tokens, as the domain needs them: the refresh of RFC 6749 section 6.
public protocol TokenFetching: Sendable {
    /// Asks a token endpoint for an access token. `onEnd` is called exactly once, on a thread of the fetcher's, unless
    /// ``DownloadHandle/cancel()`` came first; then it may still be called, and is to be ignored. Never blocks. Throws
    /// when no more requests of that uid may wait, and when a circuit breaker is open.
    func refresh(
        _ request: TokenRequest, onEnd: @escaping @Sendable (Result<TokenGrant, TransferFailure>) -> Void
    ) throws(TransferFailure) -> any DownloadHandle
}

/// Where the access tokens of an origin's users are renewed (RFC 6749 section 3.2).
public struct TokenEndpoint: Sendable, Equatable {
    /// Absolute URL; https unless the origin may be at private addresses.
    public var url: String
    /// `client_id`, issued by the authorization server.
    public var clientID: String
    /// For HTTP Basic (RFC 6749 section 2.3.1); without one the client only names itself in the body.
    public var clientSecret: Secret?

    public init(url: String, clientID: String, clientSecret: Secret? = nil) {
        self.url = url
        self.clientID = clientID
        self.clientSecret = clientSecret
    }
}

/// All that a refresh needs.
public struct TokenRequest: Sendable {
    /// The account that it is for: requests of one do not keep those of others waiting.
    public let uid: UInt32
    /// Whose timeouts, proxy, authorities and permission for private addresses hold for its endpoint, too.
    public let origin: Origin
    public let endpoint: TokenEndpoint
    public let refreshToken: Secret

    public init(uid: UInt32, origin: Origin, endpoint: TokenEndpoint, refreshToken: Secret) {
        self.uid = uid
        self.origin = origin
        self.endpoint = endpoint
        self.refreshToken = refreshToken
    }
}

/// What a token endpoint issued (RFC 6749 section 5.1).
public struct TokenGrant: Sendable, Equatable {
    public let accessToken: Secret
    /// Seconds; nil where the endpoint does not say.
    public let lifetime: Int64?
    /// Takes the place of the one that was sent; nil when that stays good.
    public let refreshToken: Secret?

    public init(accessToken: Secret, lifetime: Int64? = nil, refreshToken: Secret? = nil) {
        self.accessToken = accessToken
        self.lifetime = lifetime
        self.refreshToken = refreshToken
    }
}

/// Why there is no new access token. Sentences name hosts, statuses and error codes of RFC 6749, never a token.
public enum TransferFailure: Error, Sendable, Equatable {
    /// The endpoint said no: to the refresh token, or to the client.
    case refused(String)
    case timedOut(String)
    /// A transport error, or an answer that is none of RFC 6749's.
    case origin(String)
    /// An answer without an access token that can be used, but with another refresh token.
    case unusable(String, refreshToken: Secret)
    /// Nothing was sent: the endpoint's host has failed, and a circuit breaker of the fetcher's is open.
    case notAsked(String)
    /// The address is one that the origin may not reach.
    case denied(String)
    /// Too many refreshes wait already.
    case busy(String)
    case shuttingDown
}

extension CacheFailure {
    public init(_ failure: TransferFailure) {
        switch failure {
        case .refused(let reason): self = .unauthorized(reason)
        case .timedOut(let reason): self = .timedOut(reason)
        case .origin(let reason), .notAsked(let reason), .unusable(let reason, _): self = .origin(reason)
        case .denied(let reason): self = .denied(reason)
        case .busy(let reason): self = .busy(reason)
        case .shuttingDown: self = .shuttingDown
        }
    }
}
