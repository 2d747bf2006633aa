import DequeModule

/// A map from image keys and URLs to values that expire, bounded in number and in the account's memory.
///
/// A value. It stores no names or URLs but 128 bits of hashes, seeded in each process; a collision is not to be
/// expected. Entries are found by their profile, and the oldest is evicted first, so that the cost of a call does not
/// grow with the number of entries.
struct ExpiringKeyMap<Value: Sendable>: Sendable {
    private struct Entry: Sendable {
        /// In the order of insertion.
        let number: UInt64
        /// Hash of the image key's code and the URL.
        let key: Int
        let code: UInt16
        /// Seconds since 1970, after which the entry is of no use.
        let until: Int64
        var value: Value
    }

    /// By the profile's hash, the oldest first.
    private var entries: [Int: [Entry]] = [:]
    /// The oldest first; contains removed entries, too.
    private var order: Deque<(profile: Int, number: UInt64)> = []
    private var lastNumber: UInt64 = 0
    private(set) var count = 0
    /// Entries for which memory is reserved.
    private var reserved = 0
    private let limit: Int
    private let memory: MemoryLease

    /// Bytes that an entry counts for: 112 in its array, 16 in the order and 24 in the table of profiles, the last two
    /// twice if they have just grown.
    static var bytesPerEntry: Int { 192 }
    /// Most entries of one profile: they are searched one by one.
    private static var mostOfProfile: Int { 64 }

    /// - Parameter memory: the lease that entries count against.
    init(limit: Int, memory: MemoryLease) {
        self.limit = limit
        self.memory = memory
    }

    /// The last value inserted for that image key and URL and not removed since, possibly expired.
    subscript(imageKey: ImageKey, url: String) -> Value? {
        guard count > 0, let known = entries[imageKey.profile.hashValue] else { return nil }
        let key = Self.hash(imageKey.code, url)
        return known.first { $0.key == key }?.value
    }

    func contains(_ imageKey: ImageKey, where condition: (Value) -> Bool) -> Bool {
        guard count > 0, let known = entries[imageKey.profile.hashValue] else { return false }
        return known.contains { $0.code == imageKey.code && condition($0.value) }
    }

    /// Inserts a value, unless there is neither memory for it nor an older entry to evict.
    mutating func insert(_ imageKey: ImageKey, url: String, _ value: Value, until: Int64, now: Int64) {
        guard until > now, limit > 0 else { return }
        defer { compact() }
        while removeOldest(where: { $0.until <= now }) {}
        let (profile, key) = (imageKey.profile.hashValue, Self.hash(imageKey.code, url))
        remove(profile) { $0.key == key }
        if let known = entries[profile], known.count >= Self.mostOfProfile, let oldest = known.first {
            remove(profile) { $0.number == oldest.number }
        }
        while count >= limit, removeOldest() {}
        if count == reserved {
            if memory.reserve(Self.bytesPerEntry) { reserved += 1 } else if !removeOldest() { return }
        }
        lastNumber += 1
        entries[profile, default: []].append(
            Entry(number: lastNumber, key: key, code: imageKey.code, until: until, value: value))
        order.append((profile, lastNumber))
        count += 1
    }

    mutating func remove(_ imageKey: ImageKey) {
        guard count > 0 else { return }
        remove(imageKey.profile.hashValue) { $0.code == imageKey.code }
        compact()
    }

    mutating func remove(profile: OpaqueID) {
        guard count > 0 else { return }
        remove(profile.hashValue) { _ in true }
        compact()
    }

    mutating func removeAll() {
        memory.release(reserved * Self.bytesPerEntry)
        self = ExpiringKeyMap(limit: limit, memory: memory)
    }

    /// The entries of a profile, in a map that accepts no others.
    func excerpt(_ profile: OpaqueID) -> ExpiringKeyMap {
        var excerpt = ExpiringKeyMap(limit: 0, memory: memory)
        guard count > 0, let known = entries[profile.hashValue] else { return excerpt }
        excerpt.entries[profile.hashValue] = known
        (excerpt.count, excerpt.reserved) = (known.count, known.count)
        return excerpt
    }

    // MARK: Entries

    private static func hash(_ code: UInt16, _ url: String) -> Int {
        var hasher = Hasher()
        hasher.combine(code)
        hasher.combine(url)
        return hasher.finalize()
    }

    private mutating func remove(_ profile: Int, where condition: (Entry) -> Bool) {
        guard let before = entries[profile]?.count else { return }
        entries[profile]?.removeAll(where: condition)
        let left = entries[profile]?.count ?? 0
        count -= before - left
        if left == 0 { entries[profile] = nil }
    }

    /// Removes the oldest entry if it satisfies the condition. Returns whether an entry was removed.
    @discardableResult
    private mutating func removeOldest(where condition: (Entry) -> Bool = { _ in true }) -> Bool {
        while let (profile, number) = order.first {
            // The entries of a profile have the same order.
            let oldest = entries[profile]?.first.flatMap { $0.number == number ? $0 : nil }
            if let oldest, !condition(oldest) { return false }
            order.removeFirst()
            guard oldest != nil else { continue }
            remove(profile) { $0.number == number }
            return true
        }
        return false
    }

    /// Returns memory of removed entries.
    private mutating func compact() {
        memory.release((reserved - count) * Self.bytesPerEntry)
        reserved = count
        if order.count > 2 * count + 64 {
            let known = Set(entries.values.joined().map(\.number))
            order = Deque(order.filter { known.contains($0.number) })
        }
        if entries.capacity > 4 * entries.count + 64 {
            entries = Dictionary(uniqueKeysWithValues: Array(entries))
        }
    }
}
