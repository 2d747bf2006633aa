import NIOConcurrencyHelpers
import NIOCore

extension UserCache {
    /// Stores an image from a client. Blocks on the disk: call it on a pool.
    ///
    /// Supersedes every download of the image key that began earlier; waiters of those downloads get the image (I7).
    /// - Parameter timeToLive: seconds; nil for an image that stays fresh until it is replaced, purged or evicted.
    /// - Throws: ``CacheFailure/cancelled`` if a purge or logout overtook it, `shuttingDown` if the daemon's stop did;
    ///   `badImage`, `tooLarge`, `noSpace`, `inputOutput`.
    public func put(_ imageKey: ImageKey, _ bytes: ByteBuffer, timeToLive: Int64?) throws(CacheFailure) {
        let imageKey = imageKey.detached()
        let image = try checkedImage(bytes, timeToLive: timeToLive)
        let sequence: UInt64? = state.withLockedValue { $0.isOpen ? $0.coordinator.putBegan(imageKey) : nil }
        guard let sequence else { throw closeReason }
        defer { state.withLockedValue { $0.coordinator.putEnded(imageKey) } }

        var verdict = PendingPuts.Verdict.cancelled
        var change: Change?
        do {
            // Also if the write throws: an invalidation waits for the change.
            defer { change.map(finish) }
            let isWritten = try generationStore.write(
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
                        state.invalidateLookups()
                        let effects = state.coordinator.putCommitted(
                            imageKey, sequence: sequence, image, now: services.time.now)
                        return Consequences(effects: effects, memory: remember(image, in: imageKey, &state))
                    }
                })
            // A purge of the profile may have removed the temporary file since the verdict.
            if !isWritten, verdict == .commit { verdict = .cancelled }
        } catch StoreError.closed {
            throw closeReason
        } catch {
            services.counters.count(.storeFailures)
            throw CacheFailure(error)
        }
        guard verdict != .cancelled else { throw closeReason }
        services.counters.count(.puts)
        if change != nil {
            services.imagePool.submit(for: owner.uid) { self.generationStore.makeRoom(keeping: imageKey) }
        }
    }

    private var closeReason: CacheFailure { state.withLockedValue { $0.closeReason } ?? .cancelled }

    private func checkedImage(_ bytes: ByteBuffer, timeToLive: Int64?) throws(CacheFailure) -> Image {
        let settings = services.settings()
        guard bytes.readableBytes <= settings.imageLimit else {
            throw .tooLarge("the image has \(bytes.readableBytes) bytes; the limit is \(settings.imageLimit)")
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
