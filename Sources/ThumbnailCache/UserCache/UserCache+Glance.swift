import NIOConcurrencyHelpers

/// What came of a look at the disk that did not wait.
public enum Glimpse: Sendable {
    case image(ServedImage)
    /// There was no image, when there had been so many invalidations of looks. For the cache that was asked, and no other.
    case nothing(invalidations: UInt64)
    case unknown

    public var image: ServedImage? {
        if case .image(let served) = self { served } else { nil }
    }
}

extension UserCache {
    /// Answers a GET from disk on the caller's thread, without waiting for anything, where all it takes is in the kernel's
    /// memory. Anything but an image is for ``get(_:after:resolve:)`` to go on with.
    ///
    /// Whatever changes a slot while it is being looked at counts an invalidation, and the look is worth nothing then. So a purge,
    /// a PUT or a download has its effect here as it has on a look that waits (I3, I7).
    public func glance(_ query: ImageQuery) -> Glimpse {
        let slot = query.slot
        let now = services.time.now
        let before = state.withLockedValue { $0.mayGlance(slot, now: now) ? $0.invalidations : nil }
        guard let before else { return .unknown }
        switch vault.glance(slot, framing: services.framing) {
        case .nothing:
            return .nothing(invalidations: before)
        case .image(let image) where query.accepts(image) && image.record.freshness.state(at: now) == .fresh:
            return serve(image, from: slot, before, now: now).map { .image($0) } ?? .unknown
        case .image, .unknown:
            return .unknown
        }
    }

    /// Nil when the look was overtaken.
    private func serve(_ image: Image, from slot: Slot, _ before: UInt64, now: Int64) -> ServedImage? {
        let kept = services.memory.admits(image) ? slot.detached() : nil
        let change = state.withLockedValue { state -> MemoryChange? in
            guard state.isOpen, state.invalidations == before, state.coordinator.suits(image) else { return nil }
            return kept.map { remember(image, in: $0, &state) } ?? MemoryChange()
        }
        guard let change else { return nil }
        if kept != nil { apply(change) }
        services.counters.count(.diskHits)
        return ServedImage(image, from: .disk, at: now)
    }
}

extension UserCache.State {
    /// Whether what is on disk is the answer: nothing is going on in the slot, and the origin has not said that there is nothing.
    /// What it no longer has may still be on disk where it could not be removed.
    fileprivate func mayGlance(_ slot: Slot, now: Int64) -> Bool {
        isOpen && memory[slot] == nil && coordinator.activity[slot] == nil
            && !coordinator.negativeCache.holdsAny(slot, at: now)
    }
}
