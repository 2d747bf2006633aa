import DaemonServer
import DiskStore
import Glibc
import ImageFetcher
import LinuxSupport
import ThumbcacheProtocol
import ThumbnailCache

extension Daemon {
    typealias Lines = [(name: String, value: String)]

    /// What INFO says, put together from those who know. Whoever is no admin sees its own figures only.
    static func serverInfo(
        sessions: UserSessions, services: CacheServices, store: DiskStore, fetcher: CurlImageFetcher,
        registry: PeerRegistry, live: LiveConfiguration
    ) -> ServerInfo {
        let started = Self.uptime()
        let (memory, budget, counters) = (services.memory, services.budget, services.counters)
        return ServerInfo([
            .init("server") { _ in
                [
                    ("thumbcached_version", Version.current),
                    ("redis_version", "7.0.0"),
                    ("redis_mode", "standalone"),
                    ("process_id", "\(getpid())"),
                    ("uptime_in_seconds", "\(Self.uptime() - started)"),
                ]
            },
            .init("clients") { peer in registry.lines(for: peer) },
            .init("memory") { peer in
                let capacity = ("tier_capacity", "\(memory.capacity)")
                guard peer.isAdmin else { return [("held_bytes", "\(budget.bytes(of: peer.uid))"), capacity] }
                let tier = memory.statistics
                return [
                    ("held_bytes", "\(budget.bytes)"),
                    capacity,
                    ("used_memory_rss", "\(Self.residentBytes())"),
                    ("tier_images", "\(tier.images)"),
                    ("tier_bytes", "\(tier.bytes)"),
                    ("tier_evictions", "\(tier.evictions)"),
                ]
            },
            .init("cache") { peer in
                guard peer.isAdmin else { return [("memory_hits", "\(sessions.figures(of: peer.uid).memoryHits)")] }
                let backlog = services.writes.backlog
                var lines: Lines = [("memory_hits", "\(sessions.figures(of: nil).memoryHits)")]
                lines += counters.figures(
                    .diskHits, .staleServed, .downloads, .downloadFailures, .revalidations, .notModified,
                    .downloadsCancelled, .puts, .storeFailures, .storesSkipped)
                lines += [("unwritten_images", "\(backlog.images)"), ("unwritten_bytes", "\(backlog.bytes)")]
                return lines
            },
            .init("store") { peer in
                guard peer.isAdmin else {
                    let usage = sessions.figures(of: peer.uid).usage
                    return [("images", "\(usage.images)"), ("bytes", "\(usage.bytes)")]
                }
                let lines: Lines = [
                    ("images", "\(store.usageTotal.images)"), ("bytes", "\(store.usageTotal.bytes)"),
                    ("counted", store.isCounted ? "1" : "0"), ("trash_bytes", "\(store.trashUsage.bytes)"),
                ]
                return lines + store.counters.figures()
            },
            .init("fetch") { peer in
                Self.fetchLines(
                    fetcher.statistics, origins: live.current.configuration.origins.keys.sorted(),
                    traffic: peer.isAdmin
                        ? (counters: counters, memoryHits: sessions.figures(of: nil).memoryHits) : nil)
            },
            .init("sessions") { peer in
                guard peer.isAdmin else { return [("open_caches", "\(sessions.figures(of: peer.uid).openCaches)")] }
                let open: Lines = [("open_caches", "\(sessions.figures(of: nil).openCaches)")]
                return open + counters.figures(.logins, .logouts)
            },
            .init("purge") { peer in
                let epoch: Lines = [("epoch", "\(sessions.epoch(of: peer.uid))")]
                guard peer.isAdmin else { return epoch }
                return epoch + counters.figures(.purges, .endingsThatFailed)
            },
        ])
    }

    /// Seconds by a clock that nobody sets.
    private static func uptime() -> Int64 { nanoseconds(of: CLOCK_MONOTONIC) / 1_000_000_000 }

    /// proc_pid_statm(5): the second figure, in pages. 0 where /proc cannot be read.
    private static func residentBytes() -> Int {
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
    func figures(_ events: Event...) -> Daemon.Lines {
        (events.isEmpty ? Array(Event.allCases) : events).map { ($0.figure, "\(self[$0])") }
    }
}
