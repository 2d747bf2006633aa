import CacheCore
import NIOConcurrencyHelpers
import Synchronization

/// Open directories of generations and buckets, so that a hit needs no further lookup. When full, SIEVE selects which to
/// discard; a discarded directory stays open while an operation uses it.
///
/// Reopening by name is safe, because names of generations are never reused.
final class DirectoryCache: Sendable {
    struct Key: Hashable {
        /// ``Generation/number``.
        let generation: UInt64
        /// nil for the generation's own directory.
        let bucket: UInt8?
    }

    private final class Entry: Sendable {
        let key: Key
        let directory: Directory
        private let isUsed = Atomic(false)

        init(_ key: Key, _ directory: Directory) { (self.key, self.directory) = (key, directory) }

        func markUsed() { if !isUsed.load(ordering: .relaxed) { isUsed.store(true, ordering: .relaxed) } }

        func removeMark() -> Bool { isUsed.exchange(false, ordering: .relaxed) }
    }

    private struct State {
        var open: [Key: (entry: Entry, handle: Sieve<Entry>.Handle)] = [:]
        var queue = Sieve<Entry>()
        var removals: UInt64 = 0

        mutating func remove(_ key: Key) -> Directory? {
            guard let found = open.removeValue(forKey: key) else { return nil }
            queue.remove(found.handle)
            return found.entry.directory
        }
    }

    private let state = NIOLockedValueBox(State())
    private let capacity: Int

    init(capacity: Int) { self.capacity = max(1, capacity) }

    subscript(key: Key) -> Directory? {
        guard let entry = state.withLockedValue({ $0.open[key]?.entry }) else { return nil }
        entry.markUsed()
        return entry.directory
    }

    /// Number of directories removed so far. Read this before opening a directory.
    var removals: UInt64 { state.withLockedValue { $0.removals } }

    /// - Parameter removals: ``removals`` before the directory was opened. If it has changed, the directory
    ///   may have been removed, and is not added. Nil if the caller prevents removals meanwhile.
    func insert(_ directory: Directory, for key: Key, unlessRemovedSince removals: UInt64? = nil) {
        // The discarded directories are returned, so that they are closed outside the lock.
        _ = state.withLockedValue { state -> [Directory?] in
            if let removals, removals != state.removals { return [] }
            let replaced = state.remove(key)
            var evicted: Directory?
            if state.open.count >= capacity, let entry = state.queue.evict(removeMark: { $0.removeMark() }) {
                state.open[entry.key] = nil
                evicted = entry.directory
            }
            let entry = Entry(key, directory)
            state.open[key] = (entry, state.queue.insert(entry))
            return [replaced, evicted]
        }
    }

    func remove(_ key: Key) {
        _ = state.withLockedValue { state in
            state.removals += 1
            return state.remove(key)
        }
    }

    func removeAll(of generation: UInt64) {
        _ = state.withLockedValue { state in
            state.open.keys.filter { $0.generation == generation }.map { state.remove($0) }
        }
    }

    /// Discards all directories and closes those not in use. Returns false if the cache was empty.
    func closeAll() -> Bool {
        let out = state.withLockedValue { state in
            defer { (state.open, state.queue) = ([:], Sieve()) }
            return state.open.values.map(\.entry.directory)
        }
        return !out.isEmpty
    }
}
