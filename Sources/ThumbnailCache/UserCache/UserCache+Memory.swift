import NIOConcurrencyHelpers

// The memory tier as one user's cache sees it. Entries are found here, under the cache's own lock; the tier only decides which
// go. It is told of changes after the lock is let go, since it calls back with its own.

extension UserCache {
    /// What the tier is to be told.
    struct MemoryChange: Sendable {
        var added: MemoryEntry?
        var removed: [MemoryEntry] = []
    }

    /// Puts an image into memory in place of what the slot held.
    func remember(
        _ image: Image, in slot: Slot, _ state: inout State
    ) -> MemoryChange {
        var change = forget(slot, &state)
        guard services.memory.admits(image) else { return change }
        let entry = MemoryEntry(
            served: ServedImage(image, from: .memory, at: services.time.now), slot: slot, uid: payer,
            onEvict: { [weak self] entry in self?.evicted(entry) })
        state.memory.insert(entry)
        change.added = entry
        return change
    }

    func forget(_ slot: Slot, _ state: inout State) -> MemoryChange {
        MemoryChange(removed: state.memory.remove(slot).map { [$0] } ?? [])
    }

    /// Tells the tier. Never with the cache's lock held.
    func apply(_ change: MemoryChange) {
        services.memory.remove(change.removed)
        if let added = change.added { services.memory.admit(added) }
    }

    private func evicted(_ entry: MemoryEntry) {
        state.withLockedValue { state in
            if state.memory[entry.slot] === entry { _ = state.memory.remove(entry.slot) }
        }
    }
}
