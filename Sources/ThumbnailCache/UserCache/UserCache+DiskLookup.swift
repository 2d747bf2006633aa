import NIOConcurrencyHelpers

/// What a look at the disk that did not wait has seen. Where it showed no image it may save the look that waits.
public struct DiskLookup: Sendable {
    /// The image, if that is the answer.
    public let image: ServedImage?
    fileprivate let cache: UserCache
    /// How many invalidations there had been when there was no image; nil if it is not known whether there is one.
    fileprivate let invalidations: UInt64?
}

extension UserCache {
    /// Answers a GET from disk on the caller's thread, without waiting for anything, where all it takes is in the
    /// kernel's memory. Anything but an image is for ``get(_:after:resolve:)`` to go on with.
    ///
    /// Whatever changes a slot while it is being looked at counts an invalidation, and the look is worth nothing then.
    /// So a purge, a PUT or a download has its effect here as it has on a look that waits (I3, I7).
    public func lookAtDisk(_ query: ImageQuery) -> DiskLookup {
        let slot = query.slot
        let now = services.time.now
        let before = state.withLockedValue { $0.mayLookAtDisk(slot, now: now) ? $0.invalidations : nil }
        var image: ServedImage?
        var isEmpty = false
        if let before {
            switch vault.readCached(slot, framing: services.framing) {
            case .nothing: isEmpty = true
            case .image(let found) where query.accepts(found) && found.record.freshness.state(at: now) == .fresh:
                image = serve(found, from: slot, before, now: now)
            case .image, .unknown: break
            }
        }
        return DiskLookup(image: image, cache: self, invalidations: isEmpty ? before : nil)
    }

    /// Whether the look has shown that there is no image, and nothing has changed since. What was seen in a cache that
    /// has ended says nothing of the next.
    func isStillEmpty(_ lookup: DiskLookup?, _ state: State) -> Bool {
        guard let lookup, lookup.cache === self else { return false }
        return lookup.invalidations == state.invalidations
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
    /// Whether what is on disk is the answer: nothing is going on in the slot, and the origin has not said that there
    /// is nothing. What it no longer has may still be on disk where it could not be removed.
    fileprivate func mayLookAtDisk(_ slot: Slot, now: Int64) -> Bool {
        isOpen && memory[slot] == nil && coordinator.activity[slot] == nil
            && !coordinator.negativeCache.hasMissing(slot, at: now)
    }
}
