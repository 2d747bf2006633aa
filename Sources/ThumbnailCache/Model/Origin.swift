/// Where a user's images are downloaded from, and what is allowed on the way. Durations in milliseconds unless named.
public struct Origin: Sendable, Equatable {
    public var name: String
    /// Template with `{profile}`, `{user}`, `{size}`, `{profile_sha256}`, `{profile_md5}`.
    public var url: String
    /// `{size}` when a request names none; pixels.
    public var defaultSize: UInt16
    /// URL prefixes that `GET … URL` may name.
    public var allow: [String]
    public var allowPrivateAddresses: Bool
    /// Where its access tokens are renewed; nil where they are not.
    public var tokenEndpoint: TokenEndpoint?
    public var connectTimeout: Int64
    public var timeout: Int64
    /// Connections at once.
    public var connections: Int
    /// Seconds.
    public var defaultTTL: Int64
    public var negativeTTL: Int64
    public var staleWhileRevalidate: Int64
    public var staleIfError: Int64
    /// PEM file of trusted authorities; empty for the system's.
    public var caFile: String
    /// Proxy URL; empty for none. The environment is never asked.
    public var proxy: String
    /// Bytes a second, over 30 s, below which an answer is given up; 0 for any speed.
    public var lowestSpeed = 100
    /// How its hosts are treated when they fail.
    public var breaker = BreakerPolicy()

    public init(
        name: String, url: String, defaultSize: UInt16 = 128, allow: [String] = [],
        allowPrivateAddresses: Bool = false, connectTimeout: Int64 = 2_000, timeout: Int64 = 4_000,
        connections: Int = 32, defaultTTL: Int64 = 86_400, negativeTTL: Int64 = 300,
        staleWhileRevalidate: Int64 = 86_400, staleIfError: Int64 = 7 * 86_400,
        caFile: String = "", proxy: String = ""
    ) {
        self.name = name
        self.url = url
        self.defaultSize = defaultSize
        self.allow = allow
        self.allowPrivateAddresses = allowPrivateAddresses
        self.connectTimeout = connectTimeout
        self.timeout = timeout
        self.connections = connections
        self.defaultTTL = defaultTTL
        self.negativeTTL = negativeTTL
        self.staleWhileRevalidate = staleWhileRevalidate
        self.staleIfError = staleIfError
        self.caFile = caFile
        self.proxy = proxy
    }
}

/// When the circuit breaker of an origin's host opens, and for how long.
public struct BreakerPolicy: Sendable, Equatable {
    /// Failures in a row after which a host is not asked for a while; from 1.
    public var failures: Int
    /// Milliseconds that it is not asked for at most the first time; twice as long after each further failure. From 1.
    public var backoff: Int64
    /// Milliseconds that this grows to. Not less than ``backoff``.
    public var backoffMax: Int64
    /// Milliseconds of a Retry-After (RFC 9110 section 10.2.3) that are obeyed; of a longer one so many.
    public var retryAfterMax: Int64

    public init(
        failures: Int = 5, backoff: Int64 = 1_000, backoffMax: Int64 = 60_000, retryAfterMax: Int64 = 600_000
    ) {
        self.failures = failures
        self.backoff = backoff
        self.backoffMax = backoffMax
        self.retryAfterMax = retryAfterMax
    }
}
