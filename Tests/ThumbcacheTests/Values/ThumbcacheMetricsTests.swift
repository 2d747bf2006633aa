import Testing

@testable @_spi(Wire) import Thumbcache

@Suite struct ThumbcacheMetricsTests {
    static let text = """
        # HELP thumbcached_hits_total Images served from what was held.
        # TYPE thumbcached_hits_total counter
        thumbcached_hits_total{source="memory"} 12
        thumbcached_hits_total{source="disk"} 3

        thumbcached_uptime_seconds 77
        thumbcached_request_duration_seconds_bucket{source="memory",le="+Inf"} 12
        thumbcached_request_duration_seconds_sum{source="memory"} 1.5e-05
        """

    @Test func `a sample is found by its name and labels`() throws {
        let metrics = try ThumbcacheMetrics(Self.text)
        #expect(metrics.samples.count == 5)
        #expect(metrics["thumbcached_uptime_seconds"] == 77)
        #expect(metrics["thumbcached_hits_total", ["source": "disk"]] == 3)
        #expect(metrics["thumbcached_hits_total"] == nil)
        #expect(metrics["thumbcached_hits_total", ["source": "disk", "x": "y"]] == nil)
        #expect(metrics["thumbcached_request_duration_seconds_sum", ["source": "memory"]] == 0.000015)
    }

    @Test func `samples of a name are added up`() throws {
        let metrics = try ThumbcacheMetrics(Self.text)
        #expect(metrics.sum(of: "thumbcached_hits_total") == 15)
        #expect(metrics.sum(of: "thumbcached_hits_total", having: ["source": "memory"]) == 12)
        #expect(metrics.sum(of: "thumbcached_nothing") == nil)
        #expect(metrics.samples(of: "thumbcached_hits_total").map(\.value) == [12, 3])
    }

    @Test func `label values may contain any text`() throws {
        let metrics = try ThumbcacheMetrics(#" a { x = "q\"b\\n\n}" , y="é", } 1 1700000000000"# + "\r\n")
        #expect(metrics["a", ["x": "q\"b\\n\n}", "y": "é"]] == 1)
    }

    @Test func `numbers of the format are parsed`() throws {
        let metrics = try ThumbcacheMetrics("a +Inf\nb -Inf\nc NaN\nd -1.5e3\n")
        #expect(metrics["a"] == .infinity)
        #expect(metrics["b"] == -.infinity)
        #expect(metrics["c"]?.isNaN == true)
        #expect(metrics["d"] == -1500)
    }

    @Test(arguments: [
        "a", "a ", "a b", "a 0x10", "a inf", "a 1 x", "a 1 2 3", "1a 1", "a{ 1", "a{x} 1", "a{x=} 1", "a{x=\"} 1",
        "a{x=\"\\t\"} 1", "a{x=\"1\" y=\"2\"} 1", "a{x=\"1\",x=\"2\"} 1", "a{,} 1", "{} 1", "é 1", "a\u{1b} 1",
    ])
    func `an invalid line is a protocol violation that names the line`(_ line: String) {
        #expect(throws: ThumbcacheError.protocolViolation("line 2 of METRICS is not valid in Prometheus's text format"))
        {
            try ThumbcacheMetrics("b 1\n\(line)\n")
        }
    }

    @Test func `too much output is rejected`() {
        #expect(throws: ThumbcacheError.self) {
            try ThumbcacheMetrics(String(repeating: "#", count: ThumbcacheMetrics.mostBytes + 1))
        }
        #expect(throws: ThumbcacheError.self) {
            try ThumbcacheMetrics(String(repeating: "a 1\n", count: ThumbcacheMetrics.mostSamples + 1))
        }
        let labels = (0...ThumbcacheMetrics.mostLabels).map { "l\($0)=\"\"" }.joined(separator: ",")
        #expect(throws: ThumbcacheError.self) { try ThumbcacheMetrics("a{\(labels)} 1") }
    }
}
