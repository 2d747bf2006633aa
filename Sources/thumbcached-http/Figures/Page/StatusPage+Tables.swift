@_spi(Wire) import Thumbcache

extension StatusPage {
    /// The page's name of each source in METRICS.
    private static let sources = [
        "memory": "memory", "disk": "disk", "origin": "origin", "revalidated": "origin, unchanged",
        "put": "concurrent PUT", "fallback": "fallback", "none": "no image", "error": "errors",
    ]
    /// The limit of listed origins; /metrics has all.
    static let mostOrigins = 50

    func latencies(_ span: (first: Sample, last: Sample)?) -> String {
        guard let span else { return "" }
        let rows = span.last.requests.map { source, times in
            let times = times.since(span.first.times(of: source))
            let quantiles = [0.5, 0.95, 0.99].map { "<td>\(PageText.time(times.quantile($0)))</td>" }.joined()
            return """
                <tr\(times.count > 0 ? "" : " class=\"none\"")><th scope="row">\
                \(Self.sources[source] ?? PageText.escaped(source))</th>\
                <td>\(PageText.count(times.count))</td>\(quantiles)</tr>
                """
        }
        let head = ["source", "requests", "p50", "p95", "p99"]
        return table("Request durations in the last ten minutes", head, rows)
    }

    func origins(_ metrics: ThumbcacheMetrics) -> String {
        let all = metrics.samples(of: "thumbcached_origin_requests_total")
        let rows = all.prefix(Self.mostOrigins).map { sample in
            let name = sample.labels["origin"] ?? ""
            func figure(_ metric: String, _ labels: [String: String] = [:]) -> Double? {
                metrics.sum(of: "thumbcached_origin_\(metric)", having: labels.merging(["origin": name]) { $1 })
            }
            func outcomes(_ names: String...) -> Double {
                names.reduce(0) { $0 + (figure("downloads_total", ["outcome": $1]) ?? 0) }
            }
            let retry = figure("retry_seconds") ?? 0
            let failures = outcomes(
                "failed", "timed_out", "bad_image", "too_large", "unauthorized", "denied", "rejected")
            let cells = [
                retry > 0
                    ? "<strong class=\"bad\">open, retry in \(PageText.duration(retry))</strong>" : "closed",
                PageText.count(sample.value), PageText.bytes(figure("received_bytes_total")),
                PageText.count(outcomes("image")), PageText.count(outcomes("missing")),
                PageText.count(figure("responses_total", ["status": "304"])), PageText.count(failures),
                PageText.count(outcomes("busy")),
            ]
            return "<tr><th scope=\"row\">\(PageText.escaped(name))</th>"
                + cells.map { "<td>\($0)</td>" }.joined() + "</tr>"
        }
        guard !rows.isEmpty else { return "" }
        let head = [
            "origin", "circuit breaker", "requests", "received", "images", "missing", "not modified", "failed", "busy",
        ]
        let rest = all.count > Self.mostOrigins ? ", \(Self.mostOrigins) of \(all.count)" : ""
        return table("Origins, since the daemon's start\(rest)", head, rows)
    }

    private func table(_ title: String, _ head: [String], _ rows: [String]) -> String {
        """
        <section class="card wide"><h2>\(title)</h2><div class="scroll"><table>
        <thead><tr>\(head.map { "<th scope=\"col\">\($0)</th>" }.joined())</tr></thead>
        <tbody>
        \(rows.joined(separator: "\n"))
        </tbody></table></div></section>
        """
    }

    private struct Fact {
        let name: String
        let text: String
        var isBad = false
    }

    func facts(_ metrics: ThumbcacheMetrics) -> String {
        func sum(_ name: String, _ labels: [String: String] = [:]) -> Double? {
            metrics.sum(of: "thumbcached_\(name)", having: labels)
        }
        func count(_ name: String, _ metric: String, _ labels: [String: String] = [:]) -> Fact {
            Fact(name: name, text: PageText.count(sum(metric, labels)))
        }
        func bytes(_ name: String, _ metric: String) -> Fact { Fact(name: name, text: PageText.bytes(sum(metric))) }
        func bad(_ name: String, _ metric: String, _ labels: [String: String] = [:]) -> Fact {
            Fact(name: name, text: PageText.count(sum(metric, labels)), isBad: (sum(metric, labels) ?? 0) > 0)
        }
        let isCounted = sum("store_counted") != 0
        return [
            list(
                "Logins and invalidations",
                [
                    bad("pending", "invalidations_pending"), bad("failed attempts", "invalidations_failed_total"),
                    count("logins", "logins_total"), count("logouts", "logouts_total"),
                    count("purges", "purges_total"), count("open caches", "open_caches"),
                ]),
            list(
                "Downloads",
                [
                    count("in flight", "downloads_in_flight"), count("queued", "downloads_queued"),
                    bad("open breakers of hosts", "breakers_open", ["scope": "host"]),
                    bad("open breakers of accounts", "breakers_open", ["scope": "account"]),
                    count("not modified", "not_modified_total"), count("stale served", "stale_served_total"),
                    count("tokens refreshed", "token_refreshes_total", ["outcome": "succeeded"]),
                    bad("refreshes failed", "token_refreshes_total", ["outcome": "failed"]),
                ]),
            list(
                "Store",
                [
                    count(isCounted ? "images" : "images counted so far", "stored_images"),
                    bytes("on disk", "stored_bytes"), bytes("trash", "trash_bytes"),
                    count("evicted", "evicted_images_total"), count("in the write queue", "unwritten_images"),
                    bad("failed writes", "store_failures_total"), bad("skipped writes", "stores_skipped_total"),
                    bad("damaged entries", "rejected_entries_total"),
                ]),
            list(
                "Memory",
                [
                    count("images", "memory_tier_images"), bytes("used", "memory_tier_bytes"),
                    bytes("capacity", "memory_tier_capacity_bytes"), count("evicted", "memory_tier_evictions_total"),
                    bytes("for clients", "held_bytes"), bytes("resident", "resident_memory_bytes"),
                ]),
            list(
                "Connections",
                [
                    count("open", "connections"), count("accepted", "connections_accepted_total"),
                    bad("refused", "connections_refused_total"), bad("evicted", "connections_evicted_total"),
                    count("events sent", "events_total"), bad("subscribers dropped", "subscribers_dropped_total"),
                ]),
        ].joined()
    }

    private func list(_ title: String, _ facts: [Fact]) -> String {
        let rows = facts.map { fact in
            let text = fact.isBad ? "<strong class=\"bad\">\(fact.text)</strong>" : fact.text
            return "<div><dt>\(fact.name)</dt><dd>\(text)</dd></div>"
        }
        return "<section class=\"card\"><h2>\(title)</h2><dl>\(rows.joined())</dl></section>"
    }
}
