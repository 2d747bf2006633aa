import NIOConcurrencyHelpers

extension UserCache {
    /// Answers a GET from disk on the caller's thread, without waiting for anything, where all it takes is in the kernel's
    /// memory. Nil says nothing: then ask ``get(_:resolve:)``.
    ///
    /// Whatever changes a slot while it is being looked at counts an overtaking, and the look is worth nothing then. So a purge,
    /// a PUT or a download has its effect here as it has on a look that waits (I3, I7).
    public func glance(_ query: ImageQuery) -> ServedImage? {
        let slot = query.slot
        let now = services.time.now
        let before = state.withLockedValue { $0.mayGlance(slot, now: now) ? $0.overtakings : nil }
        guard let before, let image = vault.glance(slot, framing: services.framing), query.accepts(image),
            image.record.freshness.state(at: now) == .fresh
        else { return nil }
        let kept = services.memory.admits(image) ? slot.detached() : nil
        let change = state.withLockedValue { state -> MemoryChange? in
            guard state.isOpen, state.overtakings == before else { return nil }
            return kept.map { remember(image, in: $0, &state) } ?? MemoryChange()
        }
        guard let change else { return nil }
        if kept != nil { apply(change) }
        services.counters.diskHits.count()
        return ServedImage(image: image, source: .disk, isStale: false)
    }
}

extension UserCache.State {
    /// Whether what is on disk is the answer: nothing is going on in the slot, and the origin has not said that there is nothing.
    /// What it no longer has may still be on disk where it could not be removed.
    fileprivate func mayGlance(_ slot: Slot, now: Int64) -> Bool {
        isOpen && memory[slot] == nil && traffic.activity[slot] == nil && !traffic.absences.holdsAny(slot, at: now)
    }
}
