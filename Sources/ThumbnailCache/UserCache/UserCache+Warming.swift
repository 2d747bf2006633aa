import DequeModule
import NIOConcurrencyHelpers

/// What a user's cache is to have downloaded before anybody asks for it: a few at a time, behind whoever waits.
struct WarmingList {
    /// Those that wait for their turn, in the order they came.
    private var waiting: Deque<Slot> = []
    /// These, and those under way.
    private var known: Set<Slot> = []
    private var underWay = 0
    /// What they take up.
    private let memory: MemoryLease

    /// Downloads of one user at a time. The origin's own limit is above it, so that there is always room for a GET.
    private static var mostAtOnce: Int { 2 }
    /// Images of one user that may wait: a few times the contacts that anybody has.
    static var most: Int { 10_000 }

    init(memory: MemoryLease) {
        self.memory = memory
    }

    private static func cost(of slot: Slot) -> Int { 160 + slot.profile.count }

    /// Adds what is not there yet.
    /// - Returns: whether the slot was added.
    /// - Throws: `busy` where there is no room for it.
    mutating func add(_ slot: Slot) throws(CacheFailure) -> Bool {
        guard !known.contains(slot) else { return false }
        guard waiting.count < Self.most else {
            throw .busy("\(Self.most) images of this user wait to be downloaded already: try again")
        }
        guard memory.take(Self.cost(of: slot)) else { throw .busy(memory.refusal) }
        known.insert(slot)
        waiting.append(slot)
        return true
    }

    /// The next whose turn it is; nil where there is none, or enough are under way.
    mutating func next() -> Slot? {
        guard underWay < Self.mostAtOnce, let slot = waiting.popFirst() else { return nil }
        underWay += 1
        return slot
    }

    /// Takes a profile that is purged out of those that wait.
    mutating func remove(_ profile: OpaqueID) {
        for slot in waiting where slot.profile == profile {
            known.remove(slot)
            memory.give(Self.cost(of: slot))
        }
        waiting.removeAll { $0.profile == profile }
    }

    mutating func ended(_ slot: Slot) {
        guard known.remove(slot) != nil else { return }
        underWay -= 1
        memory.give(Self.cost(of: slot))
    }
}

extension UserCache {
    /// Has images downloaded that are missing or stale, at low priority: two at a time, so that whoever waits for an
    /// image goes before. What becomes of them, events tell. Looks at the disk: call it on a pool.
    /// - Returns: how many were added to those that wait.
    /// - Throws: `busy` where there is no room for them all; those before stay. ``CacheFailure/cancelled`` behind an
    ///   ending.
    func warm(_ slots: [Slot]) throws(CacheFailure) -> Int {
        var count = 0
        // Also for those that came before one that found no room.
        defer { services.disk.submit(for: owner.uid) { self.warmNext() } }
        for slot in slots where !isFresh(slot) {
            let slot = slot.detached()
            let added = state.withLockedValue { state in
                Result { () throws(CacheFailure) in
                    if let ending = state.ending { throw ending }
                    return try state.warming.add(slot)
                }
            }
            if try added.get() { count += 1 }
        }
        return count
    }

    /// The same, some at a time, so that others have their turns in between (F66).
    public func warm(_ slots: [Slot]) async throws(CacheFailure) -> Int {
        var count = 0
        for start in stride(from: 0, to: slots.count, by: Self.looksAtOnce) {
            let some = Array(slots[start...].prefix(Self.looksAtOnce))
            count += try await services.disk.run(for: owner.uid) { try self.warm(some) as Int }
        }
        return count
    }

    private static var looksAtOnce: Int { 16 }

    /// Begins no more. What is under way goes on.
    func stopWarming() {
        state.withLockedValue { $0.warming = WarmingList(memory: services.budget.lease(for: owner.uid)) }
    }

    /// Whether a GET would be answered without a download.
    private func isFresh(_ slot: Slot) -> Bool {
        hit(slot) != nil || lookAtDisk(ImageQuery(slot: slot)).image != nil
    }

    /// Begins what may be begun. Each that ends comes back here, by the pool and so by turns with others.
    private func warmNext() {
        while let slot = state.withLockedValue({ $0.isOpen ? $0.warming.next() : nil }) {
            get(ImageQuery(slot: slot, download: .renewed)) { [weak self] _ in
                guard let self else { return }
                state.withLockedValue { $0.warming.ended(slot) }
                services.disk.submit(for: owner.uid) { self.warmNext() }
            }
        }
    }
}
