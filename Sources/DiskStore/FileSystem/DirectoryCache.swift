import NIOConcurrencyHelpers

/// Open directories of generations and buckets, so that a hit needs no further lookup. Discards the least recently used
/// when full; a discarded directory stays open while an operation uses it.
///
/// Reopening by name is safe, because names of generations are never reused.
final class DirectoryCache: Sendable {
    struct Key: Hashable {
        /// ``Generation/number``.
        let generation: UInt64
        /// nil for the generation's own directory.
        let bucket: UInt8?
    }

    private struct State {
        var open: [Key: (directory: Directory, lastUse: UInt64)] = [:]
        var uses: UInt64 = 0
        var removals: UInt64 = 0
    }

    private let state = NIOLockedValueBox(State())
    private let capacity: Int

    init(capacity: Int) { self.capacity = max(1, capacity) }

    subscript(key: Key) -> Directory? {
        state.withLockedValue { state in
            state.uses += 1
            let now = state.uses
            guard let index = state.open.index(forKey: key) else { return nil }
            state.open.values[index].lastUse = now
            return state.open.values[index].directory
        }
    }

    /// Number of directories removed so far. Read this before opening a directory.
    var removals: UInt64 { state.withLockedValue { $0.removals } }

    /// - Parameter removals: ``removals`` before the directory was opened. If it has changed, the directory
    ///   may have been removed, and is not added. Nil if the caller prevents removals meanwhile.
    func insert(_ directory: Directory, for key: Key, unlessRemovedSince removals: UInt64? = nil) {
        // The discarded directory is returned, so that it is closed outside the lock.
        _ = state.withLockedValue { state -> Directory? in
            if let removals, removals != state.removals { return nil }
            var out: Directory?
            if state.open.count >= capacity, let oldest = state.open.min(by: { $0.value.lastUse < $1.value.lastUse }) {
                out = oldest.value.directory
                state.open[oldest.key] = nil
            }
            state.uses += 1
            state.open[key] = (directory, state.uses)
            return out
        }
    }

    func remove(_ key: Key) {
        _ = state.withLockedValue { state in
            state.removals += 1
            return state.open.removeValue(forKey: key)
        }
    }

    func removeAll(of generation: UInt64) {
        _ = state.withLockedValue { state in
            let out = state.open.filter { $0.key.generation == generation }
            for key in out.keys { state.open[key] = nil }
            return out.values.map(\.directory)
        }
    }

    /// Discards all directories and closes those not in use. Returns false if the cache was empty.
    func closeAll() -> Bool {
        let out = state.withLockedValue { state in
            defer { state.open = [:] }
            return state.open.values.map(\.directory)
        }
        return !out.isEmpty
    }
}
