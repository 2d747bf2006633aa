import CacheCore
import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing
import ThumbcacheProtocol

@testable import DaemonServer

/// METRICS: access and format.
@Suite(.timeLimit(.minutes(2))) struct MetricsTests {
    private static let metrics = [
        Metric("open_caches", .gauge, unit: "users", "Users.", 3),
        Metric(
            "hits_total", .counter, unit: "images", "Hits.",
            [.init(1, labels: ["source": "memory"]), .init(2, labels: ["source": "a \"\\\n"])]),
    ]

    @Test func `METRICS has Prometheus's text format`() async {
        let text = await ServerMetrics { Self.metrics }.text()
        #expect(
            text == """
                # HELP thumbcached_open_caches Users.
                # TYPE thumbcached_open_caches gauge
                thumbcached_open_caches 3
                # HELP thumbcached_hits_total Hits.
                # TYPE thumbcached_hits_total counter
                thumbcached_hits_total{source="memory"} 1
                thumbcached_hits_total{source="a \\"\\\\\\n"} 2

                """)
    }

    @Test func `INFO does not make samples that it omits`() {
        let made = NIOLockedValueBox(0)
        let sample: @Sendable () -> Metric.Sample = {
            made.withLockedValue { $0 += 1 }
            return .init(1)
        }
        let waits = Metric("waits", .histogram, unit: "seconds", "Waits.", [sample()], infoFields: { [] })
        #expect(waits.infoFields(isObserver: true).isEmpty && made.withLockedValue { $0 } == 0)
        let forObservers = Metric("events", .counter, unit: "events", "Events.", [sample()])
        #expect(forObservers.infoFields(isObserver: false).isEmpty && made.withLockedValue { $0 } == 0)
        #expect(forObservers.infoFields(isObserver: true).map(\.value) == ["1"] && made.withLockedValue { $0 } == 1)
        #expect(Latencies(loops: 1).metric.infoFields(isObserver: true).isEmpty)
    }

    @Test func `INFO has the samples for everyone`() {
        let metric = Metric(
            "hits", .counter, unit: "images", "Hits.", isForEveryone: true,
            [.init(1, labels: ["source": "memory"], visibility: .everyone), .init(2, labels: ["source": "disk"])])
        #expect(metric.infoFields(isObserver: false).map(\.name) == ["hits_memory"])
        #expect(metric.infoFields(isObserver: true).map(\.name) == ["hits_memory", "hits_disk"])
    }

    @Test func `METRICS is DENIED to clients other than admins and observers`() async throws {
        try await TestDaemon.run {
            $0.metrics = ServerMetrics { Self.metrics }
        } _: { daemon in
            for peer in [TestDaemon.admin, TestDaemon.observer] {
                let client = try await daemon.connect(as: peer)
                #expect(try await client.call("METRICS").text?.hasPrefix("# HELP thumbcached_open_caches") == true)
            }
            let client = try await daemon.connect()
            guard case .error(code: "DENIED", _) = try await client.call("METRICS") else {
                Issue.record("METRICS is not denied")
                return
            }
        }
    }

    @Test func `a request counts once, by the source of its image`() async throws {
        try await TestDaemon.run { daemon in
            let latencies = daemon.latencies
            func counts() -> [String: Int] {
                Dictionary(
                    uniqueKeysWithValues: Latencies.Source.allCases.map { source in
                        let all = (0...Latencies.bounds.count).map { latencies.recorders[0].count(source, $0) }
                        return ("\(source)", all.reduce(0, +))
                    }
                ).filter { $0.value > 0 }
            }
            let client = try await daemon.connectWithAlice()
            try await client.send("GET", "alice", "bob")
            await daemon.fetcher.started(1)
            daemon.finish("bob")
            _ = try await client.reply()
            for _ in 0..<3 { _ = try await client.call("GET", "alice", "bob") }
            _ = try await client.call("GET", "alice", "bob", "META")
            _ = try await client.call("GET", "alice", "eve", "CACHED")
            _ = try await client.call("PING")
            try await eventually { counts() == ["origin": 1, "memory": 4, "none": 1] }
            let text = await ServerMetrics { [latencies.metric] }.text()
            #expect(text.contains("thumbcached_request_duration_seconds_bucket{source=\"memory\",le=\"+Inf\"} 4\n"))
            #expect(text.contains("thumbcached_request_duration_seconds_count{source=\"memory\"} 4\n"))
        }
    }

    @Test func `a duration counts in the bucket of the next bound`() {
        let recorder = LatencyRecorder()
        recorder.record(.disk, .nanoseconds(10_000))
        recorder.record(.disk, .nanoseconds(10_001), count: 2)
        recorder.record(.disk, .seconds(11))
        #expect(recorder.count(.disk, 0) == 1)
        #expect(recorder.count(.disk, 1) == 2)
        #expect(recorder.count(.disk, Latencies.bounds.count) == 1)
        #expect(recorder.sum(.disk) == 10_000 + 2 * 10_001 + 11_000_000_000)
        #expect(recorder.count(.memory, 0) == 0)
    }
}
