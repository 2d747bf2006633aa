import ImageFetcher
import ThumbnailCache

extension Daemon {
    /// INFO's section `fetch`: what was asked of the origins, and what came of it.
    ///
    /// - Parameters:
    ///   - origins: the names in the configuration. What was asked of one that is configured no more is in the sums alone.
    ///   - traffic: where images came from; nil for a caller who is no admin, and who is told of the origins alone: whether they can
    ///     be reached concerns everybody, what others asked of them does not.
    static func fetchLines(
        _ fetch: FetcherStatistics, origins: [String], traffic: (counters: CacheCounters, memoryHits: Int)?
    ) -> Lines {
        var lines: Lines = [("origins", "\(origins.count)"), ("hosts_open", "\(fetch.hostsOpen)")]
        if let traffic { lines += fetch.lines + fetch.failures.lines + fetch.answers.lines + hits(traffic, fetch) }
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
            ("hits_origin", "\(fetch.images)"),
        ]
        return hits + traffic.counters.figures(.tokenRefreshes, .tokenRefreshFailures)
    }
}

extension FetcherStatistics {
    fileprivate var lines: Daemon.Lines {
        [
            ("requests", "\(requests)"),
            ("bytes", "\(bytes)"),
            ("images", "\(images)"),
            ("missing", "\(missing)"),
            ("cancelled", "\(cancelled)"),
            ("refused_addresses", "\(refusedAddresses)"),
            ("rejected", "\(rejected)"),
            ("uids_open", "\(uidsOpen)"),
            ("in_flight", "\(inFlight)"),
            ("queued", "\(queued)"),
        ]
    }
}

extension FetcherStatistics.Failures {
    fileprivate var lines: Daemon.Lines {
        [
            ("failed_timed_out", "\(timedOut)"),
            ("failed_origin", "\(origin)"),
            ("failed_unauthorized", "\(unauthorized)"),
            ("failed_denied", "\(denied)"),
            ("failed_bad_image", "\(badImage)"),
            ("failed_too_large", "\(tooLarge)"),
            ("failed_busy", "\(busy)"),
        ]
    }
}

extension FetcherStatistics.Answers {
    fileprivate var lines: Daemon.Lines {
        [
            ("answers_2xx", "\(successful)"),
            ("not_modified", "\(notModified)"),
            ("answers_3xx", "\(redirected)"),
            ("answers_4xx", "\(refused)"),
            ("answers_429", "\(tooMany)"),
            ("answers_5xx", "\(broken)"),
        ]
    }
}

extension FetcherStatistics.OriginFigures {
    fileprivate var line: String {
        "requests=\(requests),bytes=\(bytes),not_modified=\(notModified),failures=\(failures),rejected=\(rejected),"
            + "refused_addresses=\(refusedAddresses),retry_in_ms=\(longestRetryIn)"
    }
}
