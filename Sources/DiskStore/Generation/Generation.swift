import Synchronization

/// A generation on disk: its owner and the name of its directory. It has no key; see ``DiskGenerationStore``.
final class Generation: Sendable {
    /// Sequence number within this run: a short key for caches and the ledger.
    let number: UInt64
    let owner: HashedOwner
    let id: GenerationID
    /// Computed on demand: there may be tens of thousands of generations, of which few are read.
    var directoryName: FileName { GenerationName(user: owner.user, generation: id).fileName }
    let isNew: Bool
    /// Nil unless the generation is new, which saves memory for those found on disk at the start.
    private let untouched: BucketSet?
    /// Whether an image with a size was written or counted in this run.
    private let sizes = Atomic(false)
    /// Whether only buckets are left in the directory.
    private let staleFilesRemoved: Atomic<Bool>

    init(number: UInt64, owner: HashedOwner, id: GenerationID, isNew: Bool) {
        (self.number, self.owner, self.id, self.isNew) = (number, owner, id, isNew)
        staleFilesRemoved = Atomic(isNew)
        untouched = isNew ? BucketSet() : nil
    }

    var hasNoStaleFiles: Bool { staleFilesRemoved.load(ordering: .acquiring) }

    func markStaleFilesRemoved() { staleFilesRemoved.store(true, ordering: .releasing) }

    var hasSizes: Bool { sizes.load(ordering: .relaxed) }

    func markSized() { sizes.store(true, ordering: .relaxed) }

    func isKnownEmpty(_ bucket: UInt8) -> Bool {
        untouched?.contains(bucket) ?? false
    }

    /// Call this before writing to a bucket, so that ``isKnownEmpty(_:)`` is never wrong.
    func markUsed(_ bucket: UInt8) {
        untouched?.remove(bucket)
    }

    func key(_ bucket: UInt8? = nil) -> DirectoryCache.Key { DirectoryCache.Key(generation: number, bucket: bucket) }
}

/// The buckets of a new generation into which nothing has been written, so that a miss needs no system call.
private final class BucketSet: Sendable {
    /// One bit for each bucket.
    private let bits = InlineArray<4, Atomic<UInt64>> { _ in Atomic(UInt64.max) }

    func contains(_ bucket: UInt8) -> Bool {
        bits[Int(bucket >> 6)].load(ordering: .sequentiallyConsistent) >> UInt64(bucket & 63) & 1 == 1
    }

    func remove(_ bucket: UInt8) {
        bits[Int(bucket >> 6)].bitwiseAnd(~(1 << UInt64(bucket & 63)), ordering: .sequentiallyConsistent)
    }
}
