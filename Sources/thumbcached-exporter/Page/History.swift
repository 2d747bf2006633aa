import NIOCore
@_spi(Wire) import Thumbcache

/// What is kept of one answer of the daemon for the plots.
struct Sample: Sendable, Equatable {
    let moment: NIODeadline
    /// Seconds since the daemon's start: less than before is another daemon, whose counters began anew.
    let uptime: Double
    /// By source, in the order in which the daemon names them.
    let requests: [(source: String, times: Histogram)]
    let downloads: Double
    let failures: Double

    /// More than a daemon has sources.
    static let mostSources = 16

    init(_ metrics: ThumbcacheMetrics, at moment: NIODeadline) {
        self.moment = moment
        uptime = metrics.sum(of: "thumbcached_uptime_seconds") ?? 0
        downloads = metrics.sum(of: "thumbcached_downloads_total") ?? 0
        failures = metrics.sum(of: "thumbcached_download_failures_total") ?? 0
        let name = "thumbcached_request_duration_seconds"
        requests = metrics.samples(of: name + "_count").prefix(Self.mostSources).map { sample in
            let source = sample.labels["source"] ?? ""
            return (source, Histogram(metrics.samples(of: name + "_bucket", having: ["source": source])))
        }
    }

    static func == (left: Sample, right: Sample) -> Bool {
        left.moment == right.moment && left.uptime == right.uptime && left.downloads == right.downloads
            && left.failures == right.failures
            && left.requests.elementsEqual(right.requests) { $0.source == $1.source && $0.times == $1.times }
    }

    func times(of source: String) -> Histogram { requests.first { $0.source == source }?.times ?? Histogram() }

    /// Requests for images that were answered by one, and those of them that waited for no origin.
    var images: (all: Double, hits: Double) {
        requests.reduce(into: (0, 0)) { sum, next in
            if ["none", "error"].contains(next.source) { return }
            sum.all += next.times.count
            if ["memory", "disk"].contains(next.source) { sum.hits += next.times.count }
        }
    }

    var allRequests: Double { requests.reduce(0) { $0 + $1.times.count } }
}

/// The last samples, at even pauses; nil where the daemon did not answer.
struct History: Sendable {
    /// One every 5 s for 10 min, and the one before.
    static let capacity = 121

    private(set) var samples: [Sample?] = []

    mutating func append(_ sample: Sample?) {
        if samples.count == Self.capacity { samples.removeFirst() }
        samples.append(sample)
    }

    /// What two figures of neighbours come to, one value for each pause; nil where one of them is missing, or the
    /// daemon was started again in between.
    func changes(_ value: (_ old: Sample, _ new: Sample, _ seconds: Double) -> Double?) -> [Double?] {
        zip(samples, samples.dropFirst()).map { old, new in
            guard let old, let new, Self.isOneRun(old, new) else { return nil }
            return value(old, new, Double((new.moment - old.moment).nanoseconds) / 1e9)
        }
    }

    /// The first and last sample of the daemon that runs: nil where there are none.
    var span: (first: Sample, last: Sample)? {
        let present = samples.compactMap { $0 }
        guard let last = present.last else { return nil }
        var first = last
        for sample in present.dropLast().reversed() {
            guard Self.isOneRun(sample, first) else { break }
            first = sample
        }
        return (first, last)
    }

    private static func isOneRun(_ old: Sample, _ new: Sample) -> Bool {
        new.uptime >= old.uptime && new.moment > old.moment
    }
}
