import ThumbnailCache

/// Who holds how much: per generation, per uid and in all. A value; whoever holds it locks it. It is kept by uid, and
/// uids are put together to ledger where shares are compared.
///
/// After a start a generation's buckets are counted one after another. A change in a bucket that is not counted yet is
/// ignored: its count, made with that bucket's entries standing still, will see it.
struct UsageLedger {
    private struct Account {
        let uid: UInt32
        var usage = Usage()
        var uncounted: BucketSet
    }

    private struct Holder {
        var bytes = 0
        var generations: Set<UInt64> = []
    }

    private var ledger: [UInt64: Account] = [:]
    private var holders: [UInt32: Holder] = [:]
    /// All that is counted so far.
    private(set) var total = Usage()

    /// Begins an account.
    /// - Parameter isEmpty: for a generation just made; of any other nothing is counted yet.
    mutating func open(_ generation: UInt64, uid: UInt32, isEmpty: Bool) {
        ledger[generation] = Account(uid: uid, uncounted: isEmpty ? .none : .all)
        holders[uid, default: Holder()].generations.insert(generation)
    }

    /// Ends an account. Returns what was counted.
    mutating func close(_ generation: UInt64) -> Usage? {
        guard let account = ledger.removeValue(forKey: generation) else { return nil }
        total.images -= account.usage.images
        total.bytes -= account.usage.bytes
        if var holder = holders[account.uid] {
            holder.bytes -= account.usage.bytes
            holder.generations.remove(generation)
            holders[account.uid] = holder.generations.isEmpty ? nil : holder
        }
        return account.usage
    }

    mutating func add(images: Int, bytes: Int, to generation: UInt64, bucket: UInt8) {
        guard ledger[generation]?.uncounted.contains(bucket) == false else { return }
        change(generation, images: images, bytes: bytes)
    }

    mutating func setCount(_ usage: Usage, of generation: UInt64, bucket: UInt8) {
        guard ledger[generation]?.uncounted.remove(bucket) == true else { return }
        change(generation, images: usage.images, bytes: usage.bytes)
    }

    private mutating func change(_ generation: UInt64, images: Int, bytes: Int) {
        guard let uid = ledger[generation]?.uid else { return }
        ledger[generation]?.usage.images += images
        ledger[generation]?.usage.bytes += bytes
        holders[uid]?.bytes += bytes
        total.images += images
        total.bytes += bytes
    }

    /// nil until every bucket is counted, and for a generation without account.
    func usage(of generation: UInt64) -> Usage? {
        guard let account = ledger[generation], account.uncounted.isEmpty else { return nil }
        return account.usage
    }

    var isCounted: Bool { ledger.values.allSatisfy(\.uncounted.isEmpty) }

    /// What is counted so far.
    func counted(of generation: UInt64) -> Usage {
        ledger[generation]?.usage ?? Usage()
    }

    /// Whether a bucket still waits to be counted.
    func awaitsCount(_ generation: UInt64, bucket: UInt8) -> Bool {
        ledger[generation]?.uncounted.contains(bucket) == true
    }

    /// Who gives when the store is over its quota, and how much: the account most over its share, which is the quota
    /// through the ledger that have a cache, and of that account the user who holds most. It gives what brings the
    /// store back to its quota, but not so much that it falls below its share itself (I8). Whoever holds most *is* over
    /// its share: when all hold more than the quota together, somebody holds more than an equal part of it.
    ///
    /// Costs a look at each uid that has a cache.
    /// - Parameters:
    ///   - accountOf: the account that a uid counts for. Asked each time, since a reload may change it.
    ///   - passingOver: generations that have nothing to give. Then it is the turn of the account's next one, and of
    ///     the next account that is over its share.
    func giver(
        quota: Int, accountOf: (UInt32) -> UInt32, passingOver: Set<UInt64> = []
    ) -> (generation: UInt64, bytes: Int)? {
        let excess = total.bytes - quota
        guard excess > 0 else { return nil }
        var held: [UInt32: Int] = [:]
        for (uid, holder) in holders { held[accountOf(uid), default: 0] += holder.bytes }
        let share = quota / max(1, held.count)
        var overShare = held.filter { $0.value > share }
        while let (account, bytes) = overShare.max(by: { $0.value < $1.value }) {
            var largest: (generation: UInt64, bytes: Int)?
            for (uid, holder) in holders where accountOf(uid) == account {
                for generation in holder.generations where !passingOver.contains(generation) {
                    let bytes = counted(of: generation).bytes
                    if bytes > largest?.bytes ?? 0 { largest = (generation, bytes) }
                }
            }
            if let largest { return (largest.generation, min(excess, bytes - share)) }
            overShare[account] = nil
        }
        return nil
    }
}

/// A set of the 256 buckets, in 32 bytes.
struct BucketSet: Equatable {
    private var words: SIMD4<UInt64>

    static let none = BucketSet(words: SIMD4(repeating: 0))
    static let all = BucketSet(words: SIMD4(repeating: .max))

    var isEmpty: Bool { self == .none }

    func contains(_ bucket: UInt8) -> Bool {
        words[Int(bucket >> 6)] & (1 << UInt64(bucket & 63)) != 0
    }

    /// Whether it was in.
    mutating func remove(_ bucket: UInt8) -> Bool {
        defer { words[Int(bucket >> 6)] &= ~(1 << UInt64(bucket & 63)) }
        return contains(bucket)
    }
}
