import Foundation
import Testing

extension EndToEnd {
    /// METRICS, and what is made of it: the alerts and the dashboard in `config`.
    struct MetricsTests {
        /// What only trouble moves, or time; of the others each moves below.
        private static let still: Set = [
            "connections_refused_total", "connections_evicted_total", "endings_failed_total", "token_refreshes_total",
            "memory_tier_evictions_total", "store_failures_total", "stores_skipped_total", "rejected_entries_total",
            "failed_reads_total", "evicted_images_total", "evicted_bytes_total", "damaged_logins_total",
            "subscribers_dropped_total", "origin_refused_addresses_total", "rendition_failures_total",
        ]

        /// The sum of each metric's samples, without the name that all begin with.
        private func sums(_ text: String) -> [String: Double] {
            text.split(separator: "\n").filter { !$0.hasPrefix("#") }.reduce(into: [:]) { sums, line in
                let name = line.prefix { $0 != "{" && $0 != " " }.dropFirst("thumbcached_".count)
                sums[String(name), default: 0] += Double(line.split(separator: " ").last ?? "") ?? .nan
            }
        }

        private func metrics(_ client: RESPClient) throws -> String {
            try #require(try client.call("METRICS").text)
        }

        @Test
        func `promtool accepts METRICS, each counter moves, and alerts and dashboard name what there is`()
            throws
        {
            try withMachine { machine in
                let origin = try GatedOrigin { request in
                    let fields = ["ETag: \"1\"", "Cache-Control: max-age=0, stale-while-revalidate=600"]
                    if request.path == "/nobody" { return [.send(GatedOrigin.response([], status: "404 Not Found"))] }
                    if request.path == "/broken" { return [.send(GatedOrigin.response([], status: "500 Oh"))] }
                    if request.path == "/slow" { return [.silence] }
                    guard request.headers["if-none-match"] == nil else {
                        return [.send(GatedOrigin.response([], status: "304 Not Modified", headers: fields))]
                    }
                    return [.send(GatedOrigin.response(Picture.gif(request.path), headers: fields))]
                }
                defer { origin.end() }
                try write(Picture.gif("nobody"), to: machine.path("nobody.gif"))
                let daemon = try machine.daemon { daemon in
                    daemon.settings.setOrigin("\(origin.url)/{profile}")
                    daemon.settings["origins.default", "timeout"] = "60s"
                    daemon.settings["origins.default", "fallback"] = .string(machine.path("nobody.gif"))
                }
                let client = try daemon.connect()
                let before = sums(try metrics(client))
                try load(daemon, origin, client)
                var text = ""
                var unmoved: Set<String> = ["every counter"]
                // Names those that a time-out is about.
                defer { #expect(unmoved == []) }
                try eventually("every counter but those of trouble has moved") {
                    text = try metrics(client)
                    let after = sums(text)
                    let counters = after.filter { $0.key.hasSuffix("_total") || $0.key.hasSuffix("_count") }
                    unmoved = Set(counters.filter { $0.value <= before[$0.key] ?? 0 }.keys).subtracting(Self.still)
                    return unmoved.isEmpty
                }

                let checked = try machine.run(["promtool", "check", "metrics"], input: Array(text.utf8))
                #expect(checked.status == 0 && checked.text.isEmpty, "\(checked.everything)")

                let config = "\(Files.repository)/config"
                let rules = "\(config)/prometheus/thumbcached.rules.yml"
                let checkedRules = try machine.run(["promtool", "check", "rules", rules])
                #expect(checkedRules.status == 0, "\(checkedRules.everything)")
                for file in [rules, "\(config)/grafana/thumbcached.json"] {
                    let names = try String(contentsOfFile: file, encoding: .utf8).matches(of: /thumbcached_([a-z_]+)/)
                    #expect(names.count > 8)
                    // The exporter's own.
                    for name in names.map({ String($0.1) }) where name != "up" {
                        #expect(sums(text)[name] != nil, "\(name) in \(file)")
                    }
                }
            }
        }

        /// A bit of everything that the demo does.
        private func load(_ daemon: Daemon, _ origin: GatedOrigin, _ client: RESPClient) throws {
            let subscriber = try daemon.connect()
            _ = try subscriber.call("SUBSCRIBE", "*")
            #expect(try client.call("LOGIN", "alice") == .ok)
            #expect(try client.call("PUT", "alice", "bob", Picture.gif("bob")) == .ok)
            // From the origin, from memory, and stale with a question behind it.
            for _ in 0..<3 { _ = try client.call("GET", "alice", "carol") }
            for profile in ["nobody", "broken"] { _ = try client.call("GET", "alice", profile) }
            _ = try client.call("GET", "alice", "bob")
            // Made in another size.
            let whole = try read("\(Files.repository)/Tests/RendererTests/Pictures/baseline.jpg")
            #expect(try client.call("PUT", "alice", "dave", whole) == .ok)
            _ = try client.call("GET", "alice", "dave", "SIZE", "16")
            // Cancelled by the purge.
            let waiting = try daemon.connect()
            try waiting.send("GET", "alice", "slow")
            try eventually("the origin is asked") { origin.requests.contains { $0.path == "/slow" } }
            _ = try client.call("PURGE", "alice", "1", "slow")
            _ = try client.call("LOGOUT", "alice")
        }
    }
}
