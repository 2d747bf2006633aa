import Glibc
import HelperProtocol
import Origins

/// The fetcher's sources of addresses, randomness and time, and its fixed timeouts. Tests replace them.
struct FetcherEnvironment: Sendable {
    /// Decides which addresses may be connected to.
    var addressGuard = AddressGuard()
    /// Returns fixed name lookups as `host:port:address`. Called on the fetcher's thread for each request.
    var resolverOverrides: @Sendable () -> [String] = { [] }
    /// Concurrent name lookups; nil for one for each request.
    var lookups: Int?
    /// Name servers for SRV records, as `address:port`; nil for those of resolv.conf(5).
    var nameServers: String?
    /// Timeout in milliseconds of a query for SRV records.
    var serviceQueryTimeout: Int64 = 5_000
    /// Called with the number of waiters whenever a query for SRV records gets another one.
    var onWaiting: @Sendable (Int) -> Void = { _ in }
    /// Minimum timeout in milliseconds of a token request that has begun; an origin's `timeout` may be shorter.
    var minimumTokenTimeout: Int64 = 10_000
    /// Seconds over which an origin's `lowest-speed` is measured.
    var slowSeconds = 30
    /// Draws the pauses of a backoff.
    var draw: @Sendable (ClosedRange<Int64>) -> Int64 = { Int64.random(in: $0) }
    /// Seconds since 1970. Used for a Retry-After that is a date, in a response without a Date.
    var wallClock: @Sendable () -> Int64 = { Int64(time(nil)) }

    func lookupLimits(_ settings: FetcherSettings) -> NameLookups.Limits {
        let ofTokens = TokenTransfer.maximumConcurrent
        return NameLookups.Limits(
            all: lookups ?? settings.downloads + ofTokens,
            perAccount: lookups ?? settings.downloadsPerAccount + ofTokens)
    }
}

extension FetcherSettings {
    /// Idle connections of one origin's pool. libcurl counts them for each pool; all pools together keep about as many
    /// as there are downloads.
    func idleConnections(pools: Int) -> Int { max(1, downloads / max(1, pools, origins?.count ?? 0)) }

    func queueLimits(_ kind: TransferKind) -> TransferQueue.Limits {
        switch kind {
        case .download:
            return .init(active: downloads, activePerAccount: downloadsPerAccount, waitingPerAccount: queuePerAccount)
        case .token:
            // Active token requests are limited for each origin only, so that a hanging endpoint does not delay others.
            let total = downloadsPerAccount + queuePerAccount
            return .init(
                active: TokenTransfer.maximumConcurrent, activePerAccount: TokenTransfer.maximumConcurrent,
                waitingPerAccount: total, totalPerAccount: total)
        }
    }
}
