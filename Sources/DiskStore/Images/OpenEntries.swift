import CacheCore
import NIOConcurrencyHelpers
import Synchronization

/// A decoded record and the tag of the entry that contained it. Different entries have different tags.
struct SealedRecord: Sendable {
    typealias Tag = SIMD16<UInt8>

    let record: SharedRecord
    let tag: Tag
}

/// An entry whose file is open. The last reference closes it, so a read in progress never gets another file through a
/// reused descriptor.
final class OpenEntry: Sendable {
    let key: OpenEntries.Key
    let address: EntryAddress
    let file: OpenFile
    /// Length of the file in bytes. Entries are never rewritten in place.
    let size: Int
    /// Nil if the record is too long to be kept.
    let sealed: SealedRecord?
    private let isUsed = Atomic(false)
    /// The second in which the file's status was last checked.
    private let checked: Synchronization.Atomic<Int64>

    init(
        _ key: OpenEntries.Key, _ address: EntryAddress, _ file: consuming OpenFile, size: Int, _ sealed: SealedRecord?,
        checked: Int64
    ) {
        (self.key, self.address, self.size, self.sealed) = (key, address, size, sealed)
        self.file = file
        self.checked = Synchronization.Atomic(checked)
    }

    /// Whether the file's status was checked in this second.
    func isChecked(at second: Int64) -> Bool { checked.load(ordering: .relaxed) == second }

    /// Records that the file's status was checked in this second.
    func markChecked(at second: Int64) { checked.store(second, ordering: .relaxed) }

    fileprivate var bucket: DirectoryCache.Key {
        DirectoryCache.Key(generation: key.generation, bucket: address.bucket)
    }

    fileprivate func markUsed() { if !isUsed.load(ordering: .relaxed) { isUsed.store(true, ordering: .relaxed) } }

    fileprivate func removeMark() -> Bool { isUsed.exchange(false, ordering: .relaxed) }
}

/// Files of recently read entries, kept open, so that a hit in the page cache needs neither the entry's name nor a
/// lookup of it. At most `capacity`; SIEVE selects which to close.
///
/// No file outlives its name (I3, I7): ``changing(_:_:)`` encloses each change of a bucket's entries. It closes the
/// bucket's files first, and until it ends none is added. A file that was opened before or during the change is not
/// added afterwards either. As a second guard, and against changes from outside, readers check the link count in each
/// second in which they read the file.
final class OpenEntries: Sendable {
    struct Key: Hashable {
        /// ``Generation/number``.
        let generation: UInt64
        let imageKey: ImageKey
    }

    private struct State {
        var open: [Key: (entry: OpenEntry, handle: Sieve<OpenEntry>.Handle)] = [:]
        var byBucket: [DirectoryCache.Key: [OpenEntry]] = [:]
        var queue = Sieve<OpenEntry>()
        /// Buckets whose names are being changed.
        var changing: Set<DirectoryCache.Key> = []
        var changes: UInt64 = 0

        mutating func insert(_ entry: OpenEntry) {
            open[entry.key] = (entry, queue.insert(entry))
            byBucket[entry.bucket, default: []].append(entry)
        }

        mutating func remove(_ entry: OpenEntry) {
            guard let found = open[entry.key], found.entry === entry else { return }
            open[entry.key] = nil
            queue.remove(found.handle)
            removeFromBucket(entry)
        }

        mutating func evict() -> OpenEntry? {
            guard let entry = queue.evict(removeMark: { $0.removeMark() }) else { return nil }
            open[entry.key] = nil
            removeFromBucket(entry)
            return entry
        }

        private mutating func removeFromBucket(_ entry: OpenEntry) {
            byBucket[entry.bucket]?.removeAll { $0 === entry }
            if byBucket[entry.bucket]?.isEmpty == true { byBucket[entry.bucket] = nil }
        }
    }

    private let state = NIOLockedValueBox(State())
    private let capacity: Int

    /// - Parameter capacity: maximum number of open files; 0 disables the cache.
    init(capacity: Int) { self.capacity = capacity }

    var isEnabled: Bool { capacity > 0 }

    subscript(key: Key) -> OpenEntry? {
        guard isEnabled else { return nil }
        let entry = state.withLockedValue { $0.open[key]?.entry }
        entry?.markUsed()
        return entry
    }

    /// Number of changes so far. Read this before opening a file.
    var changes: UInt64 { state.withLockedValue { $0.changes } }

    /// - Parameter changes: ``changes`` before the file was opened. If it differs now, the file may be a replaced one,
    ///   and is not kept.
    func keep(_ entry: OpenEntry, unlessChangedSince changes: UInt64) {
        // Here and below, removed entries are returned, so that their files are closed outside the lock.
        _ = state.withLockedValue { state -> [OpenEntry?] in
            guard isEnabled, state.changes == changes, !state.changing.contains(entry.bucket) else { return [] }
            let older = state.open[entry.key]?.entry
            if let older { state.remove(older) }
            let evicted = state.open.count < capacity ? nil : state.evict()
            state.insert(entry)
            return [older, evicted]
        }
    }

    func remove(_ entry: OpenEntry) { state.withLockedValue { $0.remove(entry) } }

    /// Runs a change of a bucket's names, whose commit lock is held. The bucket's files are closed meanwhile.
    func changing<Result>(_ bucket: DirectoryCache.Key, _ body: () throws -> Result) rethrows -> Result {
        guard isEnabled else { return try body() }
        _ = state.withLockedValue { state -> [OpenEntry] in
            state.changes += 1
            state.changing.insert(bucket)
            let out = state.byBucket[bucket] ?? []
            for entry in out { state.remove(entry) }
            return out
        }
        defer {
            state.withLockedValue { state in
                state.changes += 1
                state.changing.remove(bucket)
            }
        }
        return try body()
    }

    /// Closes the files of a generation. None may be in use.
    func removeAll(of generation: UInt64) { removeAll { $0.key.generation == generation } }

    /// Closes all files that are not in use. Returns false if there were none.
    func closeAll() -> Bool { !removeAll { _ in true }.isEmpty }

    @discardableResult
    private func removeAll(where isOut: (OpenEntry) -> Bool) -> [OpenEntry] {
        state.withLockedValue { state in
            let out = state.open.values.map(\.entry).filter(isOut)
            for entry in out { state.remove(entry) }
            return out
        }
    }
}
