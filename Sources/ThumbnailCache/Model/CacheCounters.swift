/// Counts of all users together.
public typealias CacheCounters = Counters<CacheEvent>

/// What is counted of the domain. INFO shows most under the name of the case.
public enum CacheEvent: Int, CaseIterable, Sendable {
    /// Of caches that have ended. Each open one counts them under the lock that it holds anyway, and they are added when
    /// somebody asks: so cores do not fight over one line.
    case memoryHits
    case diskHits, staleServed, downloads, downloadFailures
    /// Downloads that asked only for an image that is no longer the one held.
    case revalidations
    /// Those of them that were answered with 304.
    case notModified
    case downloadsCancelled, puts, storeFailures
    /// Downloaded images that were not written, because too many waited for that already.
    case storesSkipped
    case logins, logouts, purges, endingsThatFailed
    /// Refreshes that brought an access token, and those that did not.
    case tokenRefreshes, tokenRefreshFailures
}
