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
            count += try await services.imagePool.run(for: owner.uid) { try self.warm(some) as Int }
        }
        return count
    }

    private static var lookupsAtOnce: Int { 16 }

    /// The same without yielding. Call it on a pool.
    func warm(_ imageKeys: [ImageKey]) throws(CacheFailure) -> Int {
        var count = 0
        // Also if the queue is full: the image keys before it are queued.
        defer { services.imagePool.submit(for: owner.uid) { self.warmNext() } }
        for imageKey in imageKeys where !isFresh(imageKey) {
            let imageKey = imageKey.detached()
            let added = state.withLockedValue { state in
                Result { () throws(CacheFailure) in
                    if let closeReason = state.closeReason { throw closeReason }
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
                services.imagePool.submit(for: owner.uid) { self.warmNext() }
            }
        }
    }

    /// Empties the queue. Downloads in progress continue.
    func stopWarming() {
        state.withLockedValue { $0.warming = WarmingList(memory: services.budget.lease(for: owner.uid)) }
    }
}
