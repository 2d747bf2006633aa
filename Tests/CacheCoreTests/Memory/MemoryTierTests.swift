import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

@Suite struct MemoryTierTests {
    private static let imageSize = 1_024
    /// The cost of one entry in these tests.
    private static let cost = MemoryTierTests.entry("", account: 0).cost

    private static func entry(
        _ label: String, account: UInt32, size: Int = imageSize,
        onEvict: @escaping @Sendable (MemoryEntry) -> Void = { _ in }
    ) -> MemoryEntry {
        MemoryEntry(
            served: ServedImage(.sample(label, size: size), from: .memory, at: CoordinatorBench.start),
            imageKey: ImageKey(profile: OpaqueID(label)), account: account, onEvict: onEvict)
    }

    @Test func `I8: the tier stays within its capacity and reports evicted entries`() {
        let evicted = EventLog()
        let tier = MemoryTier(capacity: 3 * Self.cost)
        for label in ["a", "b", "c", "d", "e"] {
            tier.admit(Self.entry(label, account: 1) { evicted.record($0.imageKey.profile.text) })
        }
        #expect(evicted.events == ["a", "b"])
        #expect(tier.statistics.images == 3)
        #expect(tier.statistics.bytes == 3 * Self.cost)
        #expect(tier.statistics.evictions == 2)
    }

    @Test func `I11: wiping zeroes bytes that are not shared and leaves shared ones unchanged`() {
        var alone = Image.sample("alone").bytes
        alone.wipe()
        #expect(alone.framed.readableBytes == 128)
        #expect(alone.framed.readableBytesView.allSatisfy { $0 == 0 })

        var shared = Image.sample("shared").bytes
        let reply = shared.framed
        shared.wipe()
        #expect(reply == Image.sample("shared").bytes.framed)
    }

    @Test func `I5: bytes of a reply stay unchanged after their entry is released`() {
        var entry: MemoryEntry? = Self.entry("a", account: 1)
        let reply = entry?.served.image.bytes.framed
        entry = nil
        #expect(reply == Image.sample("a", size: Self.imageSize).bytes.framed)
    }

    @Test func `removing many entries leaves the remaining ones intact`() {
        let tier = MemoryTier(capacity: 2_000 * Self.cost)
        let entries = (0..<1_000).map { Self.entry("\($0)", account: UInt32($0 % 3)) }
        for entry in entries { tier.admit(entry) }
        tier.remove(Array(entries[..<999]))
        #expect(tier.statistics.images == 1)
        #expect(tier.statistics.bytes == Self.entry("999", account: 0).cost)
        tier.remove(entries)
        #expect(tier.statistics.images == 0 && tier.statistics.bytes == 0)
    }

    @Test func `entries are wiped in batches, without holding the tier's lock in between`() {
        let tier = MemoryTier(capacity: 200 * Self.cost)
        var entries = (0..<100).map { Self.entry("\($0)", account: 1) }
        weak let last = entries.last
        for entry in entries { tier.admit(entry) }
        let left = NIOLockedValueBox<[Int]>([])
        tier.wipe(&entries) {
            // Would deadlock if wipe() held the lock. The entries of the batch are already released.
            left.withLockedValue { $0.append(tier.statistics.images) }
            #expect(last == nil)
        }
        #expect(left.withLockedValue { $0 } == [84, 68, 52, 36, 20, 4, 0])
        #expect(entries.isEmpty && tier.statistics.bytes == 0)
    }

    @Test func `an entry costs all the memory that its bytes keep alive, at most 32 bytes more than the image`() {
        let image = Image.sample("a", size: 1_000)
        let entry = MemoryEntry(
            served: ServedImage(image, from: .memory, at: CoordinatorBench.start),
            imageKey: ImageKey(profile: OpaqueID("a")),
            account: 1, onEvict: { _ in })
        let storage = image.bytes.framed.storageCapacity
        #expect(entry.cost >= storage && storage <= image.bytes.count + 32)
    }

    @Test func `an entry that is hit is not evicted`() {
        let evicted = EventLog()
        let tier = MemoryTier(capacity: 2 * Self.cost)
        let popular = Self.entry("popular", account: 1) { evicted.record($0.imageKey.profile.text) }
        tier.admit(popular)
        for number in 0..<50 {
            popular.markUsed()
            tier.admit(Self.entry("\(number)", account: 1) { evicted.record($0.imageKey.profile.text) })
        }
        #expect(!evicted.events.contains("popular"))
    }

    @Test func `I8: one account's flood evicts nothing of another account's below its share`() {
        let evicted = EventLog()
        let tier = MemoryTier(capacity: 10 * Self.cost)
        for number in 0..<5 {
            tier.admit(Self.entry("quiet \(number)", account: 1) { evicted.record($0.imageKey.profile.text) })
        }
        for number in 0..<1_000 {
            tier.admit(Self.entry("\(number)", account: 2) { evicted.record($0.imageKey.profile.text) })
        }
        #expect(!evicted.events.contains { $0.hasPrefix("quiet") })
        #expect(tier.statistics.images == 10)
    }

    @Test func `I8: the account that exceeds its share most is evicted from first`() {
        let evicted = EventLog()
        let tier = MemoryTier(capacity: 10 * Self.cost)
        for number in 0..<10 {
            tier.admit(Self.entry("much \(number)", account: 1) { evicted.record($0.imageKey.profile.text) })
        }
        for number in 0..<5 {
            tier.admit(Self.entry("new \(number)", account: 2) { evicted.record($0.imageKey.profile.text) })
        }
        #expect(evicted.events == (0..<5).map { "much \($0)" })
    }

    @Test func `an entry that is removed before it is admitted does not enter`() {
        let tier = MemoryTier(capacity: 10 * Self.cost)
        let entry = Self.entry("a", account: 1)
        tier.remove([entry])
        tier.admit(entry)
        #expect(tier.statistics.images == 0)
        #expect(tier.statistics.bytes == 0)
    }

    @Test func `removing an entry twice, or after its eviction, does not change the totals twice`() {
        let tier = MemoryTier(capacity: Self.cost)
        let first = Self.entry("a", account: 1)
        tier.admit(first)
        tier.admit(Self.entry("b", account: 1))
        tier.remove([first, first])
        #expect(tier.statistics.images == 1)
        #expect(tier.statistics.bytes == Self.cost)
    }

    @Test func `an image that would evict most others is not admitted; a capacity of zero admits nothing`() {
        let tier = MemoryTier(capacity: 64 << 10)
        #expect(tier.admits(.sample("small", size: 4 << 10)))
        #expect(!tier.admits(.sample("large", size: 32 << 10)))
        #expect(!MemoryTier(capacity: 0).admits(.sample("small", size: 64)))
    }

    @Test func `the tier does not retain evicted or removed entries`() {
        let tier = MemoryTier(capacity: Self.cost)
        weak var evicted: MemoryEntry?
        weak var removed: MemoryEntry?
        do {
            let first = Self.entry("a", account: 1)
            let second = Self.entry("b", account: 1)
            (evicted, removed) = (first, second)
            tier.admit(first)
            tier.admit(second)
            tier.remove([second])
        }
        #expect(evicted == nil)
        #expect(removed == nil)
    }
}
