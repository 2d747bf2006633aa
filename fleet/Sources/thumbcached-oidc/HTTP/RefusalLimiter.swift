/// Limits the rejections of each peer that are explained and logged, so that no peer can fill the log.
///
/// A value without a clock; times are milliseconds.
struct RefusalLimiter: Sendable {
    private struct Bucket {
        /// Rejections that are left.
        var left: Double
        var time: Int64
    }

    /// Rejections per minute, and the burst size.
    private let limit: Double
    private var buckets: [String: Bucket] = [:]
    static let mostPeers = 4_096

    /// - Parameter limit: 0 for none.
    init(perMinute limit: Int) { self.limit = Double(limit) }

    var count: Int { buckets.count }

    /// Counts a rejected request.
    /// - Returns: seconds until the next rejection is within the limit; nil if this one is.
    mutating func refuse(_ peer: String, at now: Int64) -> Int? {
        guard limit > 0 else { return nil }
        let before = buckets[peer].map { left($0, at: now) } ?? limit
        guard before >= 1 else { return max(1, Int(((1 - before) * 60 / limit).rounded(.up))) }
        if buckets[peer] == nil, buckets.count >= Self.mostPeers { makeRoom(at: now) }
        buckets[peer] = Bucket(left: before - 1, time: now)
        return nil
    }

    private func left(_ bucket: Bucket, at now: Int64) -> Double {
        min(limit, bucket.left + Double(max(0, now - bucket.time)) * limit / 60_000)
    }

    /// Removes peers with a full allowance; without any, the peer with the largest.
    private mutating func makeRoom(at now: Int64) {
        buckets = buckets.filter { left($0.value, at: now) < limit }
        guard buckets.count >= Self.mostPeers else { return }
        if let best = buckets.max(by: { left($0.value, at: now) < left($1.value, at: now) }) { buckets[best.key] = nil }
    }
}
