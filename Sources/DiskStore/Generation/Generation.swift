import Synchronization

/// One generation on disk: whose it is and what its directory is called. It has no key; see ``DiskGenerationStore``.
final class Generation: Sendable {
    /// Counts the generations met in this run: a short key for caches and ledger.
    let number: UInt64
    let owner: HashedOwner
    let id: GenerationID
    /// Made anew each time: there may be tens of thousands of generations, and few whose directory is opened.
    var directoryName: FileName { GenerationName(user: owner.user, generation: id).fileName }
    /// Whether it was made in this run.
    let isNew: Bool
    /// One bit for each bucket that nothing has been put in, so that nothing need be looked for there. None where the
    /// generation was found: then only the disk can tell.
    private let untouched: InlineArray<4, Atomic<UInt64>>
    /// Whether it has held an image of some size in this run, as far as it is counted.
    private let sizes = Atomic(false)
    /// Whether no file of an earlier run can lie in the directory any more.
    private let tidy: Atomic<Bool>

    /// - Parameter isNew: it was made just now, so that nothing is in it.
    init(number: UInt64, owner: HashedOwner, id: GenerationID, isNew: Bool) {
        self.number = number
        self.owner = owner
        self.id = id
        self.isNew = isNew
        tidy = Atomic(isNew)
        untouched = InlineArray { _ in Atomic(isNew ? UInt64.max : 0) }
    }

    var isTidy: Bool { tidy.load(ordering: .acquiring) }

    /// What earlier runs left beside the buckets is gone.
    func noteTidy() { tidy.store(true, ordering: .releasing) }

    var hasSizes: Bool { sizes.load(ordering: .relaxed) }

    func noteSize() { sizes.store(true, ordering: .relaxed) }

    /// Whether it is known without a look at the disk that a bucket holds no entry.
    func holdsNothing(in bucket: UInt8) -> Bool {
        untouched[Int(bucket >> 6)].load(ordering: .sequentiallyConsistent) >> UInt64(bucket & 63) & 1 == 1
    }

    /// An entry is about to be put in a bucket. Before it is there, so that what ``holdsNothing(in:)`` says is never
    /// late.
    func willHold(in bucket: UInt8) {
        untouched[Int(bucket >> 6)].bitwiseAnd(~(1 << UInt64(bucket & 63)), ordering: .sequentiallyConsistent)
    }

    /// What its directory, or that of a bucket, is known by while it runs.
    func key(_ bucket: UInt8? = nil) -> DirectoryCache.Key { DirectoryCache.Key(generation: number, bucket: bucket) }
}
