/// The images of one user in memory, by image key, with an index of each profile's image keys: a purge of profiles
/// holds the lock that every hit needs, so it must not scan all entries.
///
/// A value. A hit reads only ``entries``.
struct MemoryTable: Sendable {
    /// Codes of the image keys of all profiles with one hash. Usually one code, which needs no allocation.
    private struct Codes: Sendable {
        var first: UInt16
        var others: [UInt16] = []
    }

    private(set) var entries: [ImageKey: MemoryEntry] = [:]
    /// By the profile's hash, which is a fifth as long. Profiles with equal hashes share an entry.
    private var codes: [Int: Codes] = [:]

    subscript(imageKey: ImageKey) -> MemoryEntry? { entries[imageKey] }

    /// Replaces the entry with the same image key, if any.
    mutating func insert(_ entry: MemoryEntry) {
        let imageKey = entry.imageKey
        guard entries.updateValue(entry, forKey: imageKey) == nil else { return }
        let hash = imageKey.profile.hashValue
        if codes[hash] == nil {
            codes[hash] = Codes(first: imageKey.code)
        } else {
            codes[hash]?.others.append(imageKey.code)
        }
    }

    mutating func remove(_ imageKey: ImageKey) -> MemoryEntry? {
        guard let entry = entries.removeValue(forKey: imageKey) else { return nil }
        let hash = imageKey.profile.hashValue
        if let index = codes[hash]?.others.lastIndex(of: imageKey.code) {
            codes[hash]?.others.remove(at: index)
        } else if let other = codes[hash]?.others.popLast() {
            codes[hash]?.first = other
        } else {
            codes[hash] = nil
        }
        return entry
    }

    mutating func removeAll(of profile: OpaqueID) -> [MemoryEntry] {
        guard let known = codes[profile.hashValue] else { return [] }
        return ([known.first] + known.others).compactMap { remove(ImageKey(profile: profile, code: $0)) }
    }

    /// Removes a profile's renditions, except those of `source` with its current freshness.
    mutating func removeRenditions(of profile: OpaqueID, but source: Image?) -> [MemoryEntry] {
        guard let known = codes[profile.hashValue], !known.others.isEmpty || known.first != 0 else { return [] }
        return ([known.first] + known.others).compactMap { code in
            let imageKey = ImageKey(profile: profile, code: code)
            guard let record = entries[imageKey]?.served.image.record, let digest = record.sourceDigest else {
                return nil
            }
            if let source = source?.record, digest == source.digest, record.freshness == source.freshness { return nil }
            return remove(imageKey)
        }
    }
}
