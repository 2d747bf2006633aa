import NIOCore
import Testing
@_spi(Wire) import Thumbcache

@testable import thumbcached_http

/// Formatting of numbers for the page.
@Suite struct PageTextTests {
    @Test func `numbers are short, and invalid ones are a dash`() {
        #expect(
            [0, 999, 1_000, 1_234_567, -1_234, 0.4, 2.5].map { PageText.count($0) }
                == ["0", "999", "1,000", "1,234,567", "-1,234", "0", "3"])
        #expect([Double.nan, .infinity, -.infinity, 1e300].map { PageText.count($0) } == ["–", "–", "–", "–"])
        #expect(
            [0, 0.004, 0.05, 1.239, 9.994, 9.996, 99.96, 1234].map { PageText.short($0) }
                == ["0.00", "0.00", "0.05", "1.24", "9.99", "10.0", "100", "1234"])
        #expect(PageText.decimal(-0.001, digits: 2) == "0.00" && PageText.decimal(-1.5, digits: 1) == "-1.5")
        #expect(
            [nil, 0, 0.5, 0.9999999, 1, .nan].map { PageText.share($0) }
                == ["–", "0.0 %", "50.0 %", "99.9 %", "100 %", "–"])
        #expect(
            [nil, 0, 1023, 1024, 1_572_864, 5e12, -1, .nan].map { PageText.bytes($0) }
                == ["–", "0 B", "1,023 B", "1.00 KiB", "1.50 MiB", "4.55 TiB", "–", "–"])
        #expect(
            [nil, 0, 0.0000123, 0.0009999, 0.00456, 0.9999, 1.2, 60, .infinity].map { PageText.time($0) }
                == ["–", "0.00 µs", "12.3 µs", "1.00 ms", "4.56 ms", "1.00 s", "1.20 s", "60.0 s", "–"])
        #expect(
            [nil, 0, 59.9, 61, 3_600, 100_000, -1, .nan].map { PageText.duration($0) }
                == ["–", "0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 3 h", "–", "–"])
    }

    private func histogram(_ counts: [(String, Double)]) -> Histogram {
        let lines = counts.map { "h_bucket{le=\"\($0)\"} \($1)\n" }.joined()
        return Histogram(Scrape(moment: .now(), text: lines).figures?.metrics.samples(of: "h_bucket") ?? [])
    }

    @Test func `quantiles match Prometheus's histogram_quantile`() {
        let some = histogram([("1", 10), ("2", 30), ("+Inf", 40)])
        #expect(some.quantile(0.25) == 1 && some.quantile(0.5) == 1.5 && some.quantile(0.125) == 0.5)
        // Durations above the last finite bound count as it.
        #expect(some.quantile(0.99) == 2)
        #expect(histogram([]).quantile(0.5) == nil && histogram([("1", 0), ("+Inf", 0)]).quantile(0.5) == nil)
        #expect(histogram([("+Inf", 3)]).quantile(0.5) == nil)
        // In any order, with invalid buckets ignored.
        #expect(histogram([("+Inf", 40), ("nonsense", 9), ("2", 30), ("-1", 9), ("1", 10)]) == some)
    }

    @Test func `a difference of histograms needs equal bounds`() {
        let (old, new) = (histogram([("1", 10), ("+Inf", 20)]), histogram([("1", 15), ("+Inf", 45)]))
        #expect(new.since(old) == histogram([("1", 5), ("+Inf", 25)]))
        #expect(old.since(new) == histogram([("1", 0), ("+Inf", 0)]))
        #expect(new.since(Histogram()) == new && new.since(histogram([("3", 1)])) == Histogram())
        #expect(old.adding(new) == histogram([("1", 25), ("+Inf", 65)]))
        #expect(Histogram().adding(new) == new && new.adding(histogram([("3", 1)])) == new)
    }

    @Test func `a plot has a gap where a value is missing`() {
        let plot = Plot(label: "<a>", values: [nil, 1, 2, nil, 4], slots: 5).svg
        #expect(plot.contains("aria-label=\"&lt;a&gt;\""))
        #expect(plot.contains("<path class=\"line\" d=\"M75.0,35.5L150.0,24.0M300.0,1.0h0\"/>"))
        #expect(plot.contains("<path class=\"area\" d=\"M75.0,48.0L75.0,35.5L150.0,24.0L150.0,48.0Z\"/>"))
        #expect(Plot(label: "", values: []).svg.contains("class=\"line\" d=\"\""))
        #expect(!Plot(label: "", values: [.nan, .infinity, -1]).svg.contains("h0"))
    }
}
