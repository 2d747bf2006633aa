import DequeModule
import NIOConcurrencyHelpers

/// What a user's cache is to have downloaded before anybody asks for it: a few at a time, behind whoever waits.
struct WarmingList {
    /// Those that wait for their turn, in the order they came.
    private var waiting: Deque<ImageKey> = []
    /// These, and those under way.
    private var known: Set<ImageKey> = []
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

    private static func cost(of imageKey: ImageKey) -> Int { 160 + imageKey.profile.count }

    /// Adds what is not there yet.
    /// - Returns: whether the image key was added.
    /// - Throws: `busy` where there is no room for it.
    mutating func add(_ imageKey: ImageKey) throws(CacheFailure) -> Bool {
        guard !known.contains(imageKey) else { return false }
        guard waiting.count < Self.most else {
            throw .busy("\(Self.most) images of this user wait to be downloaded already: try again")
        }
        guard memory.take(Self.cost(of: imageKey)) else { throw .busy(memory.refusal) }
        known.insert(imageKey)
        waiting.append(imageKey)
        return true
    }

    /// The next whose turn it is; nil where there is none, or enough are under way.
    mutating func next() -> ImageKey? {
        guard underWay < Self.mostAtOnce, let imageKey = waiting.popFirst() else { return nil }
        underWay += 1
        return imageKey
    }

    /// Takes a profile that is purged out of those that wait.
    mutating func remove(_ profile: OpaqueID) {
        for imageKey in waiting where imageKey.profile == profile {
            known.remove(imageKey)
            memory.give(Self.cost(of: imageKey))
        }
        waiting.removeAll { $0.profile == profile }
    }

    mutating func ended(_ imageKey: ImageKey) {
        guard known.remove(imageKey) != nil else { return }
        underWay -= 1
        memory.give(Self.cost(of: imageKey))
    }
}

extension UserCache {
    /// Has images downloaded that are missing or stale, at low priority: two at a time, so that whoever waits for an
    /// image goes before. What becomes of them, events tell. Looks at the disk: call it on a pool.
    /// - Returns: how many were added to those that wait.
    /// - Throws: `busy` where there is no room for them all; those before stay. ``CacheFailure/cancelled`` behind an
    ///   ending.
    func warm(_ imageKeys: [ImageKey]) throws(CacheFailure) -> Int {
        var count = 0
        // Also for those that came before one that found no room.
        defer { services.disk.submit(for: owner.uid) { self.warmNext() } }
        for imageKey in imageKeys where !isFresh(imageKey) {
            let imageKey = imageKey.detached()
            let added = state.withLockedValue { state in
                Result { () throws(CacheFailure) in
                    if let invalidation = state.invalidation { throw invalidation }
                    return try state.warming.add(imageKey)
                }
            }
            if try added.get() { count += 1 }
        }
        return count
    }

    /// The same, some at a time, so that others have their turns in between (F66).
    public func warm(_ imageKeys: [ImageKey]) async throws(CacheFailure) -> Int {
        var count = 0
        for start in stride(from: 0, to: imageKeys.count, by: Self.looksAtOnce) {
            let some = Array(imageKeys[start...].prefix(Self.looksAtOnce))
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
    private func isFresh(_ imageKey: ImageKey) -> Bool {
        hit(imageKey) != nil || lookAtDisk(ImageQuery(imageKey: imageKey)).image != nil
    }

    /// Begins what may be begun. Each that ends comes back here, by the pool and so by turns with others.
    private func warmNext() {
        while let imageKey = state.withLockedValue({ $0.isOpen ? $0.warming.next() : nil }) {
            get(ImageQuery(imageKey: imageKey, download: .renewed)) { [weak self] _ in
                guard let self else { return }
                state.withLockedValue { $0.warming.ended(imageKey) }
                services.disk.submit(for: owner.uid) { self.warmNext() }
            }
        }
    }
}
