import DequeModule
import NIOConcurrencyHelpers

extension UserCache {
    /// Queues downloads of missing and stale images in the background, two at a time, so that GETs go first. Events
    /// report the results. Reads from disk in batches, so that other accounts have turns in between (F66).
    /// - Returns: how many image keys were queued.
    /// - Throws: `busy` if the queue is full; image keys added before stay. `cancelled` after an invalidation.
    public func warm(_ imageKeys: [ImageKey]) async throws(CacheFailure) -> Int {
        var count = 0
        for start in stride(from: 0, to: imageKeys.count, by: Self.lookupsAtOnce) {
            let some = Array(imageKeys[start...].prefix(Self.lookupsAtOnce))
            count += try await services.disk.run(for: owner.uid) { try self.warm(some) as Int }
        }
        return count
    }

    private static var lookupsAtOnce: Int { 16 }

    /// The same without yielding. Call it on a pool.
    func warm(_ imageKeys: [ImageKey]) throws(CacheFailure) -> Int {
        var count = 0
        // Also if the queue is full: the image keys before it are queued.
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

    private func isFresh(_ imageKey: ImageKey) -> Bool {
        hit(imageKey) != nil || lookUpOnDisk(ImageQuery(imageKey: imageKey)).image != nil
    }

    /// Starts downloads up to the limit. Each one that ends calls this again on the pool, in turns with other work.
    private func warmNext() {
        while let imageKey = state.withLockedValue({ $0.isOpen ? $0.warming.popNext() : nil }) {
            get(ImageQuery(imageKey: imageKey, download: .renewed)) { [weak self] _ in
                guard let self else { return }
                state.withLockedValue { $0.warming.ended(imageKey) }
                services.disk.submit(for: owner.uid) { self.warmNext() }
            }
        }
    }

    /// Empties the queue. Downloads in progress continue.
    func stopWarming() {
        state.withLockedValue { $0.warming = WarmingList(memory: services.budget.lease(for: owner.uid)) }
    }
}

/// The queue of images to download in the background for one user.
struct WarmingList {
    /// In the order of arrival.
    private var waiting: Deque<ImageKey> = []
    /// Those waiting and those in progress.
    private var known: Set<ImageKey> = []
    private var inProgress = 0
    private let memory: MemoryLease

    /// Downloads of one user at a time. Less than the origin's own limit, so that a GET always finds room.
    private static var mostAtOnce: Int { 2 }
    /// Most waiting image keys of one user: several times the number of a user's contacts.
    static var most: Int { 10_000 }

    init(memory: MemoryLease) {
        self.memory = memory
    }

    private static func cost(of imageKey: ImageKey) -> Int { 160 + imageKey.profile.count }

    /// Adds an image key. Returns false if it is known.
    /// - Throws: `busy` if the queue or the account's memory is full.
    mutating func add(_ imageKey: ImageKey) throws(CacheFailure) -> Bool {
        guard !known.contains(imageKey) else { return false }
        guard waiting.count < Self.most else {
            throw .busy("\(Self.most) images of this user are queued for WARM; try again later")
        }
        guard memory.reserve(Self.cost(of: imageKey)) else { throw .busy(memory.refusal) }
        known.insert(imageKey)
        waiting.append(imageKey)
        return true
    }

    /// Removes the next image key to download; nil if none waits or enough are in progress.
    mutating func popNext() -> ImageKey? {
        guard inProgress < Self.mostAtOnce, let imageKey = waiting.popFirst() else { return nil }
        inProgress += 1
        return imageKey
    }

    mutating func remove(_ profile: OpaqueID) {
        for imageKey in waiting where imageKey.profile == profile {
            known.remove(imageKey)
            memory.release(Self.cost(of: imageKey))
        }
        waiting.removeAll { $0.profile == profile }
    }

    mutating func ended(_ imageKey: ImageKey) {
        guard known.remove(imageKey) != nil else { return }
        inProgress -= 1
        memory.release(Self.cost(of: imageKey))
    }
}
