import LinuxSupport
import NIOConcurrencyHelpers

extension UserCache {
    /// What the closing of a cache came to.
    struct Closing: Sendable {
        /// Downloads that were stopped.
        let cancelled: Int
        /// Wipes the images that were in memory, where that is not done yet; for a pool.
        let wipe: (@Sendable () -> Void)?
    }

    /// Ends the generation: no new work, waiters answered, downloads cancelled, memory forgotten, then answers on their
    /// way and what the disk is doing drained, and the keys wiped. Blocks until then: call it on a pool. Idempotent.
    /// - Parameter wipesBehind: the images that were in memory are left to the caller to wipe.
    func close(_ failure: CacheFailure = .cancelled, wipesBehind: Bool = false) -> Closing {
        let (ended, memory, earlier) = state.withLockedValue { state in
            state.ending = state.ending ?? failure
            let ended = state.coordinator.end(failure)
            let memory = NIOLockedValueBox(state.memory)
            state.memory = MemoryTable()
            services.counters.count(.memoryHits, state.memoryHits)
            state.memoryHits = 0
            state.account = Account(origin: state.account.origin)
            return (ended, memory, Self.replaceDeliveries(&state))
        }
        if !wipesBehind { Self.wipe(memory, of: services.memory, yield: {}) }
        perform(ended.effects)
        earlier.drain()
        vault.close()
        guard wipesBehind else { return Closing(cancelled: ended.cancelled, wipe: nil) }
        return Closing(cancelled: ended.cancelled) { [tier = services.memory, yield = services.yield] in
            Self.wipe(memory, of: tier, yield: yield)
        }
    }

    /// Takes the entries out of the tier and wipes them, which takes 100 ms for a hundred thousand. Nothing leads to
    /// them any more.
    private static func wipe(
        _ memory: NIOLockedValueBox<MemoryTable>, of tier: MemoryTier, yield: YieldToOthers
    ) {
        var entries = takeOut(memory, yield: yield)
        tier.giveUp(&entries, yield: yield)
    }

    /// Out of the box and the dictionary, so that each goes with the last reference when the tier gives it up, and not
    /// all at the end. To look at a hundred thousand takes milliseconds, in which the receipt of a purge is on its way.
    private static func takeOut(
        _ memory: NIOLockedValueBox<MemoryTable>, yield: YieldToOthers
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

    /// Those that began before, to be waited for.
    private static func replaceDeliveries(_ state: inout State) -> DrainGroup {
        defer { state.deliveries = DrainGroup() }
        return state.deliveries
    }

    /// Removes the images of some profiles, in every size. Blocks on the disk: call it on a pool.
    ///
    /// No write that began earlier can appear afterwards: the fence is set with the profile's commit lock held (I3).
    /// - Throws: ``CacheFailure/inputOutput(_:)`` when an entry could not be removed.
    func purge(_ profiles: [OpaqueID]) throws(CacheFailure) -> (usage: Usage, cancelled: Int) {
        var cancelled = 0
        var effects: [RequestCoordinator.Effect] = []
        var entries: [MemoryEntry] = []
        defer {
            services.memory.remove(entries)
            perform(effects)
            state.withLockedValue { Self.replaceDeliveries(&$0) }.drain()
        }
        do {
            let usage = try vault.remove(profiles) { profile in
                state.withLockedValue { state in
                    state.invalidateLookups(of: profile)
                    let ended = state.coordinator.purge(profile: profile)
                    cancelled += ended.cancelled
                    effects += ended.effects
                    entries += state.memory.removeAll(of: profile)
                }
            }
            return (usage, cancelled)
        } catch {
            throw CacheFailure(error)
        }
    }
}

extension BlockingPool {
    /// Closes a cache, which waits for what the disk is doing.
    func close(
        _ cache: UserCache, _ failure: CacheFailure = .cancelled, wipesBehind: Bool = false
    ) async -> UserCache.Closing {
        await withCheckedContinuation { continuation in
            submit(for: cache.owner.uid) {
                continuation.resume(returning: cache.close(failure, wipesBehind: wipesBehind))
            }
        }
    }
}
