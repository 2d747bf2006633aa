/// The counters of all users together.
public typealias CacheCounters = Counters<CacheEvent>

/// An event that the cache counts. The order is that of METRICS.
public enum CacheEvent: Int, CountedEvent {
    /// Counts ended caches only. An open cache counts its hits under the lock that a hit takes anyway, so that cores do
    /// not contend for one cache line; they are added when a client requests the value.
    case memoryHits
    case diskHits, staleServed, fallbacksServed, puts, downloads, downloadFailures, revalidations, notModified
    case downloadsCancelled, storeFailures, storesSkipped, renditions, renditionFailures, eventsSent, subscribersDropped
    case logins, logouts
    case purges, failedInvalidations
    case tokenRefreshes, tokenRefreshFailures

    public var declaration: CounterDeclaration {
        switch self {
        case .memoryHits: Self.hits("memory", .everyone)
        case .diskHits: Self.hits("disk", .observers)
        case .staleServed: .init(.cache, "stale_served_total", unit: "images", "Hits that were stale.")
        case .fallbacksServed:
            .init(.cache, "fallbacks_served_total", unit: "images", "Fallback images served for missing images.")
        case .puts: .init(.cache, "puts_total", unit: "images", "Images stored by PUT.")
        case .downloads: .init(.cache, "downloads_total", unit: "downloads", "Downloads started.")
        case .downloadFailures: .init(.cache, "download_failures_total", unit: "downloads", "Downloads that failed.")
        case .revalidations:
            .init(.cache, "revalidations_total", unit: "downloads", "Downloads that revalidated a stored image.")
        case .notModified:
            .init(.cache, "not_modified_total", unit: "downloads", "Revalidations that were answered with 304.")
        case .downloadsCancelled:
            .init(
                .cache, "downloads_cancelled_total", unit: "downloads",
                "Downloads cancelled by a logout, a purge or a PUT, or because no request waited for them.")
        case .storeFailures:
            .init(.cache, "store_failures_total", unit: "images", "Images that could not be written or removed.")
        case .storesSkipped:
            .init(
                .cache, "stores_skipped_total", unit: "images",
                "Downloaded images that were not written because the write queue was full.")
        case .renditions: .init(.cache, "renditions_total", unit: "images", "Renditions made.")
        case .renditionFailures:
            .init(.cache, "rendition_failures_total", unit: "images", "Renditions that could not be made.")
        case .eventsSent: .init(.cache, "events_total", unit: "events", "Events written to subscribers.")
        case .subscribersDropped:
            .init(
                .cache, "subscribers_dropped_total", unit: "connections",
                "Subscribers disconnected because events could not be sent.")
        case .logins: .init(.sessions, "logins_total", unit: "commands", "LOGIN commands that succeeded.")
        case .logouts: .init(.sessions, "logouts_total", unit: "users", "Users logged out.")
        case .purges: .init(.purge, "purges_total", unit: "users", "Users purged, once for each PURGE.")
        case .failedInvalidations:
            .init(
                .purge, "invalidations_failed_total", unit: "attempts",
                "Attempts to make a logout or purge durable that failed.")
        case .tokenRefreshes: Self.tokenRefreshes("succeeded")
        case .tokenRefreshFailures: Self.tokenRefreshes("failed")
        }
    }

    private static func hits(_ source: String, _ visibility: Metric.Visibility) -> CounterDeclaration {
        .init(
            .cache, "hits_total", label: ("source", source), unit: "images",
            "Images served from memory or disk, fresh or stale.", visibility)
    }

    private static func tokenRefreshes(_ outcome: String) -> CounterDeclaration {
        .init(
            .fetch, "token_refreshes_total", label: ("outcome", outcome), unit: "refreshes",
            "Refreshes of access tokens.")
    }
}
