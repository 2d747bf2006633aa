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
    /// One bit for each bucket into which nothing has been written, so that a miss needs no system call.
    private let untouched: InlineArray<4, Atomic<UInt64>>
    /// Whether an image with a size was written or counted in this run.
    private let sizes = Atomic(false)
    /// Whether only buckets are left in the directory.
    private let staleFilesRemoved: Atomic<Bool>

    init(number: UInt64, owner: HashedOwner, id: GenerationID, isNew: Bool) {
        (self.number, self.owner, self.id, self.isNew) = (number, owner, id, isNew)
        staleFilesRemoved = Atomic(isNew)
        untouched = InlineArray { _ in Atomic(isNew ? UInt64.max : 0) }
    }

    var hasNoStaleFiles: Bool { staleFilesRemoved.load(ordering: .acquiring) }

    func markStaleFilesRemoved() { staleFilesRemoved.store(true, ordering: .releasing) }

    var hasSizes: Bool { sizes.load(ordering: .relaxed) }

    func markSized() { sizes.store(true, ordering: .relaxed) }

    func isKnownEmpty(_ bucket: UInt8) -> Bool {
        untouched[Int(bucket >> 6)].load(ordering: .sequentiallyConsistent) >> UInt64(bucket & 63) & 1 == 1
    }

    /// Call this before writing to a bucket, so that ``isKnownEmpty(_:)`` is never wrong.
    func markUsed(_ bucket: UInt8) {
        untouched[Int(bucket >> 6)].bitwiseAnd(~(1 << UInt64(bucket & 63)), ordering: .sequentiallyConsistent)
    }

    func key(_ bucket: UInt8? = nil) -> DirectoryCache.Key { DirectoryCache.Key(generation: number, bucket: bucket) }
}
