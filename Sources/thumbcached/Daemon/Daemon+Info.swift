import CacheCore
import DaemonServer
import DiskStore
import Glibc
import HelperClient
import HelperProtocol
import LinuxSupport
import NIOConcurrencyHelpers
import ThumbcacheProtocol

extension Daemon {
    typealias Lines = ServerInfo.Lines

    /// What INFO says, put together from those who know. Whoever is no observer sees its own figures only.
    static func serverInfo(
        sessions: UserSessions, services: CacheServices, store: DiskStore, fetcher: FetcherClient,
        registry: PeerRegistry, live: LiveConfiguration
    ) -> ServerInfo {
        let started = uptime()
        let (memory, budget, counters) = (services.memory, services.budget, services.counters)
        return ServerInfo(
            [
                "server": { _, _ in
                    [
                        ("thumbcached_version", Version.current), ("redis_version", "7.0.0"),
                        ("redis_mode", "standalone"),
                        ("process_id", "\(getpid())"),
                        ("uptime_in_seconds", "\((uptime() - started) / 1_000_000_000)"),
                    ]
                },
                "clients": { peer, _ in registry.clientLines(for: peer) },
                "memory": { peer, _ in
                    let tier = memory.statistics
                    let held = peer.isObserver ? budget.bytes : budget.bytes(of: peer.uid)
                    let used = peer.isObserver ? held + tier.bytes : held
                    // First: redis-cli --stat takes the first line that begins so, and there is `used_memory_rss`.
                    let lines: Lines = [
                        ("used_memory", "\(used)"), ("used_memory_human", humanBytes(used)), ("held_bytes", "\(held)"),
                        ("tier_capacity", "\(memory.capacity)"),
                    ]
                    guard peer.isObserver else { return lines }
                    return lines + [
                        ("used_memory_rss", "\(residentBytes())"),
                        ("tier_images", "\(tier.images)"), ("tier_bytes", "\(tier.bytes)"),
                        ("tier_evictions", "\(tier.evictions)"),
                    ]
                },
                "stats": { peer, _ in
                    registry.statisticsLines(for: peer, evicted: store.counters[.evictedImages])
                },
                "cache": { peer, figures in
                    var lines: Lines = [("memory_hits", "\(figures().memoryHits)")]
                    guard peer.isObserver else { return lines }
                    let backlog = services.writes.backlog
                    lines += counters.figures(
                        .diskHits, .staleServed, .fallbacksServed, .downloads, .downloadFailures, .revalidations,
                        .notModified, .downloadsCancelled, .puts, .storeFailures, .storesSkipped, .renditions,
                        .renditionFailures)
                    return lines + [("unwritten_images", "\(backlog.images)"), ("unwritten_bytes", "\(backlog.bytes)")]
                },
                "store": { peer, figures in
                    let usage = peer.isObserver ? store.usageTotal : figures().usage
                    var lines: Lines = [("images", "\(usage.images)"), ("bytes", "\(usage.bytes)")]
                    guard peer.isObserver else { return lines }
                    lines += [("counted", store.isCounted ? "1" : "0"), ("trash_bytes", "\(store.trashUsage.bytes)")]
                    return lines + store.counters.figures()
                },
                "fetch": { peer, figures in
                    fetchLines(
                        fetcher.statistics, origins: live.withLockedValue { $0.origins }.keys.sorted(),
                        traffic: peer.isObserver ? (counters: counters, memoryHits: figures().memoryHits) : nil)
                },
                "sessions": { peer, figures in
                    let open: Lines = [("open_caches", "\(figures().openCaches)")]
                    return peer.isObserver ? open + counters.figures(.logins, .logouts) : open
                },
                "purge": { peer, _ in
                    let epoch: Lines = [("epoch", "\(sessions.epoch(of: peer.uid))")]
                    return peer.isObserver ? epoch + counters.figures(.purges, .failedInvalidations) : epoch
                },
                "keyspace": { peer, figures in
                    let usage = peer.isObserver ? store.usageTotal : figures().usage
                    // No image goes for its age alone: what is stale is held until it is asked for, or gives way.
                    return [("db0", "keys=\(usage.images),expires=0,avg_ttl=0")]
                },
            ], beforehand: ["fetch": { await fetcher.readStatistics() }])
    }

    /// The section `fetch`: what was asked of the origins, and what came of it.
    ///
    /// - Parameters:
    ///   - origins: the names in the configuration; others are in the sums alone.
    ///   - traffic: where images came from; nil for a caller who is no observer, and who is told of the origins alone:
    ///     whether they can be reached concerns everybody, what others asked of them does not.
    static func fetchLines(
        _ fetch: FetcherStatistics, origins: [String], traffic: (counters: CacheCounters, memoryHits: Int)?
    ) -> Lines {
        var lines: Lines = [("origins", "\(origins.count)"), ("hosts_open", "\(fetch.hostsOpen)")]
        if let (counters, memoryHits) = traffic {
            lines += FetcherStatistics.Counter.allCases.map { ($0.rawValue, "\(fetch[$0])") }
            lines += [
                ("uids_open", "\(fetch.uidsOpen)"), ("in_flight", "\(fetch.inFlight)"), ("queued", "\(fetch.queued)"),
                ("hits_memory", "\(memoryHits)"), ("hits_disk", "\(counters[.diskHits])"),
                ("hits_stale", "\(counters[.staleServed])"), ("hits_origin", "\(fetch[.images])"),
            ]
            lines += counters.figures(.tokenRefreshes, .tokenRefreshFailures)
        }
        return lines
            + origins.map { name in
                let figures = fetch.origins[name] ?? .init()
                return ("origin_\(name)", traffic == nil ? "retry_in_ms=\(figures.retryIn)" : figures.line)
            }
    }

    /// Bytes as Redis writes them for people: `512B`, `1.50K`, `64.00M`.
    static func humanBytes(_ bytes: Int) -> String {
        guard bytes >= 1 << 10 else { return "\(bytes)B" }
        let (shift, unit) = bytes < 1 << 20 ? (10, "K") : bytes < 1 << 30 ? (20, "M") : (30, "G")
        let hundredths = (Double(bytes) / Double(1 << shift) * 100).rounded()
        let (whole, part) = Int(hundredths).quotientAndRemainder(dividingBy: 100)
        return "\(whole).\(part < 10 ? "0" : "")\(part)\(unit)"
    }

    /// proc_pid_statm(5): the second figure, in pages. 0 where /proc cannot be read.
    static func residentBytes() -> Int {
        do throws(PlainFileError) {
            let figures = try readTextFile("/proc/self/statm", limit: 256).split(separator: " ")
            guard figures.count > 1, let pages = Int(figures[1]) else { return 0 }
            return pages * sysconf(Int32(_SC_PAGESIZE))
        } catch {
            return 0
        }
    }
}

extension Counters {
    /// Lines of INFO: those that are named, or all.
    fileprivate func figures(_ events: Event...) -> Daemon.Lines {
        (events.isEmpty ? Array(Event.allCases) : events).map { ($0.figure, "\(self[$0])") }
    }
}

extension FetcherStatistics.OriginFigures {
    fileprivate var line: String {
        func pair(_ counter: FetcherStatistics.Counter) -> String { "\(counter.rawValue)=\(counts[counter])" }
        return "\(pair(.requests)),\(pair(.bytes)),\(pair(.notModified)),failures=\(counts.failures),"
            + "\(pair(.rejected)),\(pair(.refusedAddresses)),retry_in_ms=\(longestRetryIn)"
    }
}
