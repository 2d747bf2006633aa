import Foundation
import Testing

extension EndToEnd {
    /// Each alert in config/prometheus fires for what it is about, and none does without trouble: promtool evaluates
    /// them over made-up figures.
    struct AlertTests {
        /// A metric with its labels, and its values in the notation of promtool, one every 15 s.
        typealias Series = [String: String]

        private static let rejected = "thumbcached_rejected_entries_total"
        private static let hits = "thumbcached_request_duration_seconds_bucket{source=\"memory\""
        private static let downloads = "thumbcached_origin_downloads_total{origin=\"contacts\""

        private static let calm: Series = [
            "up{job=\"thumbcached\"}": "1x100", "thumbcached_up": "1x100", "thumbcached_endings_owed": "0x100",
            rejected: "7x100", "thumbcached_store_failures_total": "7x100", "thumbcached_stores_skipped_total": "7x100",
            "thumbcached_breakers_open{scope=\"host\"}": "0x100", "thumbcached_breakers_open{scope=\"uid\"}": "3x100",
            "\(downloads),outcome=\"image\"}": "0+80x100", "\(downloads),outcome=\"failed\"}": "0+5x100",
            "\(downloads),outcome=\"timed_out\"}": "0+5x100", "\(downloads),outcome=\"missing\"}": "0+10x100",
            "thumbcached_origin_refused_addresses_total{origin=\"contacts\"}": "7x100",
            "thumbcached_connections_refused_total": "7x100",
            "\(hits),le=\"0.001\"}": "0+99x100", "\(hits),le=\"0.01\"}": "0+100x100",
            "\(hits),le=\"0.1\"}": "0+100x100",
            "\(hits),le=\"+Inf\"}": "0+100x100",
            // However slow an origin is, it is not the machine.
            "thumbcached_request_duration_seconds_bucket{source=\"origin\",le=\"+Inf\"}": "0+100x100",
        ]

        private static let troubles: [(alert: String, series: Series)] = [
            ("ThumbcachedDown", ["thumbcached_up": "0x100"]),
            ("ThumbcachedDown", ["up{job=\"thumbcached\"}": "0x100", "thumbcached_up": "_x100"]),
            ("ThumbcachedEndingsOwed", ["thumbcached_endings_owed": "1x100"]),
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

        /// What promtool is to find firing after 20 minutes, of these figures.
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
            // JSON is YAML, but for its escaped slashes.
            let document: [String: Any] = ["rule_files": [rules], "evaluation_interval": "15s", "tests": tests]
            try write(
                [UInt8](try JSONSerialization.data(withJSONObject: document, options: .withoutEscapingSlashes)),
                to: file)
            return try machine.run(["promtool", "test", "rules", file])
        }

        @Test func `every alert fires for its trouble alone, and none without`() throws {
            try withMachine { machine in
                let rules = String(decoding: try read("\(Prometheus.folder)/thumbcached.rules.yml"), as: UTF8.self)
                let names = Set(rules.matches(of: /alert: ([A-Za-z]+)/).map { String($0.1) })
                #expect(names == Set(Self.troubles.map(\.alert)), "each alert has a trouble here")

                let calm = test(Self.calm, firing: [])
                let troubles = Self.troubles.map { trouble in
                    test(Self.calm.merging(trouble.series) { $1 }, firing: [trouble.alert])
                }
                let checked = try run(machine, [calm] + troubles)
                #expect(checked.status == 0, "\(checked.everything)")
                // And promtool does look.
                #expect(try run(machine, [test(Self.calm, firing: ["ThumbcachedDown"])]).status != 0)
            }
        }
    }
}
