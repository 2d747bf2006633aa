import Foundation
import Testing

extension EndToEnd.Monitoring {
    /// METRICS, and the alert rules and dashboard that use it.
    struct MetricsTests {
        /// Counters that only a fault or the passage of time changes. `load` changes all others.
        private static let unchanged: Set = [
            "connections_refused_total", "connections_evicted_total", "invalidations_failed_total",
            "token_refreshes_total",
            "memory_tier_evictions_total", "store_failures_total", "stores_skipped_total", "rejected_entries_total",
            "failed_reads_total", "evicted_images_total", "evicted_bytes_total", "damaged_logins_total",
            "subscribers_dropped_total", "origin_refused_addresses_total", "rendition_failures_total",
        ]

        /// The sum of each metric's samples, by name without the common prefix.
        private func sums(_ text: String) -> [String: Double] {
            text.split(separator: "\n").filter { !$0.hasPrefix("#") }.reduce(into: [:]) { sums, line in
                let name = line.prefix { $0 != "{" && $0 != " " }.dropFirst("thumbcached_".count)
                sums[String(name), default: 0] += Double(line.split(separator: " ").last ?? "") ?? .nan
            }
        }

        private func metrics(_ client: RESPClient) throws -> String {
            try #require(try client.call("METRICS").text)
        }

        @Test func `each counter of METRICS grows, and alerts and dashboard use existing metrics`() throws {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    let fields = ["ETag: \"1\"", "Cache-Control: max-age=0, stale-while-revalidate=600"]
                    if request.path == "/missing" { return [.send(GatedOrigin.response([], status: "404 Not Found"))] }
                    if request.path == "/broken" { return [.send(GatedOrigin.response([], status: "500 Oh"))] }
                    if request.path == "/slow" { return [.silence] }
                    guard request.headers["if-none-match"] == nil else {
                        return [.send(GatedOrigin.response([], status: "304 Not Modified", headers: fields))]
                    }
                    return [.send(GatedOrigin.response(TestImage.gif(request.path), headers: fields))]
                }
                defer { origin.end() }
                try write(TestImage.gif("fallback"), to: machine.path("fallback.gif"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "60s"
                    daemon.settings["origins.default", "fallback"] = .string(machine.path("fallback.gif"))
                }
                let client = try daemon.connect()
                let before = sums(try metrics(client))
                try load(daemon, origin, client)
                var text = ""
                var constant: Set<String> = ["every counter"]
                // Reports the counters after a timeout.
                defer { #expect(constant == []) }
                try eventually("every counter has grown, except those of faults") {
                    text = try metrics(client)
                    let after = sums(text)
                    let counters = after.filter { $0.key.hasSuffix("_total") || $0.key.hasSuffix("_count") }
                    constant = Set(counters.filter { $0.value <= before[$0.key] ?? 0 }.keys).subtracting(Self.unchanged)
                    return constant.isEmpty
                }

                let checked = try machine.run(["promtool", "check", "metrics"], input: Array(text.utf8))
                #expect(checked.status == 0 && checked.text.isEmpty, "\(checked.summary)")

                let config = "\(Files.repository)/config"
                let rules = "\(config)/prometheus/thumbcached.rules.yml"
                try machine.runSuccessfully(["promtool", "check", "rules", rules])
                for file in [rules, "\(config)/grafana/thumbcached.json", "\(Files.repository)/docs/operations.md"] {
                    let names = try String(contentsOfFile: file, encoding: .utf8).matches(of: /thumbcached_([a-z_]+)/)
                    #expect(names.count > 8)
                    // `up` is a metric of thumbcached-http.
                    for name in names.map({ String($0.1) }) where name != "up" {
                        #expect(sums(text)[name] != nil, "\(name) in \(file)")
                    }
                }
            }
        }

        @Test func `metrics of the process have the names of Prometheus's convention`() throws {
            try withMachine { machine in
                let earliest = Double(time(nil))
                let daemon = try machine.daemon()
                let client = try daemon.connect()
                func value(_ name: String) throws -> Double {
                    let text = try metrics(client)
                    let line = try #require(text.split(separator: "\n").first { $0.hasPrefix("\(name) ") })
                    return try #require(Double(line.dropFirst(name.count + 1)))
                }
                let start = try value("process_start_time_seconds")
                #expect((earliest...Double(time(nil))).contains(start))
                #expect(try value("process_resident_memory_bytes") > 1_048_576)
                var clients = try (0..<20).map { _ in try daemon.connect() }
                for client in clients { #expect(try client.call("PING") == .simple("PONG")) }
                let open = try value("process_open_fds")
                #expect(open > 20)
                clients = []
                try eventually("the closed connections are not counted") { try value("process_open_fds") < open - 15 }
                #expect(try value("process_start_time_seconds") == start)
            }
        }

        /// Changes every counter that needs no fault.
        private func load(_ daemon: Daemon, _ origin: GatedOrigin, _ client: RESPClient) throws {
            let subscriber = try daemon.connect()
            _ = try subscriber.call("SUBSCRIBE", "*")
            #expect(try client.call("LOGIN", "alice") == .ok)
            #expect(try client.call("PUT", "alice", "bob", TestImage.gif("bob")) == .ok)
            // A download, a hit, and a stale hit with a revalidation.
            for _ in 0..<3 { _ = try client.call("GET", "alice", "carol") }
            for profile in ["missing", "broken"] { _ = try client.call("GET", "alice", profile) }
            _ = try client.call("GET", "alice", "bob")
            // A rendition.
            let jpeg = try read("\(Files.repository)/Tests/RendererTests/Images/baseline.jpg")
            #expect(try client.call("PUT", "alice", "dave", jpeg) == .ok)
            _ = try client.call("GET", "alice", "dave", "SIZE", "16")
            // A cancelled download.
            let waiting = try daemon.connect()
            try waiting.send("GET", "alice", "slow")
            try eventually("the origin has the request") { origin.requests.contains { $0.path == "/slow" } }
            _ = try client.call("PURGE", "alice", "1", "slow")
            _ = try client.call("LOGOUT", "alice")
        }
    }
}
