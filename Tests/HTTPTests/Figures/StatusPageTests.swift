import NIOCore
import Testing

@testable import thumbcached_http

/// The status page: its content, and escaping of the daemon's text.
@Suite struct StatusPageTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private func page(_ texts: [String?]) -> String {
        var history = History()
        var latest: Scrape?
        for (index, text) in texts.enumerated() {
            let moment = Self.start + .seconds(Int64(index) * 5)
            latest =
                text.map { Scrape(moment: moment, text: $0) }
                ?? Scrape(moment: moment, outcome: .failure(.init(reason: "The daemon sleeps.")))
            history.append(latest?.figures.map { Sample($0.metrics, at: moment) })
        }
        let now = Self.start + .seconds(Int64(texts.count) * 5 - 3)
        return StatusPage(latest: latest, history: history, now: now).html(nonce: "0")
    }

    static func metrics(
        uptime: Int = 90_061, memory: Int = 0, disk: Int = 0, origin: Int = 0, downloads: Int = 0, more: String = ""
    ) -> String {
        func requests(_ source: String, _ count: Int) -> String {
            """
            thumbcached_request_duration_seconds_bucket{source="\(source)",le="0.001"} \(count / 2)
            thumbcached_request_duration_seconds_bucket{source="\(source)",le="0.002"} \(count)
            thumbcached_request_duration_seconds_bucket{source="\(source)",le="+Inf"} \(count)
            thumbcached_request_duration_seconds_count{source="\(source)"} \(count)

            """
        }
        return "thumbcached_uptime_seconds \(uptime)\nthumbcached_downloads_total \(downloads)\n"
            + requests("memory", memory) + requests("disk", disk) + requests("origin", origin) + more
    }

    @Test func `the page shows the last ten minutes and current values`() {
        let more = """
            thumbcached_build_info{version="9.8.7"} 1
            thumbcached_stored_images 1234567
            thumbcached_stored_bytes 1536
            thumbcached_origin_requests_total{origin="contacts"} 42
            thumbcached_origin_retry_seconds{origin="contacts"} 61

            """
        let html = page([
            Self.metrics(uptime: 90_051, memory: 1_000, origin: 1_000),
            Self.metrics(uptime: 90_056, memory: 1_006, disk: 2, origin: 1_001, downloads: 1),
            Self.metrics(memory: 1_012, disk: 3, origin: 1_005, downloads: 5, more: more),
        ])
        #expect(html.contains("<span class=\"pill good\">up</span>"))
        #expect(html.contains("version 9.8.7 · up for 1 d 1 h · scraped 2 s ago"))
        // 15 of 20; 12 requests in the last 5 s.
        #expect(html.contains("<p class=\"figure\">75.0 %</p>"))
        #expect(html.contains("<span>top: 100 %</span>") && html.contains("<span>top: 2.20 /s</span>"))
        #expect(html.contains("<p class=\"figure\">2.20<small> /s</small></p><p class=\"remark\">20 in ten minutes"))
        #expect(html.contains("<th scope=\"row\">memory</th><td>12</td><td>1.00 ms</td><td>1.90 ms</td>"))
        #expect(
            html.contains("<th scope=\"row\">contacts</th><td><strong class=\"bad\">open, retry in 1 min 1 s"))
        #expect(html.contains("<dt>images</dt><dd>1,234,567</dd>"))
        #expect(html.contains("<dt>on disk</dt><dd>1.50 KiB</dd>"))
    }

    @Test func `without the daemon the page shows the reason and earlier plots`() {
        let html = page([Self.metrics(memory: 1), Self.metrics(uptime: 90_066, memory: 3), nil])
        #expect(html.contains("<span class=\"pill bad\">down</span>"))
        #expect(html.contains("<p class=\"notice\">The daemon sleeps.</p>"))
        #expect(html.contains("<p class=\"figure\">100 %</p>"))
        #expect(!html.contains("Logins and invalidations"))
        #expect(page([]).contains("not scraped yet"))
    }

    @Test func `pending logouts are the first notice`() {
        let pending = page([Self.metrics(more: "thumbcached_invalidations_pending 2\n")])
        #expect(pending.contains("<p class=\"notice\">Logouts or purges that could not be made durable: 2."))
        #expect(pending.contains("<dt>pending</dt><dd><strong class=\"bad\">2</strong></dd>"))
        #expect(!page([Self.metrics(more: "thumbcached_invalidations_pending 0\n")]).contains("class=\"notice\""))
    }

    private static let hostile = [
        "<script>alert(1)</script>", "\\\"><img src=x onerror=alert(1)>", "'><svg onload=alert(1)>", "&lt;script&gt;",
        "</style><script>", "</title><script>", "{{7*7}}", "-->", "]]>", "\u{202e}gnp.exe", "a\\nb\u{0}\u{7}\u{1b}[31m",
        String(repeating: "<", count: 5_000),
    ]

    @Test(arguments: hostile)
    func `text of the daemon is escaped`(word: String) {
        let quoted = word.replacing("\"", with: "\\\"").replacing("\\\\\"", with: "\\\"")
        let metrics = Self.metrics(
            more: """
                thumbcached_build_info{version="\(quoted)"} 1
                thumbcached_request_duration_seconds_bucket{source="\(quoted)",le="+Inf"} 1
                thumbcached_request_duration_seconds_count{source="\(quoted)"} 1
                thumbcached_origin_requests_total{origin="\(quoted)"} 1

                """)
        let plain = page([Self.metrics(), Self.metrics(uptime: 90_066)])
        let html = page([metrics, metrics])
        #expect(html.contains("<th scope=\"row\">"))
        #expect(html.contains("Origins, since"))
        let silent = StatusPage(
            latest: Scrape(moment: Self.start, outcome: .failure(.init(reason: word))), history: History(),
            now: Self.start
        ).html(nonce: "0")
        for text in [html, silent] {
            // All tags and attributes are those of the page.
            #expect(Self.tags(text).isSubset(of: Self.tags(plain).union(Self.ownTags)), "\(Self.tags(text))")
            #expect(!text.unicodeScalars.contains { $0 == "\u{202e}" || $0.value == 0x1b || $0.value == 0 })
            #expect(text.utf8.count < 40_000)
        }
    }

    private static let ownTags: Set = [
        "<table>", "<thead>", "<tbody>", "<tr>", "<td>", "<th scope=\"col\">", "<th scope=\"row\">", "</table>",
        "</thead>", "</tbody>", "</tr>", "</td>", "</th>", "<p class=\"notice\">", "<span class=\"pill bad\">",
        "<tr class=\"none\">", "<section class=\"card wide\">", "<div class=\"scroll\">",
    ]

    /// All tags except paths of plots, which consist of numbers.
    private static func tags(_ html: String) -> Set<String> {
        let style = html.firstRange(of: "<style")!.lowerBound..<html.firstRange(of: "</style>")!.lowerBound
        var text = html
        text.removeSubrange(style)
        return Set(text.matches(of: /<[^>]*>?/).map { String($0.0) }.filter { !$0.hasPrefix("<path class=") })
    }

    @Test(arguments: ["NaN", "+Inf", "-Inf", "1e308", "-1e308", "-1", "9223372036854775807", "1e-320", "0"])
    func `unusual values do not break the page`(value: String) {
        let names = Self.metrics(memory: 1, more: Self.allNames).split(separator: "\n").map {
            $0.prefix { $0 != " " }
        }
        let unusual = names.map { "\($0) \(value)\n" }.joined()
        for texts in [
            [unusual], [unusual, unusual], [Self.metrics(memory: 1), unusual], [unusual, Self.metrics(memory: 1)],
        ] {
            let html = page(texts)
            #expect(!html.contains("nan") && !html.contains("inf") && !html.contains("e+"))
            #expect(html.contains("</html>"))
        }
    }

    private static let allNames = [
        "invalidations_pending", "breakers_open{scope=\"host\"}", "memory_tier_bytes", "memory_tier_capacity_bytes",
        "stored_bytes", "stored_images", "trash_bytes", "held_bytes", "resident_memory_bytes", "connections",
        "download_failures_total", "origin_requests_total{origin=\"a\"}", "origin_retry_seconds{origin=\"a\"}",
        "origin_received_bytes_total{origin=\"a\"}",
    ].map { "thumbcached_\($0) 1\n" }.joined()

    @Test func `rates are not negative after a restart of the daemon`() {
        let html = page([
            Self.metrics(memory: 1_000, downloads: 50), Self.metrics(uptime: 2, memory: 4, downloads: 1),
            Self.metrics(uptime: 7, memory: 14, downloads: 1),
        ])
        #expect(html.contains("<p class=\"figure\">2.00<small> /s</small></p><p class=\"remark\">10 in ten minutes"))
        #expect(html.contains("0 of 0 failed in ten minutes"))
    }

    @Test func `origins, sources and buckets over the limits are not shown`() {
        let many = (0..<1_000).map {
            """
            thumbcached_origin_requests_total{origin="o\($0)"} 1
            thumbcached_request_duration_seconds_count{source="s\($0)"} 1
            thumbcached_request_duration_seconds_bucket{source="memory",le="1\($0)"} 1

            """
        }.joined()
        let html = page([Self.metrics(memory: 5, more: many)])
        #expect(html.contains("Origins, since the daemon's start, 50 of 1000"))
        #expect(html.contains(">o49<") && !html.contains(">o50<"))
        #expect(html.contains(">s12<") && !html.contains(">s13<"))
        #expect(html.utf8.count < 60_000)
    }

    @Test func `the history is bounded`() {
        var history = History()
        for index in 0..<1_000 {
            let moment = Self.start + .seconds(Int64(index))
            history.append(Scrape(moment: moment, text: Self.metrics()).figures.map { Sample($0.metrics, at: moment) })
        }
        #expect(history.samples.count == History.capacity)
        #expect(history.samples.first??.moment == Self.start + .seconds(879))
    }
}
