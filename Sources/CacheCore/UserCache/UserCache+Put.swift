import NIOConcurrencyHelpers
import NIOCore

extension UserCache {
    /// Stores an image that a client already has. Blocks on the disk: call it on a pool.
    ///
    /// It wins over every download of the image key that began before it is on disk; their waiters get its image (I7). Room
    /// is made for it behind that, which may take long.
    /// - Parameter timeToLive: seconds; nil for an image that stays fresh until it is replaced, purged or evicted.
    /// - Throws: ``CacheFailure/cancelled`` when a purge or log-out overtook it, `shuttingDown` when the stop did;
    ///   `badImage`, `tooLarge`, `noSpace`, `inputOutput`.
    public func put(_ imageKey: ImageKey, _ bytes: ByteBuffer, timeToLive: Int64?) throws(CacheFailure) {
        let imageKey = imageKey.detached()
        let image = try judge(bytes, timeToLive: timeToLive)
        let sequence: UInt64? = state.withLockedValue { $0.isOpen ? $0.coordinator.putBegan(imageKey) : nil }
        guard let sequence else { throw invalidation }
        defer { state.withLockedValue { $0.coordinator.putEnded(imageKey) } }

        var verdict = PendingPuts.Verdict.cancelled
        var change: Change?
        do {
            // Whatever becomes of the write: an ending waits for it.
            defer { change.map(finish) }
            _ = try generationStore.write(
                imageKey, image,
                isCurrent: {
                    verdict = state.withLockedValue { state in
                        state.isOpen ? state.coordinator.putVerdict(imageKey, sequence: sequence) : .cancelled
                    }
                    return verdict == .commit
                },
                committed: {
                    change = begin { state in
                        guard state.isOpen else { return Consequences() }
                        state.invalidateLookups(of: imageKey.profile)
                        let effects = state.coordinator.putCommitted(
                            imageKey, sequence: sequence, image, now: services.time.now)
                        return Consequences(effects: effects, memory: remember(image, in: imageKey, &state))
                    }
                })
        } catch StoreError.closed {
            throw invalidation
        } catch {
            services.counters.count(.storeFailures)
            throw CacheFailure(error)
        }
        guard verdict != .cancelled else { throw invalidation }
        services.counters.count(.puts)
        if change != nil { services.disk.submit(for: owner.uid) { self.generationStore.makeRoom(keeping: imageKey) } }
    }

    /// What whoever came too late is told: that a purge or log-out overtook it, or that the daemon is stopping.
    private var invalidation: CacheFailure { state.withLockedValue { $0.invalidation } ?? .cancelled }

    private func judge(_ bytes: ByteBuffer, timeToLive: Int64?) throws(CacheFailure) -> Image {
        let settings = services.settings()
        guard bytes.readableBytes <= settings.imageLimit else {
            throw .tooLarge("the image has \(bytes.readableBytes) bytes, over the limit of \(settings.imageLimit)")
        }
        let shape: ImageShape
        do {
            shape = try ImageSniffer.sniff(bytes, maximumDimension: settings.dimensionLimit)
        } catch {
            throw .badImage(error.reason)
        }
        let windows = timeToLive == nil ? nil : origin
        let record = ImageRecord(
            shape: shape, digest: services.store.digest(of: bytes), provenance: .put,
            freshness: Freshness(
                storedAt: services.time.now, lifetime: timeToLive,
                staleWhileRevalidate: windows?.staleWhileRevalidate ?? 0,
                staleIfError: windows?.staleIfError ?? 0))
        return Image(record: record, bytes: ImageBytes(copying: bytes, framing: services.framing))
    }
}
