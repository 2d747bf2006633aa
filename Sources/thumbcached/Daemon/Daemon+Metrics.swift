import CacheCore
import DaemonServer
import DiskStore
import HelperClient
import HelperProtocol
import LinuxSupport
import NIOConcurrencyHelpers
import ThumbcacheProtocol

/// What METRICS says, put together from those who know. No user and no profile is named in it.
extension Daemon {
    static func metrics(
        sessions: UserSessions, services: CacheServices, store: DiskStore, fetcher: FetcherClient,
        registry: PeerRegistry, latencies: Latencies, live: LiveConfiguration
    ) -> ServerMetrics {
        let started = uptime()
        return ServerMetrics(beforehand: { await fetcher.readStatistics() }) {
            let figures = sessions.figures(of: nil)
            return [
                MetricFamily(
                    "build_info", .gauge, "Always 1; the version is a label.",
                    [.init(1, labels: ["version": Version.current])]),
                MetricFamily(
                    "uptime_seconds", .gauge, "Time since the start.", Int((uptime() - started) / 1_000_000_000)),
                MetricFamily("resident_memory_bytes", .gauge, "Resident memory of the daemon.", residentBytes()),
            ] + clients(registry.statistics) + users(figures, services.counters) + memory(services)
                + requests(services, memoryHits: figures.memoryHits) + [latencies.family] + disk(store)
                + downloads(fetcher.statistics, origins: live.withLockedValue { $0.origins }.keys.sorted())
        }
    }

    private static func clients(_ clients: PeerRegistry.Statistics) -> [MetricFamily] {
        [
            MetricFamily("connections", .gauge, "Connections that are open.", clients.connections),
            MetricFamily("connections_accepted_total", .counter, "Connections that were let in.", clients.accepted),
            MetricFamily(
                "connections_refused_total", .counter, "Connections that were over a limit.", clients.refused),
            MetricFamily(
                "connections_evicted_total", .counter, "Connections that were closed in favour of others.",
                clients.evicted),
        ]
    }

    private static func users(_ figures: UserSessions.Figures, _ counters: CacheCounters) -> [MetricFamily] {
        [
            MetricFamily(
                "open_caches", .gauge, "Users who are logged in and were named since the start.", figures.openCaches),
            MetricFamily(
                "endings_owed", .gauge, "Log-outs and purges that could not be made durable and are tried again.",
                figures.pendingInvalidations),
            counted("logins_total", "LOGIN commands that succeeded.", counters[.logins]),
            counted("logouts_total", "LOGOUT commands, of each user that they were for.", counters[.logouts]),
            counted("purges_total", "PURGE commands, of each user that they were for.", counters[.purges]),
            counted(
                "endings_failed_total", "Times that a log-out or purge could not be made durable.",
                counters[.failedInvalidations]),
            MetricFamily(
                "token_refreshes_total", .counter, "Refreshes of access tokens, by what came of them.",
                [
                    .init(counters[.tokenRefreshes], labels: ["outcome": "refreshed"]),
                    .init(counters[.tokenRefreshFailures], labels: ["outcome": "failed"]),
                ]),
        ]
    }

    private static func memory(_ services: CacheServices) -> [MetricFamily] {
        let tier = services.memory.statistics
        return [
            MetricFamily("memory_tier_images", .gauge, "Images kept ready in memory.", tier.images),
            MetricFamily("memory_tier_bytes", .gauge, "Bytes of images kept ready in memory.", tier.bytes),
            MetricFamily(
                "memory_tier_capacity_bytes", .gauge, "Bytes of images that may be kept (memory.tier).",
                services.memory.capacity),
            counted("memory_tier_evictions_total", "Images that gave way to others in memory.", tier.evictions),
            MetricFamily(
                "held_bytes", .gauge, "Bytes kept for clients: requests, replies, users, sessions (limits.memory).",
                services.budget.bytes),
        ]
    }

    private static func requests(_ services: CacheServices, memoryHits: Int) -> [MetricFamily] {
        let (counters, backlog) = (services.counters, services.writes.backlog)
        return [
            MetricFamily(
                "hits_total", .counter, "Images served from what was held, by where it was held.",
                [
                    .init(memoryHits, labels: ["source": "memory"]),
                    .init(counters[.diskHits], labels: ["source": "disk"]),
                ]),
            counted("stale_served_total", "Of those, images that were stale.", counters[.staleServed]),
            counted(
                "fallbacks_served_total", "Operators' pictures served where an origin had none.",
                counters[.fallbacksServed]),
            counted("puts_total", "Images stored by PUT.", counters[.puts]),
            counted("downloads_total", "Downloads begun.", counters[.downloads]),
            counted("download_failures_total", "Downloads that failed.", counters[.downloadFailures]),
            counted(
                "revalidations_total", "Downloads that asked only for another image than the one held.",
                counters[.revalidations]),
            counted("not_modified_total", "Of those, the ones answered with 304.", counters[.notModified]),
            counted(
                "downloads_cancelled_total", "Downloads cancelled, by log-outs, purges, PUTs or for want of waiters.",
                counters[.downloadsCancelled]),
            counted("store_failures_total", "Images that could not be written or removed.", counters[.storeFailures]),
            counted(
                "stores_skipped_total", "Downloaded images not written, since too many waited for that.",
                counters[.storesSkipped]),
            counted("renditions_total", "Pictures made in another size.", counters[.renditions]),
            counted(
                "rendition_failures_total", "Pictures that could not be made in another size.",
                counters[.renditionFailures]),
            MetricFamily("unwritten_images", .gauge, "Downloaded images that wait to be written.", backlog.images),
            MetricFamily("unwritten_bytes", .gauge, "Bytes of those.", backlog.bytes),
            counted("events_total", "Events written to subscribers.", counters[.eventsTold]),
            counted(
                "subscribers_dropped_total", "Subscribers disconnected because they did not take their events.",
                counters[.subscribersDropped]),
        ]
    }

    private static func disk(_ store: DiskStore) -> [MetricFamily] {
        let (usage, counters) = (store.usageTotal, store.counters)
        return [
            MetricFamily("stored_images", .gauge, "Images on disk.", usage.images),
            MetricFamily("stored_bytes", .gauge, "Bytes of them, in whole blocks.", usage.bytes),
            MetricFamily(
                "stored_is_counted", .gauge, "Whether all that a start found is counted by now: 1 or 0.",
                store.isCounted ? 1 : 0),
            MetricFamily(
                "trash_bytes", .gauge, "Bytes of ended caches that are still to be deleted; no key opens them.",
                store.trashUsage.bytes),
            counted("rejected_entries_total", "Entries torn, tampered with or unreadable.", counters[.rejectedEntries]),
            counted("failed_reads_total", "Reads of entries that failed by themselves.", counters[.failedReads]),
            counted("evicted_images_total", "Images that gave way to others on disk.", counters[.evictedImages]),
            counted("evicted_bytes_total", "Bytes of those.", counters[.evictedBytes]),
            counted("damaged_logins_total", "Log-ins ended, since files were damaged.", counters[.damagedLogins]),
        ]
    }

    /// - Parameter fetch: as the fetcher reports it; the numbers may be anything.
    static func downloads(_ fetch: FetcherStatistics, origins: [String]) -> [MetricFamily] {
        typealias Counter = FetcherStatistics.Counter
        func samples(_ label: String? = nil, _ counters: [(Counter, String)]) -> [MetricFamily.Sample] {
            origins.flatMap { name in
                counters.map { counter, value in
                    let figures = fetch.origins[name]?.counts[counter] ?? 0
                    guard let label else { return .init(figures, labels: ["origin": name]) }
                    return .init(figures, labels: ["origin": name, label: value])
                }
            }
        }
        return [
            MetricFamily("downloads_in_flight", .gauge, "Downloads under way.", fetch.inFlight),
            MetricFamily("downloads_queued", .gauge, "Downloads that wait for a place.", fetch.queued),
            MetricFamily(
                "breakers_open", .gauge, "Circuit breakers that are open, of hosts to all and of hosts to single uids.",
                [
                    .init(fetch.hostsOpen, labels: ["scope": "host"]), .init(fetch.uidsOpen, labels: ["scope": "uid"]),
                ]),
            MetricFamily(
                "origin_retry_seconds", .gauge, "Time until the last host of the origin may be asked again.",
                origins.map {
                    let milliseconds = fetch.origins[$0]?.longestRetryIn ?? 0
                    return .init(Int(clamping: milliseconds.saturatingAdd(999) / 1_000), labels: ["origin": $0])
                }),
            MetricFamily(
                "origin_requests_total", .counter, "Requests sent to the origin, redirects included.",
                samples(nil, [(.requests, "")])),
            MetricFamily(
                "origin_received_bytes_total", .counter, "Bytes of bodies received from the origin.",
                samples(nil, [(.bytes, "")])),
            MetricFamily(
                "origin_answers_total", .counter, "Answers of the origin, by status.",
                samples(
                    "status",
                    [
                        (.successful, "2xx"), (.notModified, "304"), (.redirected, "3xx"), (.refused, "4xx"),
                        (.tooMany, "429"), (.broken, "5xx"),
                    ])),
            MetricFamily(
                "origin_downloads_total", .counter, "Downloads that ended, by outcome.",
                samples(
                    "outcome",
                    [
                        (.images, "image"), (.missing, "missing"), (.cancelled, "cancelled"), (.rejected, "rejected"),
                        (.timedOut, "timed_out"), (.failedOrigin, "failed"), (.unauthorized, "unauthorized"),
                        (.denied, "denied"), (.badImage, "bad_image"), (.tooLarge, "too_large"), (.busy, "busy"),
                    ])),
            MetricFamily(
                "origin_refused_addresses_total", .counter, "Connections not made because of the address.",
                samples(nil, [(.refusedAddresses, "")])),
        ]
    }

    private static func counted(_ name: String, _ help: String, _ value: Int) -> MetricFamily {
        MetricFamily(name, .counter, help, value)
    }
}
