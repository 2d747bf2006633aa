import Foundation
import Testing

extension EndToEnd.Monitoring {
    /// Tests of the alerts in config/prometheus. promtool evaluates them with constructed time series.
    struct AlertTests {
        /// Metrics with labels, and their values in the notation of promtool, one for each 15 s.
        typealias Series = [String: String]

        private static let rejected = "thumbcached_rejected_entries_total"
        private static let hits = "thumbcached_request_duration_seconds_bucket{source=\"memory\""
        private static let downloads = "thumbcached_origin_downloads_total{origin=\"contacts\""

        private static let normal: Series = [
            "up{job=\"thumbcached\"}": "1x100", "thumbcached_up": "1x100", "thumbcached_invalidations_pending": "0x100",
            rejected: "7x100", "thumbcached_store_failures_total": "7x100", "thumbcached_stores_skipped_total": "7x100",
            "thumbcached_breakers_open{scope=\"host\"}": "0x100",
            "thumbcached_breakers_open{scope=\"account\"}": "3x100",
            "\(downloads),outcome=\"image\"}": "0+80x100", "\(downloads),outcome=\"failed\"}": "0+5x100",
            "\(downloads),outcome=\"timed_out\"}": "0+5x100", "\(downloads),outcome=\"missing\"}": "0+10x100",
            "thumbcached_origin_refused_addresses_total{origin=\"contacts\"}": "7x100",
            "thumbcached_connections_refused_total": "7x100",
            "\(hits),le=\"0.001\"}": "0+99x100", "\(hits),le=\"0.01\"}": "0+100x100",
            "\(hits),le=\"0.1\"}": "0+100x100",
            "\(hits),le=\"+Inf\"}": "0+100x100",
            // A slow origin must not fire ThumbcachedSlowHits.
            "thumbcached_request_duration_seconds_bucket{source=\"origin\",le=\"+Inf\"}": "0+100x100",
        ]

        private static let failures: [(alert: String, series: Series)] = [
            ("ThumbcachedDown", ["thumbcached_up": "0x100"]),
            ("ThumbcachedDown", ["up{job=\"thumbcached\"}": "0x100", "thumbcached_up": "_x100"]),
            ("ThumbcachedInvalidationsPending", ["thumbcached_invalidations_pending": "1x100"]),
            ("ThumbcachedEntriesRejected", [rejected: "7x70 8x30"]),
            ("ThumbcachedStoreFails", ["thumbcached_store_failures_total": "0+1x100"]),
            ("ThumbcachedWritesFallBehind", ["thumbcached_stores_skipped_total": "7x70 8x30"]),
            ("ThumbcachedOriginDown", ["thumbcached_breakers_open{scope=\"host\"}": "1x100"]),
            ("ThumbcachedOriginFails", ["\(downloads),outcome=\"timed_out\"}": "0+30x100"]),
            (
                "ThumbcachedAddressesRefused",
                ["thumbcached_origin_refused_addresses_total{origin=\"contacts\"}": "7x70 8x30"]
            ),
            ("ThumbcachedConnectionsRefused", ["thumbcached_connections_refused_total": "0+1x100"]),
            ("ThumbcachedSlowHits", ["\(hits),le=\"0.01\"}": "0+90x100", "\(hits),le=\"0.001\"}": "0+90x100"]),
        ]

        /// A test for promtool: the alerts that fire after 20 minutes.
        private func test(_ series: Series, firing: [String]) -> [String: Any] {
            [
                "interval": "15s",
                "input_series": series.map { ["series": $0.key, "values": $0.value] },
                "promql_expr_test": [
                    [
                        "expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})", "eval_time": "20m",
                        "exp_samples": firing.map { ["labels": "{alertname=\"\($0)\"}", "value": 1] as [String: Any] },
                    ] as [String: Any]
                ],
            ]
        }

        private func run(_ machine: Machine, _ tests: [[String: Any]]) throws -> Finished {
            let file = machine.path("rules.test.json")
            let rules = "\(Prometheus.folder)/thumbcached.rules.yml"
            // JSON without escaped slashes is valid YAML.
            let document: [String: Any] = ["rule_files": [rules], "evaluation_interval": "15s", "tests": tests]
            try write(
                [UInt8](try JSONSerialization.data(withJSONObject: document, options: .withoutEscapingSlashes)),
                to: file)
            return try machine.run(["promtool", "test", "rules", file])
        }

        @Test func `each alert fires for its failure only`() throws {
            try withMachine { machine in
                let rules = try readText("\(Prometheus.folder)/thumbcached.rules.yml")
                let names = Set(rules.matches(of: /alert: ([A-Za-z]+)/).map { String($0.1) })
                #expect(names == Set(Self.failures.map(\.alert)), "each alert needs a failure here")

                let normal = test(Self.normal, firing: [])
                let failures = Self.failures.map { failure in
                    test(Self.normal.merging(failure.series) { $1 }, firing: [failure.alert])
                }
                let checked = try run(machine, [normal] + failures)
                #expect(checked.status == 0, "\(checked.summary)")
                // Proves that promtool detects a difference.
                #expect(try run(machine, [test(Self.normal, firing: ["ThumbcachedDown"])]).status != 0)
            }
        }
    }
}
