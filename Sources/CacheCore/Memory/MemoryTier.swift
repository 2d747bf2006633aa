import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// One image in memory, framed as a reply. Its ``UserCache`` finds it, ``MemoryTier`` evicts it. Wiped when freed.
final class MemoryEntry: Sendable {
    /// Written only in `deinit`, to wipe it.
    nonisolated(unsafe) private(set) var served: ServedImage
    /// Copies from the image's record, since every hit reads them.
    let freshness: Freshness
    let tokenFamily: UInt32?
    let imageKey: ImageKey
    let account: UInt32
    private let onEvict: @Sendable (MemoryEntry) -> Void
    private let isUsed = Atomic<Bool>(false)
    /// Accessed only under the tier's lock.
    nonisolated(unsafe) fileprivate var standing = Standing.notYet

    fileprivate enum Standing {
        case notYet
        case queued(Sieve<MemoryEntry>.Handle)
        /// Removed by its cache, maybe before admission, or evicted.
        case gone
    }

    init(served: ServedImage, imageKey: ImageKey, account: UInt32, onEvict: @escaping @Sendable (MemoryEntry) -> Void) {
        self.served = served
        freshness = served.image.record.freshness
        tokenFamily = served.image.record.tokenFamily
        self.imageKey = imageKey
        self.account = account
        self.onEvict = onEvict
    }

    deinit { served.image.bytes.wipe() }

    /// Bytes of memory: the storage of the image, and an overhead measured with five thousand small images.
    var cost: Int {
        served.image.bytes.storage + 1_024 + (served.image.record.redirectedTo?.utf8.count ?? 0)
    }

    /// Marks a hit. The read avoids a write, so that the cache line stays shared between cores.
    func markUsed() {
        if !isUsed.load(ordering: .relaxed) { isUsed.store(true, ordering: .relaxed) }
    }

    fileprivate func removeMark() -> Bool { isUsed.exchange(false, ordering: .relaxed) }
    fileprivate func evicted() { onEvict(self) }
}

/// The images in memory of all users, bounded in bytes. Each account has a queue of its own; evictions come from the
/// account that holds most, so that one account's load does not evict another's images (I8).
///
/// A hit does not call it. Lock order: never call it with a ``UserCache``'s lock held.
public final class MemoryTier: Sendable {
    private struct Share {
        var queue = Sieve<MemoryEntry>()
        var bytes = 0
    }

    private struct State {
        var shares: [UInt32: Share] = [:]
        var images = 0
        var bytes = 0
        var evictions = 0
    }

    /// Bytes; 0 disables the tier.
    public let capacity: Int
    private let state = NIOLockedValueBox(State())

    public init(capacity: Int) {
        self.capacity = capacity
    }

    /// Returns false for an image that would evict most of the others.
    func admits(_ image: Image) -> Bool {
        image.bytes.storage <= capacity / 8
    }

    /// Admits an entry, and notifies the caches of entries evicted for it.
    func admit(_ entry: MemoryEntry) {
        let evicted = state.withLockedValue { state -> [MemoryEntry] in
            guard case .notYet = entry.standing else { return [] }
            entry.standing = .queued(state.shares[entry.account, default: Share()].queue.insert(entry))
            state.images += 1
            state.shares[entry.account]?.bytes += entry.cost
            state.bytes += entry.cost
            var evicted: [MemoryEntry] = []
            while state.bytes > capacity, let victim = Self.evictOne(from: &state) { evicted.append(victim) }
            state.evictions += evicted.count
            return evicted
        }
        for victim in evicted { victim.evicted() }
    }

    /// Removes entries that their cache has removed, in batches, so that other threads get the lock in between.
    func remove(_ entries: [MemoryEntry]) {
        for start in stride(from: 0, to: entries.count, by: Self.removedAtOnce) {
            let some = entries[start..<min(start + Self.removedAtOnce, entries.count)]
            state.withLockedValue { Self.remove(some, in: &$0) }
        }
    }

    /// Removes and frees entries in batches, the last first. Freeing wipes them.
    /// - Parameter yield: called after each batch, with no lock held.
    func wipe(_ entries: inout [MemoryEntry], yield: YieldToOthers) {
        while !entries.isEmpty {
            remove(Array(entries.suffix(Self.removedAtOnce)))
            entries.removeLast(min(entries.count, Self.removedAtOnce))
            yield()
        }
    }

    /// Entries of a batch: about 40 µs of work, wiping included.
    private static var removedAtOnce: Int { 16 }

    private static func remove(_ entries: ArraySlice<MemoryEntry>, in state: inout State) {
        for entry in entries {
            if case .queued(let handle) = entry.standing {
                state.shares[entry.account]?.queue.remove(handle)
                forget(entry, in: &state)
            }
            entry.standing = .gone
        }
    }

    public struct Statistics: Sendable {
        public let images: Int
        public let bytes: Int
        public let evictions: Int
    }

    public var statistics: Statistics {
        state.withLockedValue { Statistics(images: $0.images, bytes: $0.bytes, evictions: $0.evictions) }
    }

    public var metrics: [Metric] {
        let now = statistics
        return [
            Metric(
                "memory_tier_capacity_bytes", .gauge, unit: "bytes", "Capacity of the memory tier (memory.tier).",
                capacity, .everyone),
            Metric("memory_tier_images", .gauge, unit: "images", "Images in the memory tier.", now.images),
            Metric("memory_tier_bytes", .gauge, unit: "bytes", "Size of the images in the memory tier.", now.bytes),
            Metric(
                "memory_tier_evictions_total", .counter, unit: "images", "Images evicted from the memory tier.",
                now.evictions),
        ]
    }

    private static func evictOne(from state: inout State) -> MemoryEntry? {
        guard let account = state.shares.max(by: { $0.value.bytes < $1.value.bytes })?.key,
            let victim = state.shares[account]?.queue.evict(removeMark: { $0.removeMark() })
        else { return nil }
        forget(victim, in: &state)
        victim.standing = .gone
        return victim
    }

    private static func forget(_ entry: MemoryEntry, in state: inout State) {
        state.images -= 1
        state.bytes -= entry.cost
        state.shares[entry.account]?.bytes -= entry.cost
        if state.shares[entry.account]?.queue.count == 0 { state.shares[entry.account] = nil }
    }
}
