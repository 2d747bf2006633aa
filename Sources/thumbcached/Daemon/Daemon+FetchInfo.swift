import ImageFetcher
import ThumbnailCache

extension Daemon {
    /// INFO's section `fetch`: what was asked of the origins, and what came of it.
    ///
    /// - Parameters:
    ///   - origins: the names in the configuration. What was asked of one that is configured no more is in the sums
    ///     alone.
    ///   - traffic: where images came from; nil for a caller who is no admin, and who is told of the origins alone:
    ///     whether they can be reached concerns everybody, what others asked of them does not.
    static func fetchLines(
        _ fetch: FetcherStatistics, origins: [String], traffic: CacheCounters.Snapshot?
    ) -> [(name: String, value: String)] {
        var lines = [("origins", "\(origins.count)"), ("hosts_open", "\(fetch.hostsOpen)")]
        if let traffic { lines += fetch.lines + hits(traffic, fetch) }
        return lines
            + origins.map { name in
                let figures = fetch.origins[name] ?? .init()
                let line = traffic == nil ? "retry_in_ms=\(figures.retryIn)" : figures.line
                return ("origin_\(name)", line)
            }
    }

    /// What was served, by where it came from, and the access tokens renewed for it.
    private static func hits(
        _ traffic: CacheCounters.Snapshot, _ fetch: FetcherStatistics
    ) -> [(name: String, value: String)] {
        [
            ("hits_memory", "\(traffic.memoryHits)"),
            ("hits_disk", "\(traffic.diskHits)"),
            ("hits_stale", "\(traffic.staleServed)"),
            ("hits_origin", "\(fetch[.images])"),
            ("token_refreshes", "\(traffic.tokenRefreshes)"),
            ("token_refresh_failures", "\(traffic.tokenRefreshFailures)"),
        ]
    }
}

extension FetcherStatistics {
    fileprivate var lines: [(name: String, value: String)] {
        Counter.allCases.map { ($0.rawValue, "\(self[$0])") } + [
            ("uids_open", "\(uidsOpen)"),
            ("in_flight", "\(inFlight)"),
            ("queued", "\(queued)"),
        ]
    }
}

extension FetcherStatistics.OriginFigures {
    fileprivate var line: String {
        func pair(_ counter: FetcherStatistics.Counter) -> String { "\(counter.rawValue)=\(counts[counter])" }
        return "\(pair(.requests)),\(pair(.bytes)),\(pair(.notModified)),failures=\(counts.failures),"
            + "\(pair(.rejected)),\(pair(.refusedAddresses)),retry_in_ms=\(longestRetryIn)"
    }
}
