/// The generations on disk, by number and by owner. With its ``Generation`` and its usage, each takes about 250 bytes.
struct KnownGenerations {
    private(set) var byNumber: [UInt64: Generation] = [:]
    /// Ended generations whose directories could not be moved to the trash.
    var notDiscarded: [UInt64: Generation] = [:]
    /// One generation for each ``HashedOwner/key``. An array for each owner would take 100 bytes more.
    private var byKey: [UInt64: Generation] = [:]
    /// Further generations with the same key. Few owners have several, and few owners share a key.
    private var others: [UInt64: [Generation]] = [:]
    private var last: UInt64 = 0

    func all(of owner: HashedOwner) -> [Generation] {
        guard let first = byKey[owner.key] else { return [] }
        return ([first] + (others[owner.key] ?? [])).filter { $0.owner == owner }
    }

    /// Adds a generation, which must be unknown.
    mutating func add(_ id: GenerationID, of owner: HashedOwner, isNew: Bool) -> Generation {
        last += 1
        let generation = Generation(number: last, owner: owner, id: id, isNew: isNew)
        byNumber[generation.number] = generation
        if byKey[owner.key] == nil {
            byKey[owner.key] = generation
        } else {
            others[owner.key, default: []].append(generation)
        }
        return generation
    }

    mutating func remove(_ generation: Generation) {
        byNumber[generation.number] = nil
        notDiscarded[generation.number] = nil
        let key = generation.owner.key
        if byKey[key] === generation {
            byKey[key] = others[key]?.popLast()
        } else {
            others[key]?.removeAll { $0 === generation }
        }
        if others[key]?.isEmpty == true { others[key] = nil }
    }
}
