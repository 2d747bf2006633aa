import CacheCore
import DaemonServer
import DiskStore
import Glibc
import HelperProtocol
import NIOConcurrencyHelpers
import ThumbcacheProtocol

/// The text of INFO: the metrics, and fields of Redis's names for tools written for Redis.
extension DaemonMetrics {
    typealias Lines = ServerInfo.Lines

    /// - Parameter epoch: returns the last epoch of a uid.
    func info(
        readStatistics: @escaping @Sendable () async -> Void, epoch: @escaping @Sendable (UInt32) -> UInt64
    ) -> ServerInfo {
        ServerInfo(
            [
                "server": { _, _ in
                    [
                        ("thumbcached_version", Version.current), ("redis_version", "7.0.0"),
                        ("redis_mode", "standalone"), ("process_id", "\(getpid())"),
                        ("uptime_in_seconds", "\(uptimeSeconds)"),
                    ]
                },
                "clients": { peer, figures in registry.clientLines(for: peer) + fields(.clients, peer, figures) },
                "memory": { peer, figures in memoryLines(peer) + fields(.memory, peer, figures) },
                "stats": { peer, _ in
                    registry.statisticsLines(for: peer, evicted: store().counters[.evictedImages])
                },
                "cache": { peer, figures in fields(.cache, peer, figures) },
                "store": { peer, figures in fields(.store, peer, figures) },
                "fetch": { peer, figures in fields(.fetch, peer, figures) + originLines(peer) },
                "sessions": { peer, figures in fields(.sessions, peer, figures) },
                "purge": { peer, figures in
                    [("epoch", "\(epoch(peer.uid))")] + fields(.purge, peer, figures)
                },
                "keyspace": { peer, figures in
                    let usage = peer.isObserver ? store().usage : figures().usage
                    // Images do not expire: a stale image stays until it is refreshed or evicted.
                    return [("db0", "keys=\(usage.images),expires=0,avg_ttl=0")]
                },
            ], preparations: ["fetch": forInfo(readStatistics)])
    }

    /// Requests the fetcher's statistics for each INFO of an observer. For other clients, statistics up to a second old
    /// suffice: otherwise each INFO would cost a message to the fetcher.
    private func forInfo(_ readStatistics: @escaping @Sendable () async -> Void) -> ServerInfo.Preparation {
        let lastReading = NIOLockedValueBox<Int64?>(nil)
        return { peer in
            let now = services.time.uptime
            if !peer.isObserver, let last = lastReading.withLockedValue({ $0 }), now - last < 1_000 { return nil }
            return {
                await readStatistics()
                lastReading.withLockedValue { $0 = now }
            }
        }
    }

    /// Only those that the peer may see.
    private func fields(_ section: Metric.Section, _ peer: Peer, _ figures: () -> UserSessions.Figures) -> Lines {
        var lines: Lines = []
        for metric in metrics(section, for: peer, figures) {
            for field in metric.infoFields(isObserver: peer.isObserver) { lines.append((field.name, field.value)) }
        }
        return lines
    }

    private func memoryLines(_ peer: Peer) -> Lines {
        let budget = services.budget
        let used =
            peer.isObserver ? budget.bytes + services.memory.statistics.bytes : budget.bytes(of: peer.uid)
        // used_memory stands first: redis-cli --stat takes the first line that begins so.
        return [("used_memory", "\(used)"), ("used_memory_human", Self.humanBytes(used))]
            + (peer.isObserver ? [("used_memory_rss", "\(Self.residentBytes())")] : [])
    }

    private func originLines(_ peer: Peer) -> Lines {
        let (fetch, names) = (fetch(), origins())
        return [("origins", "\(names.count)")]
            + names.map { ("origin_\($0)", fetch.infoLine(of: $0, isObserver: peer.isObserver)) }
    }

    /// Formats bytes as Redis does: `512B`, `1.50K`, `64.00M`.
    static func humanBytes(_ bytes: Int) -> String {
        guard bytes >= 1 << 10 else { return "\(bytes)B" }
        let (shift, unit) = bytes < 1 << 20 ? (10, "K") : bytes < 1 << 30 ? (20, "M") : (30, "G")
        let hundredths = (Double(bytes) / Double(1 << shift) * 100).rounded()
        let (whole, part) = Int(hundredths).quotientAndRemainder(dividingBy: 100)
        return "\(whole).\(part < 10 ? "0" : "")\(part)\(unit)"
    }
}
