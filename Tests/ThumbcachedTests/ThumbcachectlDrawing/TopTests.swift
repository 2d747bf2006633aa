import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcachectl

/// The screen of `top`.
@Suite struct TopTests {
    /// Statistics of a daemon, multiplied by `factor`.
    private func figures(_ time: Double, _ factor: Double, more: String = "") throws -> TopFigures {
        let buckets = ["memory", "disk", "origin", "none"].flatMap { source in
            [("0.001", 50.0), ("0.01", 95), ("0.1", 99), ("+Inf", 100)].map { bound, count in
                let name = "thumbcached_request_duration_seconds_bucket"
                return "\(name){source=\"\(source)\",le=\"\(bound)\"} \(source == "none" ? 0 : count * factor)"
            }
        }
        let text = """
            thumbcached_build_info{version="1.2.3\u{1b}[2J"} 1
            thumbcached_uptime_seconds 3661
            thumbcached_connections 3
            thumbcached_open_caches 2
            thumbcached_invalidations_pending 0
            thumbcached_resident_memory_bytes 34197504
            thumbcached_memory_tier_bytes 13824
            thumbcached_memory_tier_capacity_bytes 67108864
            thumbcached_held_bytes 500
            thumbcached_downloads_total \(10 * factor)
            thumbcached_download_failures_total 0
            thumbcached_breakers_open{scope="host"} 0
            thumbcached_breakers_open{scope="account"} 0
            thumbcached_stored_images 12345
            thumbcached_stored_bytes 1073741824
            thumbcached_logouts_total \(factor)
            \(buckets.joined(separator: "\n"))
            \(more)
            """
        return TopFigures(try ThumbcacheMetrics(text), time: time)
    }

    /// A row of the request table.
    private func row(_ name: String, _ cells: String...) -> String {
        "  " + name + String(repeating: " ", count: 10 - name.count)
            + cells.map { String(repeating: " ", count: 11 - $0.count) + $0 }.joined()
    }

    private func screen(_ columns: Int, _ rows: Int, more: String = "", trouble: String? = nil) throws -> [String] {
        let screen = TopScreen(
            now: try figures(12, 3, more: more), before: try figures(10, 1), clock: "2026-11-23 12:00:00",
            trouble: trouble)
        return screen.lines(Terminal.Size(columns: columns, rows: rows)).map(\.text)
    }

    @Test func `a standard screen shows all rows`() throws {
        #expect(
            try screen(80, 24) == [
                "thumbcached 1.2.3\\x1b[2J   up 1 h 1 min" + String(repeating: " ", count: 22) + "2026-11-23 12:00:00",
                "",
                row("", "per second", "total", "p50", "p95", "p99", "p99.9").replacing(/^ {8}/, with: "requests"),
                row("memory", "100", "300", "≤ 1 ms", "≤ 10 ms", "≤ 100 ms", "> 10 s"),
                row("disk", "100", "300", "≤ 1 ms", "≤ 10 ms", "≤ 100 ms", "> 10 s"),
                row("origin", "100", "300", "≤ 1 ms", "≤ 10 ms", "≤ 100 ms", "> 10 s"),
                row("none", "0", "0", "-", "-", "-", "-"),
                "",
                "hits        66.7 % now   66.7 % total   -/s stale",
                "downloads   - in flight   - queued   10/s started   0/s failed   - unwritten",
                "memory      33 MiB resident   tier 14 KiB of 64 MiB   500 B buffered for clients",
                "disk        12k images   1 GiB   -/s evicted",
                "clients     3 connected   -/s accepted   -/s refused",
                "caches      2 open   0 invalidations pending   1/s logouts",
                "breakers    0 hosts open   0 accounts open",
            ])
    }

    @Test func `a larger terminal also shows origins and unused sources`() throws {
        let more = """
            thumbcached_origin_requests_total{origin="a"} 10
            thumbcached_origin_received_bytes_total{origin="a"} 4096
            """
        #expect(try screen(80, 40, more: more).last == "origin      a   -/s requests   -/s received")
        #expect(try !screen(80, 14, more: more).contains { $0.hasPrefix("origin") || $0.hasPrefix("  none") })
    }

    @Test func `the columns of the table do not depend on the names of the sources`() throws {
        let more = "thumbcached_request_duration_seconds_bucket{source=\"revalidated\",le=\"+Inf\"} 0"
        let rows = try screen(80, 40, more: more).filter { $0.hasPrefix("  ") }
        #expect(rows.contains { $0.hasPrefix("  revalidated  ") })
        #expect(rows.allSatisfy { $0.count == row("none", "", "", "", "", "", "").count }, "\(rows)")
    }

    @Test(arguments: [(200, 60), (80, 24), (80, 10), (40, 12), (20, 5), (7, 2), (1, 1)])
    func `the screen fits every size and begins with the header`(_ columns: Int, _ rows: Int) throws {
        let trouble = "the daemon did not respond"
        for lines in [try screen(columns, rows), try screen(columns, rows, trouble: trouble)] {
            #expect(!lines.isEmpty && lines.count <= rows)
            #expect(lines.allSatisfy { $0.count <= columns && $0.last != " " })
            #expect("thumbcached 1.2.3".hasPrefix(lines[0].prefix(17)))
        }
        if rows > 1 { #expect(try screen(columns, rows, trouble: trouble)[1] == trouble.prefix(columns)) }
    }

    @Test func `alarms are red and stay on small screens`() throws {
        let more = """
            thumbcached_origin_retry_seconds{origin="default"} 0
            thumbcached_origin_retry_seconds{origin="broken\u{1b}"} 75
            """
        let screen = TopScreen(
            now: try figures(12, 3, more: more), before: try figures(10, 1), clock: "2026-11-23 12:00:00")
        let lines = screen.lines(.standard)
        #expect(lines.last == .init(text: "origin      broken\\x1b failed; next attempt in 1 min 15 s", style: .red))
        #expect(lines.filter { $0.style == .red }.count == 1)
        var pending = try figures(12, 3)
        pending.values["invalidations_pending"] = 1
        pending.values["breakers_open/host"] = 2
        let small = TopScreen(now: pending, before: nil, clock: "").lines(Terminal.Size(columns: 80, rows: 6))
        #expect(small.filter { $0.style == .red }.map { $0.text.prefix(8) } == ["caches  ", "breakers"])
    }

    @Test func `after a restart, rates are unknown`() throws {
        let screen = TopScreen(now: try figures(12, 1), before: try figures(10, 3), clock: "")
        let lines = screen.lines(.standard).map(\.text)
        #expect(lines[3] == row("memory", "-", "100", "-", "-", "-", "-"))
        #expect(lines[8].hasPrefix("hits        - now   66.7 % total"))
    }

    @Test func `F22: numbers that are infinite, too large or not a number are shown as unknown`() throws {
        let bucket = "thumbcached_request_duration_seconds_bucket"
        let text = """
            thumbcached_uptime_seconds +Inf
            thumbcached_origin_retry_seconds{origin="o"} 1e19
            \(bucket){source="memory",le="+Inf"} +Inf
            \(bucket){source="origin",le="+Inf"} 1
            """
        let figures = TopFigures(try ThumbcacheMetrics(text), time: 1)
        let lines = TopScreen(now: figures, before: nil, clock: "").lines(.standard).map(\.text)
        #expect(lines.first?.hasPrefix("thumbcached    up - ") == true)
        #expect(lines.contains("hits        - now   - total   -/s stale"))
        #expect(lines.last == "origin      o failed; next attempt in -")
        let info = TopFigures(info: "uptime_in_seconds:nan\r\norigin_o:retry_in_ms=inf\r\n", time: 1)
        let ownLines = TopScreen(now: info, before: nil, clock: "").lines(.standard).map(\.text)
        #expect(ownLines.first?.hasPrefix("thumbcached    up - ") == true)
        #expect(ownLines.last == "origin      o failed; next attempt in -")
    }

    @Test func `a user without admin rights sees own statistics`() {
        func figures(_ time: Double, _ hits: Int) -> TopFigures {
            TopFigures(
                info:
                    "# Server\r\nthumbcached_version:1.2.3\r\nuptime_in_seconds:60\r\n# Cache\r\nhits_memory:\(hits)\r\n"
                    + "# Store\r\nstored_images:7\r\nstored_bytes:2048\r\norigin_a:retry_in_ms=1500\r\norigin_b:retry_in_ms=0\r\n",
                time: time)
        }
        let lines = TopScreen(now: figures(3, 30), before: figures(1, 10), clock: "").lines(.standard).map(\.text)
        #expect(lines.contains("hits        10/s in memory"))
        #expect(lines.contains("disk        7 images   2 KiB"))
        #expect(lines.last == "origin      a failed; next attempt in 2 s")
        #expect(!lines.contains { $0.contains("requests") })
    }

    @Test(arguments: [
        (0, "0"), (9.94, "9.9"), (1.01, "1"), (9_999, "9999"), (12_345, "12k"), (9_999_999, "10000k"),
        (10_000_000, "10M"), (-1, "-"), (Double.nan, "-"), (.infinity, "-"), (1e300, "-"),
    ])
    func `a count is short`(_ value: Double, _ text: String) { #expect(TopScreen.count(value) == text) }

    @Test(arguments: [
        (0, "0 us"), (0.000_25, "250 us"), (0.002_5, "2.5 ms"), (0.01, "10 ms"), (2.5, "2.5 s"), (.infinity, "> 10 s"),
        (Double.nan, "-"), (-1, "-"),
    ])
    func `a time has its unit`(_ value: Double, _ text: String) { #expect(TopScreen.seconds(value) == text) }

    @Test(arguments: [
        (0, "0 B"), (999, "999 B"), (1_000, "1.0 KiB"), (1_536, "1.5 KiB"), (1e18, "-"), (Double.nan, "-"),
        (34_197_504, "33 MiB"),
    ])
    func `a size has its unit`(_ value: Double, _ text: String) { #expect(TopScreen.bytes(value) == text) }

    @Test func `JSON contains every value by name`() throws {
        let json = try figures(12, 3).json(since: try figures(10, 1))
        #expect(json.contains("\"hit-rate\":0.6666666666666666"))
        let memory = "{\"total\":300,\"per-second\":100,\"p50\":0.001,\"p95\":0.01,\"p99\":0.1}"
        #expect(json.contains("\"requests\":{\"memory\":\(memory)"))
        #expect(json.contains("\"downloads_total\":10") && json.contains("\"breakers_open/host\":0"))
        #expect(json.contains("\"version\":\"1.2.3\\u001b[2J\""))
    }
}
