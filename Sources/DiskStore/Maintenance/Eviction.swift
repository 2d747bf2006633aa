/// Which images go when there are too many: the least recently used of a sample, which comes close to the least
/// recently used of all at a small part of the cost. Decisions only; ``ImageFiles`` acts on them.
enum Eviction {
    /// An image that could go.
    struct Candidate: Equatable {
        let address: EntryAddress
        /// Bytes that it takes on disk.
        let size: Int
        /// When it was last used, at a grain of an hour: its file's modification time.
        let lastUse: LastUse
        let inode: UInt64
    }

    struct LastUse: Comparable {
        let seconds: Int64
        let nanoseconds: Int64

        static func < (left: Self, right: Self) -> Bool {
            (left.seconds, left.nanoseconds) < (right.seconds, right.nanoseconds)
        }
    }

    /// Images looked at before any is chosen.
    static let sampleSize = 32
    /// Images that go on one thread that has something else to do; what is left over is left to maintenance.
    static let batch = 64
    /// How far back a use must lie before another one is noted, in seconds: a hit costs no write.
    static let grain: Int64 = 3600

    /// Where eviction for a user's own quota ends: 95 %, so that it is not needed at every write.
    static func lowWater(of quota: Int) -> Int {
        quota - quota / 20
    }

    /// Those that go, longest unused first: as many as make `bytes`, but at most a quarter of a sample, since the rest of
    /// it is not old compared to what was not sampled.
    /// - Parameter isWhole: whether the sample holds all there is.
    static func victims(of sample: [Candidate], bytes: Int, isWhole: Bool) -> [Candidate] {
        let limit = isWhole ? sample.count : max(1, sample.count / 4)
        var left = bytes
        return sample.sorted { $0.lastUse < $1.lastUse }.prefix(limit).prefix { candidate in
            defer { left -= candidate.size }
            return left > 0
        }
    }

    /// Whether a use is worth noting: the last one noted lies more than a grain back, or in a future that a clock set
    /// back has made (F14).
    static func isWorthNoting(lastUse: Int64, now: Int64) -> Bool {
        let (age, overflow) = now.subtractingReportingOverflow(lastUse)
        return overflow || age >= grain || age <= -grain
    }
}
