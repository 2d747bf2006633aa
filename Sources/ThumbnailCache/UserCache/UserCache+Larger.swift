import NIOConcurrencyHelpers

extension UserCache {
    /// Images that are looked at, at most, to find one that stands in for a size that is missing.
    private static var mostLookedAt: Int { 4 }

    /// Looks for a larger image; on the pool. Costs a listing of one bucket, and a read of what memory does not hold.
    func findLarger(_ slot: Slot, _ flight: UInt64) {
        let before = state.withLockedValue { $0.invalidations }
        let found = larger(than: slot)
        let now = services.time.now
        change { state in
            let effects = state.coordinator.largerEnded(
                slot, flight, found: found, isUnchanged: state.invalidations == before, now: now)
            return Consequences(effects: effects)
        }
    }

    private func larger(than slot: Slot) -> (image: ServedImage, slot: Slot)? {
        do {
            let sizes = try vault.sizes(of: slot.profile)
            let now = services.time.now
            let slots = state.withLockedValue { $0.coordinator.largerSlots(than: slot, onDisk: sizes) }
            for slot in slots.prefix(Self.mostLookedAt) {
                let inMemory = state.withLockedValue { $0.coordinator.storing(slot) ?? $0.memory[slot]?.served }
                let read = inMemory == nil ? try vault.read(slot, framing: services.framing) : nil
                guard let image = inMemory?.image ?? read,
                    state.withLockedValue({ $0.coordinator.mayStandIn(image, of: slot, now: now) })
                else { continue }
                return (ServedImage(image, from: inMemory == nil ? .disk : .memory, at: now), slot)
            }
            return nil
        } catch {
            // Closed under our feet: whoever waited has been answered by what closed it.
            return nil
        }
    }
}
