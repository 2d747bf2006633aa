/// Where a user's images are downloaded from, and what is allowed on the way. Durations in milliseconds unless named.
public struct Origin: Sendable, Equatable {
    public var name: String
    /// Template with `{profile}`, `{user}`, `{size}`, `{profile_sha256}`, `{profile_md5}`.
    public var url: String
    /// Whether ``url`` is shown the user's token.
    public var showsToken = true
    /// Whether a domain may name another host than ``url`` for its addresses.
    public var federation = Federation.none
    /// Whom to ask, in this order, where ``url`` and those before have no picture or fail: see ``mostLinks``.
    public var then: [Upstream] = []
    /// What is served where nobody has a picture; nil for nothing.
    public var fallback: FallbackPicture?
    /// `{size}` when a request names none; pixels.
    public var defaultSize: UInt16 = 128
    /// When its pictures are made in other sizes here.
    public var renditions = RenditionPolicy.auto
    /// URL prefixes that `GET … URL` may name.
    public var allow: [String] = []
    public var allowPrivateAddresses = false
    /// Where its access tokens are renewed; nil where they are not.
    public var tokenEndpoint: TokenEndpoint?
    public var connectTimeout: Int64 = 2_000
    public var timeout: Int64 = 4_000
    /// Connections at once.
    public var connections = 32
    /// Seconds.
    public var defaultTTL: Int64 = 86_400
    public var negativeTTL: Int64 = 300
    /// The longest time for which a response without a usable image is believed. Not less than ``negativeTTL``.
    public var negativeTTLMax: Int64 = 86_400
    public var staleWhileRevalidate: Int64 = 86_400
    public var staleIfError: Int64 = 7 * 86_400
    /// PEM file of trusted authorities; empty for the system's.
    public var caFile = ""
    /// Proxy URL; empty for none. The environment is never asked.
    public var proxy = ""
    /// The value of User-Agent; empty for the program's name and version.
    public var userAgent = ""
    /// Bytes a second, over 30 s, below which an answer is given up; 0 for any speed.
    public var lowestSpeed = 100
    /// How its hosts are treated when they fail.
    public var breaker = BreakerPolicy()
}

extension Origin {
    /// Whether whom it asks gives each size.
    var hasSizes: Bool { url.contains("{size}") && then.allSatisfy { $0.url.contains("{size}") } }

    /// ``url`` and those that follow it: a picture that nobody has costs as many requests.
    public static var mostLinks: Int { 8 }

    public init(name: String, url: String) {
        self.name = name
        self.url = url
    }
}

/// A further template of an origin, which shares all else with the first but what is said here.
public struct Upstream: Sendable, Equatable {
    /// Template, as ``Origin/url``.
    public var url: String
    /// At its scheme, host and port.
    public var allowPrivateAddresses = false
    /// Whether it is shown the user's token.
    public var showsToken = false
    /// As ``Origin/federation``, for this URL.
    public var federation = Federation.none

    public init(url: String) { self.url = url }
}

/// How the domain of a mail address says who has the pictures of its addresses.
public enum Federation: String, Sendable, CaseIterable {
    case none
    /// By SRV records, as Libravatar has it; the link's own URL is for domains that have none.
    case libravatar
}

/// When the circuit breaker of an origin's host opens, and for how long.
public struct BreakerPolicy: Sendable, Equatable {
    /// Failures in a row after which a host is not asked for a while; from 1.
    public var failures = 5
    /// Milliseconds that it is not asked for at most the first time; twice as long after each further failure. From 1.
    public var backoff: Int64 = 1_000
    /// Milliseconds that this grows to. Not less than ``backoff``.
    public var backoffMax: Int64 = 60_000
    /// Milliseconds of a Retry-After (RFC 9110 section 10.2.3) that are obeyed; of a longer one so many.
    public var retryAfterMax: Int64 = 600_000
}
