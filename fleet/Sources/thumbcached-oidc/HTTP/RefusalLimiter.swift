/// How many requests of an address were refused lately: whoever is above the limit is not listened to for a while, so
/// that trying costs no signatures and fills no log.
///
/// A value without a clock; times are milliseconds.
struct RefusalLimiter: Sendable {
    private struct Bucket {
        /// Of one refusal, 0 for none to come.
        var left: Double
        var time: Int64
    }

    /// In a minute, and at once.
    private let limit: Double
    private var buckets: [String: Bucket] = [:]
    static let mostAddresses = 4_096

    /// - Parameter limit: 0 for none.
    init(perMinute limit: Int) { self.limit = Double(limit) }

    var count: Int { buckets.count }

    /// - Returns: seconds after which the address is listened to again; nil for now.
    func wait(_ address: String, at now: Int64) -> Int? {
        guard limit > 0, let bucket = buckets[address] else { return nil }
        let left = left(bucket, at: now)
        return left >= 1 ? nil : max(1, Int(((1 - left) * 60 / limit).rounded(.up)))
    }

    mutating func refused(_ address: String, at now: Int64) {
        guard limit > 0 else { return }
        let before = buckets[address].map { left($0, at: now) } ?? limit
        if buckets[address] == nil, buckets.count >= Self.mostAddresses { makeRoom(at: now) }
        buckets[address] = Bucket(left: max(0, before - 1), time: now)
    }

    private func left(_ bucket: Bucket, at now: Int64) -> Double {
        min(limit, bucket.left + Double(max(0, now - bucket.time)) * limit / 60_000)
    }

    /// Forgets whoever has not been refused for long; if there is nobody, the one who was refused least.
    private mutating func makeRoom(at now: Int64) {
        buckets = buckets.filter { left($0.value, at: now) < limit }
        guard buckets.count >= Self.mostAddresses else { return }
        if let best = buckets.max(by: { left($0.value, at: now) < left($1.value, at: now) }) { buckets[best.key] = nil }
    }
}
