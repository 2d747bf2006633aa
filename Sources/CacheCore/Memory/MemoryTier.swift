import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// One image in memory, ready to be sent. Its ``UserCache`` finds it, the tier decides when it goes, wiped.
final class MemoryEntry: Sendable {
    /// Written again only when the entry goes, and nobody else can look.
    nonisolated(unsafe) private(set) var served: ServedImage
    /// Of the image. Here as well, since every hit looks at them.
    let freshness: Freshness
    let tokenFamily: UInt32?
    let imageKey: ImageKey
    let uid: UInt32
    /// Told by the tier when it took the entry out for lack of room.
    private let onEvict: @Sendable (MemoryEntry) -> Void
    private let isUsed = Atomic<Bool>(false)
    /// Read and written under the tier's lock alone.
    nonisolated(unsafe) fileprivate var standing = Standing.notYet

    fileprivate enum Standing {
        /// The tier has not seen it.
        case notYet
        case queued(Sieve<MemoryEntry>.Handle)
        /// Its cache let go of it, maybe before the tier ever saw it, or the tier took it out.
        case gone
    }

    init(served: ServedImage, imageKey: ImageKey, uid: UInt32, onEvict: @escaping @Sendable (MemoryEntry) -> Void) {
        self.served = served
        freshness = served.image.record.freshness
        tokenFamily = served.image.record.tokenFamily
        self.imageKey = imageKey
        self.uid = uid
        self.onEvict = onEvict
    }

    deinit { served.image.bytes.wipe() }

    /// What the entry weighs: the storage that its bytes keep alive, and what stands around them, measured with five
    /// thousand small ones.
    var cost: Int {
        served.image.bytes.storage + 1_024 + (served.image.record.redirectedTo?.utf8.count ?? 0)
    }

    /// Marks a hit. Reading first keeps the line shared between cores when it is already marked.
    func markUsed() {
        if !isUsed.load(ordering: .relaxed) { isUsed.store(true, ordering: .relaxed) }
    }

    fileprivate func takeMark() -> Bool { isUsed.exchange(false, ordering: .relaxed) }
    fileprivate func evicted() { onEvict(self) }
}

/// The images in memory of all users, bounded in bytes. Each uid has a queue of its own, and the uid that holds most
/// gives first, so that nobody's flood evicts another's images (I8).
///
/// A hit does not come here. Lock order: never call in with a ``UserCache``'s lock held.
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

    /// Bytes; 0 turns the tier off.
    public let capacity: Int
    private let state = NIOLockedValueBox(State())

    public init(capacity: Int) {
        self.capacity = capacity
    }

    /// Whether an image of that size may come in at all: one that would push out most of the others may not.
    func admits(_ image: Image) -> Bool {
        image.bytes.storage <= capacity / 8
    }

    /// Takes an entry in, and tells the caches whose entries had to go for it.
    func admit(_ entry: MemoryEntry) {
        let evicted = state.withLockedValue { state -> [MemoryEntry] in
            guard case .notYet = entry.standing else { return [] }
            entry.standing = .queued(state.shares[entry.uid, default: Share()].queue.insert(entry))
            state.images += 1
            state.shares[entry.uid]?.bytes += entry.cost
            state.bytes += entry.cost
            var evicted: [MemoryEntry] = []
            while state.bytes > capacity, let victim = Self.evictOne(from: &state) { evicted.append(victim) }
            state.evictions += evicted.count
            return evicted
        }
        for victim in evicted { victim.evicted() }
    }

    /// Forgets entries that their cache has let go of; of many a few at a time, so that others come in between.
    func remove(_ entries: [MemoryEntry]) {
        for start in stride(from: 0, to: entries.count, by: Self.removedAtOnce) {
            let some = entries[start..<min(start + Self.removedAtOnce, entries.count)]
            state.withLockedValue { Self.remove(some, in: &$0) }
        }
    }

    /// Forgets entries and gives them up, the last first, so that they are wiped a few at a time, too.
    /// - Parameter yield: called after each few, with no lock held.
    func giveUp(_ entries: inout [MemoryEntry], yield: YieldToOthers) {
        while !entries.isEmpty {
            remove(Array(entries.suffix(Self.removedAtOnce)))
            entries.removeLast(min(entries.count, Self.removedAtOnce))
            yield()
        }
    }

    /// About 40 µs of work, wiping included.
    private static var removedAtOnce: Int { 16 }

    private static func remove(_ entries: ArraySlice<MemoryEntry>, in state: inout State) {
        for entry in entries {
            if case .queued(let handle) = entry.standing {
                state.shares[entry.uid]?.queue.remove(handle)
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

    private static func evictOne(from state: inout State) -> MemoryEntry? {
        guard let uid = state.shares.max(by: { $0.value.bytes < $1.value.bytes })?.key,
            let victim = state.shares[uid]?.queue.evict(takeMark: { $0.takeMark() })
        else { return nil }
        forget(victim, in: &state)
        victim.standing = .gone
        return victim
    }

    private static func forget(_ entry: MemoryEntry, in state: inout State) {
        state.images -= 1
        state.bytes -= entry.cost
        state.shares[entry.uid]?.bytes -= entry.cost
        if state.shares[entry.uid]?.queue.count == 0 { state.shares[entry.uid] = nil }
    }
}

/// The images of one user that are in memory, by image key, and which image keys there are of a profile: a purge of profiles
/// finds theirs without a look at the others, while every hit waits for the lock that it holds.
///
/// A value. A hit looks at ``entries`` alone.
struct MemoryTable: Sendable {
    /// The image keys' codes of all profiles of one hash: one code, as a rule, which takes no memory of its own.
    private struct Codes: Sendable {
        var first: UInt16
        var others: [UInt16] = []
    }

    private(set) var entries: [ImageKey: MemoryEntry] = [:]
    /// By a profile's hash, a fifth as long. Where two profiles have the same, a code stands here once for each.
    private var codes: [Int: Codes] = [:]

    subscript(imageKey: ImageKey) -> MemoryEntry? { entries[imageKey] }

    /// Puts an entry in its image key.
    mutating func insert(_ entry: MemoryEntry) {
        let imageKey = entry.imageKey
        guard entries.updateValue(entry, forKey: imageKey) == nil else { return }
        let hash = imageKey.profile.hashValue
        if codes[hash] == nil {
            codes[hash] = Codes(first: imageKey.code)
        } else {
            codes[hash]?.others.append(imageKey.code)
        }
    }

    /// Empties an image key.
    mutating func remove(_ imageKey: ImageKey) -> MemoryEntry? {
        guard let entry = entries.removeValue(forKey: imageKey) else { return nil }
        let hash = imageKey.profile.hashValue
        if let index = codes[hash]?.others.lastIndex(of: imageKey.code) {
            codes[hash]?.others.remove(at: index)
        } else if let other = codes[hash]?.others.popLast() {
            codes[hash]?.first = other
        } else {
            codes[hash] = nil
        }
        return entry
    }

    /// Empties the image keys of a profile. Costs a look at these, however many there are of others.
    mutating func removeAll(of profile: OpaqueID) -> [MemoryEntry] {
        guard let known = codes[profile.hashValue] else { return [] }
        return ([known.first] + known.others).compactMap { remove(ImageKey(profile: profile, code: $0)) }
    }

    /// Takes a profile's renditions out that `source` did not make as it is now, or all of them.
    mutating func removeRenditions(of profile: OpaqueID, but source: Image?) -> [MemoryEntry] {
        guard let known = codes[profile.hashValue], !known.others.isEmpty || known.first != 0 else { return [] }
        return ([known.first] + known.others).compactMap { code in
            let imageKey = ImageKey(profile: profile, code: code)
            guard let record = entries[imageKey]?.served.image.record, let digest = record.rendered else { return nil }
            if let source = source?.record, digest == source.digest, record.freshness == source.freshness { return nil }
            return remove(imageKey)
        }
    }
}
