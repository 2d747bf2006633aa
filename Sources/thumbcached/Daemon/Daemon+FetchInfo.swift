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
        _ fetch: FetcherStatistics, origins: [String], traffic: (counters: CacheCounters, memoryHits: Int)?
    ) -> Lines {
        var lines: Lines = [("origins", "\(origins.count)"), ("hosts_open", "\(fetch.hostsOpen)")]
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
        _ traffic: (counters: CacheCounters, memoryHits: Int), _ fetch: FetcherStatistics
    ) -> Lines {
        let hits: Lines = [
            ("hits_memory", "\(traffic.memoryHits)"),
            ("hits_disk", "\(traffic.counters[.diskHits])"),
            ("hits_stale", "\(traffic.counters[.staleServed])"),
            ("hits_origin", "\(fetch[.images])"),
        ]
        return hits + traffic.counters.figures(.tokenRefreshes, .tokenRefreshFailures)
    }
}

extension FetcherStatistics {
    fileprivate var lines: Daemon.Lines {
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
