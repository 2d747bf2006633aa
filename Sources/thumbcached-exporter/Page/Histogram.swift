@_spi(Wire) import Thumbcache

/// How long requests took: how many at most so long.
struct Histogram: Sendable, Equatable {
    /// Seconds, growing; the last is infinite.
    private(set) var bounds: [Double] = []
    /// Of requests up to each bound.
    private(set) var counts: [Double] = []

    /// More than a daemon has.
    static let mostBuckets = 64

    /// One without any.
    init() {}

    /// - Parameter buckets: samples with a label `le`. What is no bucket, or comes behind too many, is passed over.
    init(_ buckets: [ThumbcacheMetrics.Sample]) {
        let found = buckets.prefix(Self.mostBuckets).compactMap { sample -> (Double, Double)? in
            guard let text = sample.labels["le"] else { return nil }
            let bound = text == "+Inf" ? .infinity : Double(text) ?? .nan
            return bound > 0 && sample.value.isFinite ? (bound, sample.value) : nil
        }.sorted { $0.0 < $1.0 }
        (bounds, counts) = (found.map(\.0), found.map(\.1))
    }

    /// All requests.
    var count: Double { counts.last ?? 0 }

    /// What came since another one; of other buckets nothing is known.
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

    /// The time within which this share of all requests was answered, taken to be spread evenly in their bucket, as
    /// Prometheus's histogram_quantile does; nil without requests. What is above the last bound is at least that.
    func quantile(_ share: Double) -> Double? {
        guard count > 0, let place = counts.firstIndex(where: { $0 >= share * count }) else { return nil }
        let lower = place == 0 ? 0 : bounds[place - 1]
        guard bounds[place].isFinite else { return place == 0 ? nil : lower }
        let before = place == 0 ? 0 : counts[place - 1]
        let inBucket = counts[place] - before
        guard inBucket > 0 else { return bounds[place] }
        return lower + (bounds[place] - lower) * (share * count - before) / inBucket
    }
}
