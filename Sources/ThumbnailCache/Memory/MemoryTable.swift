/// The images of one user that are in memory, by slot, and which sizes there are of a profile: a purge of profiles finds theirs without
/// a look at the others, while every hit waits for the lock that it holds.
///
/// A value. A hit looks at ``entries`` alone.
struct MemoryTable: Sendable {
    /// The sizes of all profiles of one hash: of one profile with one size, as a rule, which takes no memory of its own.
    private struct Sizes: Sendable {
        var first: UInt16
        var others: [UInt16] = []
    }

    private(set) var entries: [Slot: MemoryEntry] = [:]
    /// By a profile's hash, which takes a fifth of the room of the profile. Where two have the same, a size stands here once for each.
    private var sizes: [Int: Sizes] = [:]

    subscript(slot: Slot) -> MemoryEntry? { entries[slot] }

    /// Puts an entry in its slot.
    mutating func insert(_ entry: MemoryEntry) {
        let slot = entry.slot
        guard entries.updateValue(entry, forKey: slot) == nil else { return }
        let hash = slot.profile.hashValue
        if sizes[hash] == nil { sizes[hash] = Sizes(first: slot.size) } else { sizes[hash]?.others.append(slot.size) }
    }

    /// Empties a slot.
    mutating func remove(_ slot: Slot) -> MemoryEntry? {
        guard let entry = entries.removeValue(forKey: slot) else { return nil }
        let hash = slot.profile.hashValue
        if let index = sizes[hash]?.others.lastIndex(of: slot.size) {
            sizes[hash]?.others.remove(at: index)
        } else if let other = sizes[hash]?.others.popLast() {
            sizes[hash]?.first = other
        } else {
            sizes[hash] = nil
        }
        return entry
    }

    /// Empties the slots of a profile. Costs a look at these, however many there are of others.
    mutating func removeAll(of profile: OpaqueID) -> [MemoryEntry] {
        guard let known = sizes[profile.hashValue] else { return [] }
        return ([known.first] + known.others).compactMap { remove(Slot(profile: profile, size: $0)) }
    }
}
