import CacheCore

/// Usage by generation, by uid and in total. Uids are combined into accounts when shares are compared.
///
/// After a start, the buckets of a generation are counted one by one. Changes in a bucket that is not counted yet are
/// ignored, because counting it includes them.
struct UsageLedger {
    private struct GenerationUsage {
        let uid: UInt32
        /// Number of buckets counted, of 256.
        var counted: UInt16
        var usage = Usage()
        var isCounted: Bool { counted == 256 }
    }

    private struct UIDUsage {
        var bytes = 0
        var generations: Set<UInt64> = []
    }

    /// By number.
    private var generations: [UInt64: GenerationUsage] = [:]
    private var uids: [UInt32: UIDUsage] = [:]
    private(set) var total = Usage()

    /// - Parameter isEmpty: whether it is new, so that nothing needs to be counted.
    mutating func open(_ generation: UInt64, uid: UInt32, isEmpty: Bool) {
        generations[generation] = GenerationUsage(uid: uid, counted: isEmpty ? 256 : 0)
        uids[uid, default: UIDUsage()].generations.insert(generation)
    }

    mutating func close(_ generation: UInt64) -> Usage? {
        guard let closed = generations[generation] else { return nil }
        change(generation, images: -closed.usage.images, bytes: -closed.usage.bytes)
        generations[generation] = nil
        uids[closed.uid]?.generations.remove(generation)
        if uids[closed.uid]?.generations.isEmpty == true { uids[closed.uid] = nil }
        return closed.usage
    }

    mutating func add(images: Int, bytes: Int, to generation: UInt64, bucket: UInt8) {
        guard let counted = generations[generation]?.counted, bucket < counted else { return }
        change(generation, images: images, bytes: bytes)
    }

    /// Adds the count of a bucket, which must be ``nextToCount(of:)``.
    mutating func setCount(_ usage: Usage, of generation: UInt64, bucket: UInt8) {
        guard nextToCount(of: generation) == bucket else { return }
        generations[generation]?.counted += 1
        change(generation, images: usage.images, bytes: usage.bytes)
    }

    private mutating func change(_ generation: UInt64, images: Int, bytes: Int) {
        guard let uid = generations[generation]?.uid else { return }
        generations[generation]?.usage.images += images
        generations[generation]?.usage.bytes += bytes
        uids[uid]?.bytes += bytes
        total.images += images
        total.bytes += bytes
    }

    /// The usage of a generation; nil if it is not fully counted or unknown.
    func usage(of generation: UInt64) -> Usage? {
        guard let known = generations[generation], known.isCounted else { return nil }
        return known.usage
    }

    var isCounted: Bool { generations.values.allSatisfy(\.isCounted) }

    func counted(of generation: UInt64) -> Usage { generations[generation]?.usage ?? Usage() }

    /// The next bucket to count; nil if all are counted or the generation is unknown.
    func nextToCount(of generation: UInt64) -> UInt8? { generations[generation].flatMap { UInt8(exactly: $0.counted) } }

    /// Selects the generation to evict from if the store exceeds its quota, and how many bytes: the largest generation
    /// of the account that most exceeds its share, which is the quota divided by the number of accounts. So no account
    /// falls below its share (I8). Costs a step for each uid, and for each generation of the selected account.
    /// - Parameters:
    ///   - accountOf: returns the account of a uid. Called each time, because a reload may change it.
    ///   - excluding: generations from which nothing can be evicted.
    func nextToEvict(
        quota: Int, accountOf: (UInt32) -> UInt32, excluding: Set<UInt64> = []
    ) -> (generation: UInt64, bytes: Int)? {
        let excess = total.bytes - quota
        guard excess > 0 else { return nil }
        var used: [UInt32: Int] = [:]
        for (uid, usage) in uids { used[accountOf(uid), default: 0] += usage.bytes }
        let share = quota / max(1, used.count)
        var overShare = used.filter { $0.value > share }
        while let (account, bytes) = overShare.max(by: { $0.value < $1.value }) {
            let generations = uids.filter { accountOf($0.key) == account }.flatMap(\.value.generations)
            let able = generations.filter { counted(of: $0).bytes > 0 && !excluding.contains($0) }
            if let largest = able.max(by: { counted(of: $0).bytes < counted(of: $1).bytes }) {
                return (largest, min(excess, bytes - share))
            }
            overShare[account] = nil
        }
        return nil
    }
}
