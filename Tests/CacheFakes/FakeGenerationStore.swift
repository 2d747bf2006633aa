import CacheCore
import NIOConcurrencyHelpers
import NIOCore

/// A generation in memory that keeps the contract of ``GenerationStore``: drains before it wipes, and calls `isCurrent`
/// with its commit lock held.
public final class FakeGenerationStore: GenerationStore {
    private struct State {
        var isClosed = false
        var isWiped = false
        var inFlight = 0
        /// How often each profile was removed.
        var removals: [OpaqueID: Int] = [:]
    }

    private let store: FakeStore
    private let owner: Owner
    private let generation: Int
    private let state = NIOLockedValueBox(State())
    /// Whether no work is in flight.
    private let isQuiet = ConditionLock<Bool>(value: true)
    private let commitLock = NIOLock()

    init(store: FakeStore, owner: Owner, generation: Int) {
        self.store = store
        self.owner = owner
        self.generation = generation
    }

    var isWiped: Bool { state.withLockedValue { $0.isWiped } }

    public func read(_ imageKey: ImageKey, framing: ReplyFraming) throws -> Image? {
        try work {
            do {
                if let late = try store.pass(.read) { throw late }
            } catch {
                // A read never fails: an unreadable entry is a miss (I5).
                return nil
            }
            return entry(imageKey, framing)
        }
    }

    public func record(of imageKey: ImageKey) throws -> ImageRecord? { try work { entry(imageKey, .bare)?.record } }

    private func entry(_ imageKey: ImageKey, _ framing: ReplyFraming) -> Image? {
        let entry = store.disk.contents.withLockedValue { $0.images[generation]?[imageKey] }
        return entry.map { Image(record: $0.record, bytes: ImageBytes(copying: $0.bytes, framing: framing)) }
    }

    public func readCached(_ imageKey: ImageKey, framing: ReplyFraming) -> CachedRead {
        guard store.isInPageCache else { return .unknown }
        do {
            let (found, isEmpty) = try work {
                let found = entry(imageKey, framing)
                let isEmpty = store.disk.contents.withLockedValue { contents in
                    contents.images[generation]?.keys.contains { $0.profile == imageKey.profile } != true
                }
                // While held here, the entry that was read may be removed.
                if let late = try store.pass(.readCached) { throw late }
                return (found, isEmpty)
            }
            store.note(.cachedReadEnded)
            return found.map { .image($0) } ?? (isEmpty ? .nothing : .unknown)
        } catch {
            return .unknown
        }
    }

    public func write(_ imageKey: ImageKey, _ image: Image, isCurrent: () -> Bool, committed: () -> Void) throws -> Bool
    {
        try work {
            let earlier: Int? = commitLock.withLock { isCurrent() ? removals(of: imageKey.profile) : nil }
            guard let earlier else { return false }
            if let late = try store.pass(.seal) { throw late }
            if let late = try store.pass(.appear) { throw late }
            return commitLock.withLock {
                // A removal also removes the temporary file of a write in progress.
                guard earlier == removals(of: imageKey.profile), isCurrent() else { return false }
                let entry = FakeStore.Disk.Kept(record: image.record, bytes: image.bytes.image)
                if !store.isPretended(.appear) {
                    store.disk.contents.withLockedValue { $0.setImage(entry, imageKey.detached(), of: generation) }
                }
                store.changed(.image(owner, imageKey, entry.bytes))
                committed()
                return true
            }
        }
    }

    private func removals(of profile: OpaqueID) -> Int { state.withLockedValue { $0.removals[profile] ?? 0 } }

    public func trimRenditions(of profile: OpaqueID, keeping imageKey: ImageKey, most: Int) throws {
        try work {
            store.disk.contents.withLockedValue { contents in
                let images = contents.images[generation] ?? [:]
                let renditions = images.filter { $0.key.profile == profile && $0.value.record.sourceDigest != nil }.keys
                for other in renditions.filter({ $0 != imageKey }).prefix(max(0, renditions.count - most)) {
                    contents.setImage(nil, other, of: generation)
                }
            }
        }
    }

    public func makeRoom(keeping imageKey: ImageKey?) { store.note(.makeRoom) }

    public func remove(
        _ profiles: [OpaqueID], fence: (OpaqueID) -> Void, removed: (OpaqueID) -> Void
    ) throws -> Usage {
        try work {
            var usage = Usage()
            for profile in profiles {
                try commitLock.withLock {
                    // The fence is raised first, whatever happens to the entries.
                    fence(profile)
                    state.withLockedValue { $0.removals[profile, default: 0] += 1 }
                    let late = try store.pass(.remove)
                    let isPretended = store.isPretended(.remove)
                    store.disk.contents.withLockedValue { contents in
                        for (imageKey, kept) in contents.images[generation] ?? [:] where imageKey.profile == profile {
                            usage.images += 1
                            usage.bytes += kept.bytes.readableBytes
                            if !isPretended { contents.setImage(nil, imageKey, of: generation) }
                        }
                        guard late == nil, let earlier = contents.earlierImages[generation] else { return }
                        // A purge is durable, so nothing of the profile returns after a power cut.
                        for imageKey in earlier.keys where imageKey.profile == profile {
                            contents.earlierImages[generation]?[imageKey] = nil
                        }
                    }
                    if let late { throw late }
                    store.changed(.removal(owner, profile))
                    removed(profile)
                }
            }
            return usage
        }
    }

    public func drop(_ imageKey: ImageKey, isCurrent: () -> Bool) throws {
        try work {
            let late = try store.pass(.drop)
            commitLock.withLock {
                guard isCurrent() else { return }
                store.disk.contents.withLockedValue { $0.setImage(nil, imageKey, of: generation) }
            }
            if let late { throw late }
        }
    }

    public var usage: Usage? {
        guard store.isCounted else { return nil }
        return store.disk.contents.withLockedValue { contents in
            (contents.images[generation] ?? [:]).values.reduce(Usage()) {
                $0 + Usage(images: 1, bytes: $1.bytes.readableBytes)
            }
        }
    }

    public func close() {
        guard state.withLockedValue({ state in !exchange(&state.isClosed, for: true) }) else { return awaitQuiet() }
        store.note(.close)
        awaitQuiet()
        store.note(.wipe)
        state.withLockedValue { $0.isWiped = true }
    }

    public func discard() {
        if store.isPretended(.discard) { return }
        if !isWiped { store.violation("discard of a generation that still has its keys") }
        if store.isNamed(generation, of: owner) { store.violation("discard of the generation that the key file names") }
        store.note(.discard)
        store.disk.contents.withLockedValue { contents in
            (contents.images[generation], contents.earlierImages[generation]) = (nil, nil)
        }
    }

    /// Runs work that ``close()`` waits for.
    private func work<Result>(_ body: () throws -> Result) throws -> Result {
        isQuiet.lock()
        let isClosed = state.withLockedValue { state in
            if !state.isClosed { state.inFlight += 1 }
            return state.isClosed
        }
        isQuiet.unlock(withValue: state.withLockedValue { $0.inFlight == 0 })
        if isClosed { throw StoreError.closed }
        defer {
            isQuiet.lock()
            isQuiet.unlock(
                withValue: state.withLockedValue { state in
                    state.inFlight -= 1
                    return state.inFlight == 0
                })
        }
        return try body()
    }

    private func awaitQuiet() {
        store.wait { state.withLockedValue { $0.inFlight == 0 } }
        isQuiet.lock(whenValue: true)
        isQuiet.unlock()
    }
}

private func exchange(_ flag: inout Bool, for value: Bool) -> Bool {
    defer { flag = value }
    return flag
}
