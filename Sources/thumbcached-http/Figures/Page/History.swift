import NIOCore
@_spi(Wire) import Thumbcache

/// The values of one scrape that the plots need.
struct Sample: Sendable, Equatable {
    let moment: NIODeadline
    /// Seconds since the daemon's start. A smaller value than in the sample before means a restart: counters are reset.
    let uptime: Double
    /// By source, in the order of METRICS.
    let requests: [(source: String, times: Histogram)]
    let downloads: Double
    let failures: Double

    /// A limit above the number of sources of a daemon.
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

    /// Requests that returned an image, and those served from memory or disk.
    var images: (all: Double, hits: Double) {
        requests.reduce(into: (0, 0)) { sum, next in
            if ["none", "error"].contains(next.source) { return }
            sum.all += next.times.count
            if ["memory", "disk"].contains(next.source) { sum.hits += next.times.count }
        }
    }

    var allRequests: Double { requests.reduce(0) { $0 + $1.times.count } }
}

/// The recent samples at fixed intervals; nil where a scrape failed.
struct History: Sendable {
    /// Ten minutes of 5 s each, and the sample before.
    static let capacity = 121

    private(set) var samples: [Sample?] = []

    mutating func append(_ sample: Sample?) {
        if samples.count == Self.capacity { samples.removeFirst() }
        samples.append(sample)
    }

    /// A value for each interval, computed from the samples at its ends; nil if one is missing, or if the daemon was
    /// restarted within the interval.
    func changes(_ value: (_ old: Sample, _ new: Sample, _ seconds: Double) -> Double?) -> [Double?] {
        zip(samples, samples.dropFirst()).map { old, new in
            guard let old, let new, Self.isOneRun(old, new) else { return nil }
            return value(old, new, Double((new.moment - old.moment).nanoseconds) / 1e9)
        }
    }

    /// The first and last sample since the daemon's latest restart; nil without samples.
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
