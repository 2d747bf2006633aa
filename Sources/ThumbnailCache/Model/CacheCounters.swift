import Synchronization

/// Counts since the start, of all users together. Hits in memory are counted by each cache under the lock it holds
/// anyway and added when somebody asks, so that cores do not fight over one line.
public final class CacheCounters: Sendable {
    let memoryHitsOfEndedCaches = Atomic<Int>(0)
    let diskHits = Atomic<Int>(0)
    let downloads = Atomic<Int>(0)
    let downloadFailures = Atomic<Int>(0)
    let revalidations = Atomic<Int>(0)
    let notModified = Atomic<Int>(0)
    let staleServed = Atomic<Int>(0)
    let puts = Atomic<Int>(0)
    let storeFailures = Atomic<Int>(0)
    /// Downloaded images that were not written, because too many waited for that already.
    let storesSkipped = Atomic<Int>(0)
    let logins = Atomic<Int>(0)
    let logouts = Atomic<Int>(0)
    let purges = Atomic<Int>(0)
    let endingsThatFailed = Atomic<Int>(0)
    let downloadsCancelled = Atomic<Int>(0)
    /// Refreshes that brought an access token, and those that did not.
    let tokenRefreshes = Atomic<Int>(0)
    let tokenRefreshFailures = Atomic<Int>(0)

    public init() {}

    public struct Snapshot: Sendable {
        public var memoryHits = 0
        public var diskHits = 0
        public var downloads = 0
        public var downloadFailures = 0
        /// Downloads that asked only for an image that is no longer the one held.
        public var revalidations = 0
        /// Those of them that were answered with 304.
        public var notModified = 0
        public var staleServed = 0
        public var puts = 0
        public var storeFailures = 0
        public var storesSkipped = 0
        public var logins = 0
        public var logouts = 0
        public var purges = 0
        public var endingsThatFailed = 0
        public var downloadsCancelled = 0
        public var tokenRefreshes = 0
        public var tokenRefreshFailures = 0
    }

    /// - Parameter memoryHits: of the caches that are open.
    func snapshot(memoryHits: Int) -> Snapshot {
        Snapshot(
            memoryHits: memoryHits + memoryHitsOfEndedCaches.load(ordering: .relaxed),
            diskHits: diskHits.load(ordering: .relaxed),
            downloads: downloads.load(ordering: .relaxed),
            downloadFailures: downloadFailures.load(ordering: .relaxed),
            revalidations: revalidations.load(ordering: .relaxed),
            notModified: notModified.load(ordering: .relaxed),
            staleServed: staleServed.load(ordering: .relaxed),
            puts: puts.load(ordering: .relaxed),
            storeFailures: storeFailures.load(ordering: .relaxed),
            storesSkipped: storesSkipped.load(ordering: .relaxed),
            logins: logins.load(ordering: .relaxed),
            logouts: logouts.load(ordering: .relaxed),
            purges: purges.load(ordering: .relaxed),
            endingsThatFailed: endingsThatFailed.load(ordering: .relaxed),
            downloadsCancelled: downloadsCancelled.load(ordering: .relaxed),
            tokenRefreshes: tokenRefreshes.load(ordering: .relaxed),
            tokenRefreshFailures: tokenRefreshFailures.load(ordering: .relaxed))
    }
}

extension Atomic where Value == Int {
    func count(_ amount: Int = 1) { add(amount, ordering: .relaxed) }
}
