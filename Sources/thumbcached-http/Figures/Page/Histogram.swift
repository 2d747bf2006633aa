@_spi(Wire) import Thumbcache

/// A cumulative histogram of request durations, as Prometheus defines it.
struct Histogram: Sendable, Equatable {
    /// Upper bounds in seconds, ascending; the last is infinite.
    private(set) var bounds: [Double] = []
    /// The number of requests up to each bound.
    private(set) var counts: [Double] = []

    /// A limit above the number of buckets of a daemon.
    static let mostBuckets = 64

    init() {}

    /// - Parameter buckets: samples with a label `le`. Other samples, and those beyond the limit, are ignored.
    init(_ buckets: [ThumbcacheMetrics.Sample]) {
        let found = buckets.prefix(Self.mostBuckets).compactMap { sample -> (Double, Double)? in
            guard let text = sample.labels["le"] else { return nil }
            let bound = text == "+Inf" ? .infinity : Double(text) ?? .nan
            return bound > 0 && sample.value.isFinite ? (bound, sample.value) : nil
        }.sorted { $0.0 < $1.0 }
        (bounds, counts) = (found.map(\.0), found.map(\.1))
    }

    var count: Double { counts.last ?? 0 }

    /// The difference to an older histogram; empty if the bounds differ.
    func since(_ old: Histogram) -> Histogram {
        guard old.bounds == bounds else { return old.bounds.isEmpty ? self : Histogram() }
        var change = self
        change.counts = zip(counts, old.counts).map { max(0, $0 - $1) }
        return change
    }

    func adding(_ other: Histogram) -> Histogram {
        guard other.bounds == bounds else { return bounds.isEmpty ? other : self }
        var sum = self
        sum.counts = zip(counts, other.counts).map(+)
        return sum
    }

    /// The duration that a share of the requests did not exceed, interpolated linearly within a bucket as
    /// Prometheus's histogram_quantile does. nil without requests; durations above the last finite bound count as it.
    func quantile(_ share: Double) -> Double? {
        guard count > 0, let bucket = counts.firstIndex(where: { $0 >= share * count }) else { return nil }
        let lower = bucket == 0 ? 0 : bounds[bucket - 1]
        guard bounds[bucket].isFinite else { return bucket == 0 ? nil : lower }
        let before = bucket == 0 ? 0 : counts[bucket - 1]
        let inBucket = counts[bucket] - before
        guard inBucket > 0 else { return bounds[bucket] }
        return lower + (bounds[bucket] - lower) * (share * count - before) / inBucket
    }
}
