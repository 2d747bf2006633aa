import Glibc
import Origins

/// What a fetcher may use. Every limit is a number that an operator can set (I8).
public struct FetcherConfiguration: Sendable {
    /// Bytes of one image.
    public var maximumImageBytes = 5 << 20
    /// Pixels that neither side of an image may exceed.
    public var maximumDimension = 8192
    /// Downloads at once, of all uids.
    public var downloads = 256
    /// Downloads at once, of one uid.
    public var downloadsPerUID = 64
    /// Downloads of one uid that wait until others have ended.
    public var queuePerUID = 1024
    /// Bytes of a token that an endpoint issues. A session file has room for no more than the default's most.
    public var maximumTokenBytes = 8 << 10
    /// Names of the origins that are configured; idle connections of others are closed. Nil: none are.
    public var origins: Set<String>?
    /// What the fetcher calls itself to an origin.
    public var userAgent: String

    /// Judges the addresses that are connected to. Tests let single loopback addresses pass for public ones.
    var addressGuard = AddressGuard()
    /// Answers that the resolver is not asked for, as `host:port:address`; evaluated on the fetcher's thread for each
    /// request. For tests, which have no name server.
    var resolverOverrides: @Sendable () -> [String] = { [] }
    /// Names that are looked up at once at most. Tests have other limits; else there is room for as many as requests.
    var lookups: Int?
    /// Name servers that are asked for SRV records, as `address:port`; nil: those of resolv.conf(5). For tests.
    var nameServers: String?
    /// Milliseconds that a question for SRV records takes at most.
    var longestServiceQuery: Int64 = 5_000
    /// Told how many wait for a domain's answer when one more does. For tests, which have others come meanwhile.
    var onWaiting: @Sendable (Int) -> Void = { _ in }
    /// Milliseconds that a token request has at least once it has begun, however short the origin's `timeout` is.
    var leastTokenTime: Int64 = 10_000
    /// Seconds over which an origin's lowest speed is measured.
    var slowSeconds = 30
    /// Where the waits of a backoff are drawn from. Tests draw what they like.
    var draw: @Sendable (ClosedRange<Int64>) -> Int64 = { Int64.random(in: $0) }
    /// Seconds since 1970, for a Retry-After that is a date in an answer that has no other.
    var wallClock: @Sendable () -> Int64 = { Int64(time(nil)) }

    public init(userAgent: String = "thumbcached") { self.userAgent = userAgent }

    /// Connections that one origin's pool may keep while they are idle. libcurl counts those of each pool by
    /// themselves, so that all pools together keep about as many as there are downloads.
    func idleConnections(pools: Int) -> Int { max(1, downloads / max(1, pools, origins?.count ?? 0)) }

    var lookupLimits: NameLookups.Limits {
        let ofTokens = TokenTransfer.mostAtOnce
        return NameLookups.Limits(all: lookups ?? downloads + ofTokens, perUID: lookups ?? downloadsPerUID + ofTokens)
    }

    func queueLimits(_ kind: TransferKind) -> TransferQueue.Limits {
        switch kind {
        case .download:
            return .init(active: downloads, activePerUID: downloadsPerUID, waitingPerUID: queuePerUID)
        case .token:
            // As many of a uid in all as there may be downloads. How many are under way is bounded for each origin
            // alone: one endpoint that hangs does not hold up those of others.
            let inAll = downloadsPerUID + queuePerUID
            return .init(
                active: TokenTransfer.mostAtOnce, activePerUID: TokenTransfer.mostAtOnce, waitingPerUID: inAll,
                inAllPerUID: inAll)
        }
    }
}
