import CacheFakes
import Foundation
import NIOConcurrencyHelpers
import Testing

@testable import CacheCore
@testable import DaemonServer
@testable import DiskStore
@testable import HelperProtocol
@testable import thumbcached

/// METRICS, INFO and docs/metrics.md, which follow from one list of metrics.
@Suite struct DaemonMetricsTests {
    private static var statistics: FetcherStatistics {
        var figures = FetcherStatistics()
        figures.hostsOpen = 1
        figures.accountsOpen = 3
        figures.origins["work"] = .init()
        figures.origins["work"]?.counts[.requests] = 5
        figures.origins["work"]?.counts[.timedOut] = 3
        figures.origins["work"]?.counts[.badImage] = 1
        figures.origins["work"]?.retryIn = 1_200
        figures.origins["work"]?.longestRetryIn = 9_000
        // No longer configured.
        figures.origins["old"] = .init()
        figures.origins["old"]?.counts[.requests] = 2
        figures.origins["old"]?.counts[.notModified] = 2
        return figures
    }

    private static func daemon(_ world: FakeWorld = FakeWorld(), origins: [String] = ["home", "work"]) -> DaemonMetrics
    {
        let services = world.services
        services.counters.count(.diskHits, 4)
        return DaemonMetrics(
            services: services, store: { StoreStatistics(usage: Usage(images: 70, bytes: 7_000)) },
            fetch: { statistics }, origins: { origins }, registry: PeerRegistry(), latencies: Latencies(loops: 1),
            started: Daemon.monotonicNanoseconds())
    }

    private static func info(_ sections: String..., isAdmin: Bool) -> [String] {
        let info = daemon().info(readStatistics: {}, epoch: { _ in 8 })
        let figures = UserSessions.Figures(openCaches: 1, memoryHits: 9, usage: Usage(images: 2, bytes: 200))
        return info.text(sections, for: Peer(uid: 1, pid: 1, isAdmin: isAdmin)) { figures }
            .split(whereSeparator: \.isNewline).map(String.init).filter { !$0.hasPrefix("#") }
    }

    @Test(arguments: [(0, "0"), (1, "1"), (1_000, "1"), (1_001, "2"), (.max, "9223372036854775")] as [(Int64, String)])
    func `METRICS reports any retry time that a fetcher claims`(_ row: (milliseconds: Int64, seconds: String)) {
        var statistics = Self.statistics
        statistics.origins["work"]?.longestRetryIn = row.milliseconds
        let metric = statistics.metrics(origins: ["work"]).first { $0.name == "thumbcached_origin_retry_seconds" }
        #expect(metric?.samples.map(\.value) == [row.seconds])
    }

    @Test func `INFO reads the fetcher's statistics for each observer, and once a second for others`() async {
        let world = FakeWorld()
        let readings = NIOLockedValueBox(0)
        let info = Self.daemon(world).info(
            readStatistics: {
                readings.withLockedValue { $0 += 1 }
                world.time.advance(milliseconds: 400)
            }, epoch: { _ in 8 })
        func read(isAdmin: Bool) async -> Int {
            for prepare in info.preparations(for: [], Peer(uid: 1, pid: 1, isAdmin: isAdmin)) { await prepare() }
            return readings.withLockedValue { $0 }
        }
        #expect(await read(isAdmin: false) == 1)
        world.time.advance(milliseconds: 599)
        #expect(await read(isAdmin: false) == 1)
        #expect(await read(isAdmin: true) == 2)
        world.time.advance(milliseconds: 599)
        #expect(await read(isAdmin: false) == 2)
        // The age counts from the request for the statistics.
        world.time.advance(milliseconds: 1)
        #expect(await read(isAdmin: false) == 3)
        #expect(info.preparations(for: ["cache"], Peer(uid: 1, pid: 1, isAdmin: true)).isEmpty)
    }

    @Test func `INFO of other clients has all fields for everyone`() {
        for metric in Self.daemon().all(UserSessions.Figures()) {
            let fields = metric.infoFields(isObserver: true).filter { $0.visibility == .everyone }.map(\.name)
            #expect(metric.infoFields(isObserver: false).map(\.name) == fields)
        }
    }

    @Test func `I1: other clients see whether an origin can be reached, and no counter of other uids`() {
        #expect(
            Self.info("fetch", isAdmin: false) == [
                "breakers_open_host:1", "origins:2", "origin_home:retry_in_ms=0", "origin_work:retry_in_ms=1200",
            ])
        #expect(
            Self.info("cache", "store", "sessions", "purge", isAdmin: false) == [
                "hits_memory:9", "stored_images:2", "stored_bytes:200", "open_caches:1", "epoch:8",
            ])
    }

    @Test func `an admin sees sums over all origins, and the counters of each configured one`() throws {
        let lines = Self.info("fetch", isAdmin: true)
        for line in [
            "origins:2", "breakers_open_host:1", "breakers_open_account:3", "origins_requests:7",
            "origins_responses_304:2", "origins_downloads_timed_out:3", "token_refreshes_succeeded:0",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        let work = try #require(lines.first { $0.hasPrefix("origin_work:") })
        #expect(work.hasPrefix("origin_work:requests=5,received_bytes=0,responses_2xx=0,responses_304=0,"))
        #expect(work.contains(",downloads_timed_out=3,") && work.contains(",downloads_bad_image=1,"))
        #expect(work.hasSuffix(",refused_addresses=0,retry_in_ms=9000"))
        #expect(!lines.contains { $0.hasPrefix("origin_old") })
        #expect(Self.info("cache", "store", isAdmin: true).contains("hits_disk:4"))
        #expect(Self.info("store", isAdmin: true).contains("stored_images:70"))
    }

    @Test(arguments: [true, false]) func `INFO has no field twice`(isAdmin: Bool) {
        let names = Self.info(isAdmin: isAdmin).map { $0.prefix { $0 != ":" } }
        #expect(names.count > 15 && Set(names).count == names.count)
    }

    @Test func `METRICS does not name origins that only the fetcher names`() {
        let metrics = Self.daemon().all(UserSessions.Figures())
        #expect(!metrics.contains { $0.samples.contains { $0.labels.contains { $0.value == "old" } } })
    }

    @Test func `each counter of the fetcher is in one metric`() {
        var statistics = FetcherStatistics()
        var origin = FetcherStatistics.OriginFigures()
        for (index, counter) in FetcherStatistics.Counter.allCases.enumerated() { origin.counts[counter] = 1 + index }
        statistics.origins["a"] = origin
        let values = statistics.metrics(origins: ["a"]).filter { $0.kind == .counter }.flatMap(\.samples).map(\.value)
        #expect(
            values.compactMap { Int($0) }.sorted() == Array(1...FetcherStatistics.Counter.allCases.count))
    }

    @Test func `names, units and help follow Prometheus's rules`() {
        let metrics = Self.daemon().all(UserSessions.Figures())
        #expect(metrics.count > 50 && Set(metrics.map(\.name)).count == metrics.count)
        for metric in metrics {
            #expect(metric.name.wholeMatch(of: /(thumbcached|process)_[a-z]+(_[a-z]+)*/) != nil)
            #expect(metric.name.hasSuffix("_total") == (metric.kind == .counter), "\(metric.name)")
            let base = metric.kind == .counter ? metric.name.dropLast("_total".count) : metric.name[...]
            for unit in ["bytes", "seconds"] {
                #expect(base.hasSuffix("_\(unit)") == (metric.unit == unit), "\(metric.name)")
            }
            #expect(metric.help.hasSuffix(".") && !metric.help.contains { "\\\n|".contains($0) }, "\(metric.name)")
        }
    }

    // MARK: The document

    /// Writes docs/metrics.md if THUMBCACHED_WRITE_DOCUMENTS is set, as `make metrics-document` does.
    @Test func `docs/metrics.md has a row for each metric, as declared`() throws {
        let file = repository.appending(path: "docs/metrics.md")
        let text = try String(contentsOf: file, encoding: .utf8)
        let mark = "<!-- Generated from here: make metrics-document -->\n"
        let start = try #require(text.range(of: mark)).upperBound
        let expected = text[..<start] + Self.tables()
        if ProcessInfo.processInfo.environment["THUMBCACHED_WRITE_DOCUMENTS"] != nil {
            try Data(expected.utf8).write(to: file)
        } else {
            let rows = Set(text[start...].split(separator: "\n"))
            let missing = Self.tables().split(separator: "\n").filter { !rows.contains($0) }
            #expect(missing == [] && text == expected, "run `make metrics-document`")
        }
    }

    private static func tables() -> String {
        let daemon = daemon(origins: ["NAME"])
        return Metric.Section.allCases.map { section in
            let rows = daemon.metrics(section, for: nil) { UserSessions.Figures() }.map(row)
            return """

                ## \(section.rawValue.prefix(1).uppercased() + section.rawValue.dropFirst())

                | name | type | unit | meaning | INFO |
                | --- | --- | --- | --- | --- |
                \(rows.joined(separator: "\n"))

                """
        }.joined()
    }

    private static func row(_ metric: Metric) -> String {
        var labels: [(name: String, values: [String])] = []
        for label in metric.samples.flatMap(\.labels) where label.name != "le" {
            if let index = labels.firstIndex(where: { $0.name == label.name }) {
                if !labels[index].values.contains(label.value) { labels[index].values.append(label.value) }
            } else {
                labels.append((label.name, [label.value]))
            }
        }
        let values = labels.filter { !["origin", "version"].contains($0.name) }.map { label in
            " `\(label.name)`: \(label.values.map { "`\($0)`" }.joined(separator: ", "))."
        }
        let name = labels.isEmpty ? "" : "{\(labels.map(\.name).joined(separator: ","))}"
        let fields = metric.infoFields(isObserver: true).map {
            "`\($0.name)`" + ($0.visibility == .everyone ? "" : " •")
        }
        let cells = [
            "`\(metric.name)\(name)`", metric.kind.rawValue, metric.unit, metric.help + values.joined(),
            fields.joined(separator: ", "),
        ]
        return "| \(cells.joined(separator: " | ")) |"
    }
}
