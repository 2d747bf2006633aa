import Testing

@testable import CacheCore
@testable import DaemonServer
@testable import HelperProtocol
@testable import thumbcached

@Suite struct FetchInfoTests {
    private static var figures: FetcherStatistics {
        var figures = FetcherStatistics()
        figures.hostsOpen = 1
        figures.uidsOpen = 3
        figures.origins["work"] = .init()
        figures.origins["work"]?.counts[.requests] = 5
        figures.origins["work"]?.counts[.timedOut] = 3
        figures.origins["work"]?.counts[.badImage] = 1
        figures.origins["work"]?.retryIn = 1_200
        figures.origins["work"]?.longestRetryIn = 9_000
        // Configured no more.
        figures.origins["old"] = .init()
        figures.origins["old"]?.counts[.requests] = 2
        figures.origins["old"]?.counts[.notModified] = 2
        return figures
    }

    @Test(arguments: [(0, "0"), (1, "1"), (1_000, "1"), (1_001, "2"), (.max, "9223372036854775")] as [(Int64, String)])
    func `METRICS reports whatever retry time a fetcher claims`(_ row: (milliseconds: Int64, seconds: String)) {
        var figures = Self.figures
        figures.origins["work"]?.longestRetryIn = row.milliseconds
        let family = Daemon.downloads(figures, origins: ["work"]).first { $0.name.hasSuffix("origin_retry_seconds") }
        #expect(family?.samples.map(\.value) == [row.seconds])
    }

    private func lines(isAdmin: Bool) -> [String] {
        Daemon.fetchLines(
            Self.figures, origins: ["home", "work"], traffic: isAdmin ? (counters: CacheCounters(), memoryHits: 9) : nil
        ).map { "\($0.name):\($0.value)" }
    }

    @Test func `I1: who is no admin is told whether an origin can be reached, and nothing of what others asked`() {
        #expect(
            lines(isAdmin: false) == [
                "origins:2", "hosts_open:1", "origin_home:retry_in_ms=0", "origin_work:retry_in_ms=1200",
            ])
    }

    @Test func `an admin is told what was asked, what came of it, and the same of each origin`() {
        let lines = lines(isAdmin: true)
        for line in [
            "origins:2", "hosts_open:1", "requests:7", "not_modified:2", "failed_timed_out:3", "uids_open:3",
            "hits_memory:9",
            "origin_home:requests=0,bytes=0,not_modified=0,failures=0,rejected=0,refused_addresses=0,retry_in_ms=0",
            "origin_work:requests=5,bytes=0,not_modified=0,failures=4,rejected=0,refused_addresses=0,retry_in_ms=9000",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        #expect(Set(lines.map { $0.prefix { $0 != ":" } }).count == lines.count)
        #expect(!lines.contains { $0.hasPrefix("origin_old") })
    }
}
