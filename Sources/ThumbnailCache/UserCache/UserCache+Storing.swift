import NIOConcurrencyHelpers

// The way of a downloaded image to the disk, behind the back of those who have it already.

extension UserCache {
    /// Has a downloaded image written. While it waits for its turn the coordinator alone holds the image: with an ending it goes (I11).
    func storeLater(_ slot: Slot, _ flight: UInt64) {
        guard let image = toStore(slot, flight) else { return }
        let piece = WriteBehind.Piece(uid: payer, bytes: image.bytes.storage) {
            self.store(slot, flight)
        }
        guard !services.writes.add(piece) else { return }
        services.counters.count(.storesSkipped)
        notStored(slot, flight)
    }

    private func toStore(_ slot: Slot, _ flight: UInt64) -> Image? {
        state.withLockedValue { state in
            state.coordinator.mayStore(slot, flight) ? state.coordinator.storing(slot)?.image : nil
        }
    }

    /// Writes a downloaded image; its waiters already have it, so a failure costs only a later download.
    private func store(_ slot: Slot, _ flight: UInt64) {
        do {
            if let image = toStore(slot, flight) {
                _ = try vault.write(
                    slot, image,
                    isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayStore(slot, flight) } },
                    committed: {})
            }
            storeEnded(slot, flight)
        } catch StoreError.closed {
            // Purged or logged out meanwhile: nothing is to be kept.
            storeEnded(slot, flight)
        } catch {
            services.counters.count(.storeFailures)
            notStored(slot, flight)
        }
    }

    /// A newer image was served and is not on disk: what it replaced there must not come back when memory lets go of it.
    private func notStored(_ slot: Slot, _ flight: UInt64) {
        change { Consequences(effects: $0.coordinator.notStored(slot, flight)) }
        storeEnded(slot, flight)
    }

    private func storeEnded(_ slot: Slot, _ flight: UInt64) {
        let awaiting = state.withLockedValue { state -> [CheckedContinuation<Void, Never>] in
            state.coordinator.stored(slot, flight)
            guard !state.awaitingStores.isEmpty, !state.coordinator.isStoring else { return [] }
            defer { state.awaitingStores = [] }
            return state.awaitingStores
        }
        for continuation in awaiting { continuation.resume() }
    }

    /// Returns when no downloaded image is on its way to the disk: for a stop, which has the time to wait for them.
    func storesEnded() async {
        services.writes.hurry()
        await withCheckedContinuation { continuation in
            let isDone = state.withLockedValue { state in
                guard state.coordinator.isStoring else { return true }
                state.awaitingStores.append(continuation)
                return false
            }
            if isDone { continuation.resume() }
        }
    }

    /// What is held is not to be served again: it goes. Blocks on the disk.
    func drop(_ slot: Slot, _ flight: UInt64) {
        do {
            try vault.drop(
                slot, isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayDrop(slot, flight) } })
        } catch StoreError.closed {
            // All of it is going.
        } catch {
            services.counters.count(.storeFailures)
        }
        state.withLockedValue { $0.coordinator.dropped(slot, flight) }
    }
}
