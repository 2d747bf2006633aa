import NIOConcurrencyHelpers

/// Open directories of generations and their buckets, kept so that a hit needs no look-up but its own; at most
/// `capacity`, least recently used first out.
///
/// A directory that goes out stays open for those who work in it. A generation's name is never reused, so opening one
/// again by name is safe.
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
        /// Directories that were removed.
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

    /// Grows whenever a directory is removed. To be looked at before one is opened.
    var removals: UInt64 { state.withLockedValue { $0.removals } }

    /// - Parameter removals: how many there had been before the directory was opened, for whoever does not keep it from
    ///   being removed meanwhile: with one more since, it may be the one that is gone, and is not kept. nil for whoever
    ///   does.
    func insert(_ directory: Directory, for key: Key, unlessRemovedSince removals: UInt64? = nil) {
        // What goes out is returned from the lock, so that it is closed outside of it.
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

    /// The directory is gone.
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

    /// Closes all that nobody works in. False when there was nothing to give up.
    func giveUpAll() -> Bool {
        let out = state.withLockedValue { state in
            defer { state.open = [:] }
            return state.open.values.map(\.directory)
        }
        return !out.isEmpty
    }
}
