import DaemonServer
import DiskStore
import Glibc
import ImageFetcher
import LinuxSupport
import ThumbnailCache

extension Daemon {
    /// What INFO says, put together from those who know. Whoever is no admin sees its own figures only.
    static func serverInfo(
        sessions: UserSessions, memory: MemoryTier, budget: MemoryBudget, writes: WriteBehind, store: DiskStore,
        fetcher: CurlImageFetcher,
        registry: PeerRegistry, live: LiveConfiguration
    ) -> ServerInfo {
        let started = Self.uptime()
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
                let counts = sessions.statistics().counters
                let backlog = writes.backlog
                return [
                    ("memory_hits", "\(counts.memoryHits)"),
                    ("disk_hits", "\(counts.diskHits)"),
                    ("stale_served", "\(counts.staleServed)"),
                    ("downloads", "\(counts.downloads)"),
                    ("download_failures", "\(counts.downloadFailures)"),
                    ("revalidations", "\(counts.revalidations)"),
                    ("not_modified", "\(counts.notModified)"),
                    ("downloads_cancelled", "\(counts.downloadsCancelled)"),
                    ("puts", "\(counts.puts)"),
                    ("store_failures", "\(counts.storeFailures)"),
                    ("stores_skipped", "\(counts.storesSkipped)"),
                    ("unwritten_images", "\(backlog.images)"),
                    ("unwritten_bytes", "\(backlog.bytes)"),
                ]
            },
            .init("store") { peer in
                guard peer.isAdmin else {
                    let usage = sessions.figures(of: peer.uid).usage
                    return [("images", "\(usage.images)"), ("bytes", "\(usage.bytes)")]
                }
                return store.statistics.lines
            },
            .init("fetch") { peer in
                Self.fetchLines(
                    fetcher.statistics, origins: live.current.configuration.origins.keys.sorted(),
                    traffic: peer.isAdmin ? sessions.statistics().counters : nil)
            },
            .init("sessions") { peer in
                guard peer.isAdmin else { return [("open_caches", "\(sessions.figures(of: peer.uid).openCaches)")] }
                let (counts, open) = sessions.statistics()
                return [
                    ("open_caches", "\(open)"),
                    ("logins", "\(counts.logins)"),
                    ("logouts", "\(counts.logouts)"),
                ]
            },
            .init("purge") { peer in
                let epoch = [("epoch", "\(sessions.epoch(of: peer.uid))")]
                guard peer.isAdmin else { return epoch }
                let counts = sessions.statistics().counters
                return epoch + [
                    ("purges", "\(counts.purges)"),
                    ("endings_that_failed", "\(counts.endingsThatFailed)"),
                ]
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

extension DiskStoreStatistics {
    fileprivate var lines: [(name: String, value: String)] {
        [
            ("images", "\(usage.images)"),
            ("bytes", "\(usage.bytes)"),
            ("counted", isCounted ? "1" : "0"),
            ("trash_bytes", "\(trash.bytes)"),
            ("rejected_entries", "\(rejectedEntries)"),
            ("failed_reads", "\(failedReads)"),
            ("evicted_images", "\(evictedImages)"),
            ("evicted_bytes", "\(evictedBytes)"),
            ("damaged_logins", "\(damagedLogins)"),
        ]
    }
}
