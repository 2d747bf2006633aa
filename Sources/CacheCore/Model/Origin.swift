import LinuxSupport

/// Where a user's images are downloaded from, and what is allowed on the way. Durations in milliseconds unless named.
public struct Origin: Sendable, Equatable {
    public var name: String
    /// Template with `{profile}`, `{user}`, `{size}`, `{profile_sha256}`, `{profile_md5}`.
    public var url: String
    /// Whether requests to ``url`` carry the user's token.
    public var showsToken = true
    /// Whether a domain may name another host than that of ``url``.
    public var federation = Federation.none
    /// The upstreams after ``url``, in order, if the earlier ones have no image or fail: see ``mostLinks``.
    public var then: [Upstream] = []
    /// Path of the image that is served if no upstream has one; empty for none.
    public var fallbackFile = ""
    public var fallback: FallbackImage?
    /// `{size}` when a request names none; pixels.
    public var defaultSize: UInt16 = 128
    public var renditions = RenditionPolicy.auto
    /// URL prefixes that `GET … URL` may name.
    public var allow: [String] = []
    public var allowPrivateAddresses = false
    /// Refreshes access tokens; nil without refreshes.
    public var tokenEndpoint: TokenEndpoint?
    /// Name of the LDAP bind; empty for an anonymous bind.
    public var bindName = ""
    /// Nil for an anonymous bind.
    public var bindPassword: Secret?
    public var connectTimeout: Int64 = 2_000
    public var timeout: Int64 = 4_000
    /// Most concurrent connections.
    public var connections = 32
    /// Seconds.
    public var defaultTTL: Int64 = 86_400
    public var negativeTTL: Int64 = 300
    /// Most seconds for which a response without a usable image is believed. Not less than ``negativeTTL``.
    public var negativeTTLMax: Int64 = 86_400
    public var staleWhileRevalidate: Int64 = 86_400
    public var staleIfError: Int64 = 7 * 86_400
    /// PEM file of trusted certificate authorities; empty for the system's.
    public var caFile = ""
    /// Proxy URL; empty for none. Environment variables are ignored.
    public var proxy = ""
    /// The value of User-Agent; empty for the program's name and version.
    public var userAgent = ""
    /// Bytes per second, over 30 s, below which a download is aborted; 0 for no limit.
    public var lowestSpeed = 100
    public var breaker = BreakerPolicy()
}

extension Origin {
    var hasSizes: Bool { Self.hasSize(url) && then.allSatisfy { Self.hasSize($0.url) } }

    /// Compares bytes: every request with SIZE that misses in memory calls it, and comparing characters would take most
    /// of the time of routing it.
    private static func hasSize(_ template: String) -> Bool {
        var rest = template.utf8[...]
        while let open = rest.firstIndex(of: UInt8(ascii: "{")) {
            rest = rest[open...]
            if rest.starts(with: "{size}".utf8) { return true }
            rest = rest.dropFirst()
        }
        return false
    }

    /// Most upstreams, ``url`` included: a missing image costs that many requests.
    public static var mostLinks: Int { 8 }

    public init(name: String, url: String) {
        self.name = name
        self.url = url
    }
}

/// A further upstream of an origin, with the origin's other settings.
public struct Upstream: Sendable, Equatable {
    /// Template, like ``Origin/url``.
    public var url: String
    public var allowPrivateAddresses = false
    public var showsToken = false
    public var federation = Federation.none

    public init(url: String) { self.url = url }
}

/// How a mail domain names the server of its addresses' images.
public enum Federation: String, Sendable, CaseIterable {
    case none
    /// By SRV records of Libravatar; the upstream's URL is for domains without them.
    case libravatar
}

/// When the circuit breaker of a host opens, and for how long.
public struct BreakerPolicy: Sendable, Equatable {
    /// Consecutive failures that open it; at least 1.
    public var failures = 5
    /// Longest first pause in milliseconds; doubled after each further failure. At least 1.
    public var backoff: Int64 = 1_000
    /// Longest pause in milliseconds. Not less than ``backoff``.
    public var backoffMax: Int64 = 60_000
    /// Longest pause in milliseconds for Retry-After (RFC 9110 section 10.2.3); a longer one is shortened to it.
    public var retryAfterMax: Int64 = 600_000
}
