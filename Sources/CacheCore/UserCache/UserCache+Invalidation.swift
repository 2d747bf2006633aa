import LinuxSupport
import NIOConcurrencyHelpers

extension UserCache {
    /// Closes the generation: refuses new work, resolves waiters, cancels downloads, empties memory, waits for
    /// deliveries and disk operations in progress, and wipes the keys. Blocks until then. Idempotent.
    /// - Parameter wipesLater: whether the caller wipes the images that were in memory.
    /// - Returns: how many downloads were cancelled, and the work that wipes those images, for a pool.
    func close(
        _ failure: CacheFailure = .cancelled, wipesLater: Bool = false
    ) -> (cancelled: Int, wipe: (@Sendable () -> Void)?) {
        let (ended, memory, deliveries) = state.withLockedValue { state in
            state.closeReason = state.closeReason ?? failure
            let ended = state.coordinator.end(failure)
            let memory = NIOLockedValueBox(state.memory)
            state.memory = MemoryTable()
            services.counters.count(.memoryHits, state.memoryHits)
            state.memoryHits = 0
            state.credentials = Credentials(origin: state.credentials.origin)
            state.warming = WarmingList(memory: services.budget.lease(for: owner.uid))
            return (ended, memory, state.replaceDeliveries())
        }
        if !wipesLater { Self.wipe(memory, of: services.memory, yield: {}) }
        perform(ended.effects)
        deliveries.drain()
        generationStore.close()
        // Closes the uid's renderer workers, whose memory holds images.
        services.renderer?.forget(owner.uid)
        guard wipesLater else { return (ended.cancelled, nil) }
        let (tier, yield) = (services.memory, services.yield)
        return (ended.cancelled, { Self.wipe(memory, of: tier, yield: yield) })
    }

    /// Removes entries from the tier and wipes them: 100 ms for a hundred thousand.
    private static func wipe(_ memory: NIOLockedValueBox<MemoryTable>, of tier: MemoryTier, yield: YieldToOthers) {
        var entries = removeEntries(from: memory, yield: yield)
        tier.wipe(&entries, yield: yield)
    }

    /// Moves the entries into an array, so that the tier frees them in batches. Listing a hundred thousand takes
    /// milliseconds.
    private static func removeEntries(
        from memory: NIOLockedValueBox<MemoryTable>, yield: YieldToOthers
    ) -> [MemoryEntry] {
        let held = memory.withLockedValue { memory in
            defer { memory = MemoryTable() }
            return memory.entries
        }
        var entries: [MemoryEntry] = []
        entries.reserveCapacity(held.count)
        for entry in held.values {
            entries.append(entry)
            if entries.count.isMultiple(of: 256) { yield() }
        }
        return entries
    }

    /// Waits until every result decided so far is delivered. Blocks.
    func drainDeliveries() { state.withLockedValue { $0.replaceDeliveries() }.drain() }

    /// Removes the images of some profiles, in every size. Blocks on the disk. The fence is set under the profile's
    /// commit lock, so no write that began earlier can appear afterwards (I3).
    /// - Throws: `inputOutput` if an entry could not be removed.
    func purge(_ profiles: [OpaqueID]) throws(CacheFailure) -> (usage: Usage, cancelled: Int) {
        var cancelled = 0
        var entries: [MemoryEntry] = []
        defer {
            services.memory.remove(entries)
            drainDeliveries()
            services.renderer?.forget(owner.uid)
        }
        do {
            let usage = try generationStore.remove(
                profiles,
                fence: { profile in
                    let ended = state.withLockedValue { state in
                        state.beingRemoved.insert(profile)
                        state.removals += 1
                        state.invalidateLookups()
                        state.warming.remove(profile)
                        entries += state.memory.removeAll(of: profile)
                        return state.coordinator.purge(profile: profile)
                    }
                    cancelled += ended.cancelled
                    // Before the removal, so that no waiter waits for the disk.
                    perform(ended.effects)
                },
                removed: { profile in state.withLockedValue { _ = $0.beingRemoved.remove(profile) } })
            return (usage, cancelled)
        } catch {
            throw CacheFailure(error)
        }
    }
}
