import NIOConcurrencyHelpers

// The way of a downloaded image to the disk, behind the back of those who have it already.

extension UserCache {
    /// Has a downloaded image written. While it waits for its turn the coordinator alone holds the image: with an ending it goes (I11).
    func storeLater(_ flight: FlightID) {
        guard let image = toStore(flight) else { return }
        guard !services.writes.add(uid: payer, bytes: image.bytes.storage, { self.store(flight) }) else { return }
        services.counters.count(.storesSkipped)
        notStored(flight)
    }

    private func toStore(_ flight: FlightID) -> Image? {
        state.withLockedValue { state in
            state.coordinator.mayStore(flight) ? state.coordinator.storing(flight.slot)?.image : nil
        }
    }

    /// Writes a downloaded image; its waiters already have it, so a failure costs only a later download.
    private func store(_ flight: FlightID) {
        do {
            if let image = toStore(flight) {
                _ = try vault.write(
                    flight.slot, image,
                    isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayStore(flight) } },
                    committed: {})
            }
            storeEnded(flight)
        } catch StoreError.closed {
            // Purged or logged out meanwhile: nothing is to be kept.
            storeEnded(flight)
        } catch {
            services.counters.count(.storeFailures)
            notStored(flight)
        }
    }

    /// A newer image was served and is not on disk: what it replaced there must not come back when memory lets go of it.
    private func notStored(_ flight: FlightID) {
        change { Consequences(effects: $0.coordinator.notStored(flight)) }
        storeEnded(flight)
    }

    private func storeEnded(_ flight: FlightID) {
        let awaiting = state.withLockedValue { state -> [CheckedContinuation<Void, Never>] in
            state.coordinator.stored(flight)
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
    func drop(_ flight: FlightID) {
        do {
            try vault.drop(
                flight.slot, isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayDrop(flight) } })
        } catch StoreError.closed {
            // All of it is going.
        } catch {
            services.counters.count(.storeFailures)
        }
        state.withLockedValue { $0.coordinator.dropped(flight) }
    }
}
