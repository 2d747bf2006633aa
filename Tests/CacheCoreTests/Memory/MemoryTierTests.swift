import CacheFakes
import NIOConcurrencyHelpers
import NIOCore
import Testing

@testable import CacheCore

@Suite struct MemoryTierTests {
    private static let imageSize = 1_024
    /// What one entry weighs here.
    private static let cost = MemoryTierTests.entry("", uid: 0).cost

    private static func entry(
        _ label: String, uid: UInt32, size: Int = imageSize,
        onEvict: @escaping @Sendable (MemoryEntry) -> Void = { _ in }
    ) -> MemoryEntry {
        MemoryEntry(
            served: ServedImage(.sample(label, size: size), from: .memory, at: CoordinatorBench.start),
            imageKey: ImageKey(profile: OpaqueID(label)), uid: uid, onEvict: onEvict)
    }

    @Test func `I8: the tier holds no more bytes than its capacity, and tells whose entries went`() {
        let gone = EventLog()
        let tier = MemoryTier(capacity: 3 * Self.cost)
        for label in ["a", "b", "c", "d", "e"] {
            tier.admit(Self.entry(label, uid: 1) { gone.record($0.imageKey.profile.text) })
        }
        #expect(gone.events == ["a", "b"])
        #expect(tier.statistics.images == 3)
        #expect(tier.statistics.bytes == 3 * Self.cost)
        #expect(tier.statistics.evictions == 2)
    }

    @Test func `I11: bytes that nobody else holds are wiped, those on their way to somebody are not`() {
        var alone = Image.sample("alone").bytes
        alone.wipe()
        #expect(alone.framed.readableBytes == 128)
        #expect(alone.framed.readableBytesView.allSatisfy { $0 == 0 })

        var shared = Image.sample("shared").bytes
        let reply = shared.framed
        shared.wipe()
        #expect(reply == Image.sample("shared").bytes.framed)
    }

    @Test func `I5: what was taken from an entry stays whole when the entry goes`() {
        var entry: MemoryEntry? = Self.entry("a", uid: 1)
        let reply = entry?.served.image.bytes.framed
        entry = nil
        #expect(reply == Image.sample("a", size: Self.imageSize).bytes.framed)
    }

    @Test func `any number of entries is forgotten at once, and those that stay are none the worse`() {
        let tier = MemoryTier(capacity: 2_000 * Self.cost)
        let entries = (0..<1_000).map { Self.entry("\($0)", uid: UInt32($0 % 3)) }
        for entry in entries { tier.admit(entry) }
        tier.remove(Array(entries[..<999]))
        #expect(tier.statistics.images == 1)
        #expect(tier.statistics.bytes == Self.entry("999", uid: 0).cost)
        tier.remove(entries)
        #expect(tier.statistics.images == 0 && tier.statistics.bytes == 0)
    }

    @Test func `entries are given up a few at a time, with the tier free in between`() {
        let tier = MemoryTier(capacity: 200 * Self.cost)
        var entries = (0..<100).map { Self.entry("\($0)", uid: 1) }
        weak let last = entries.last
        for entry in entries { tier.admit(entry) }
        let left = NIOLockedValueBox<[Int]>([])
        tier.giveUp(&entries) {
            // Asks the tier: with its lock held this would never return. And what was given up is gone, and wiped, by
            // now.
            left.withLockedValue { $0.append(tier.statistics.images) }
            #expect(last == nil)
        }
        #expect(left.withLockedValue { $0 } == [84, 68, 52, 36, 20, 4, 0])
        #expect(entries.isEmpty && tier.statistics.bytes == 0)
    }

    @Test func `an entry costs all the memory that its bytes keep alive`() {
        let image = Image.sample("a", size: 1_000)
        let entry = MemoryEntry(
            served: ServedImage(image, from: .memory, at: CoordinatorBench.start),
            imageKey: ImageKey(profile: OpaqueID("a")),
            uid: 1, onEvict: { _ in })
        #expect(entry.cost >= image.bytes.framed.storageCapacity)
    }

    @Test func `a hit spares its entry`() {
        let gone = EventLog()
        let tier = MemoryTier(capacity: 2 * Self.cost)
        let popular = Self.entry("popular", uid: 1) { gone.record($0.imageKey.profile.text) }
        tier.admit(popular)
        for number in 0..<50 {
            popular.markUsed()
            tier.admit(Self.entry("\(number)", uid: 1) { gone.record($0.imageKey.profile.text) })
        }
        #expect(!gone.events.contains("popular"))
    }

    @Test func `I8: one uid's flood evicts nothing of another uid's below its share`() {
        let gone = EventLog()
        let tier = MemoryTier(capacity: 10 * Self.cost)
        for number in 0..<5 {
            tier.admit(Self.entry("quiet \(number)", uid: 1) { gone.record($0.imageKey.profile.text) })
        }
        for number in 0..<1_000 {
            tier.admit(Self.entry("\(number)", uid: 2) { gone.record($0.imageKey.profile.text) })
        }
        #expect(!gone.events.contains { $0.hasPrefix("quiet") })
        #expect(tier.statistics.images == 10)
    }

    @Test func `I8: who is most over its share gives first`() {
        let gone = EventLog()
        let tier = MemoryTier(capacity: 10 * Self.cost)
        for number in 0..<10 {
            tier.admit(Self.entry("much \(number)", uid: 1) { gone.record($0.imageKey.profile.text) })
        }
        for number in 0..<5 {
            tier.admit(Self.entry("new \(number)", uid: 2) { gone.record($0.imageKey.profile.text) })
        }
        #expect(gone.events == (0..<5).map { "much \($0)" })
    }

    @Test func `an entry that its cache let go of before the tier saw it never comes in`() {
        let tier = MemoryTier(capacity: 10 * Self.cost)
        let entry = Self.entry("a", uid: 1)
        tier.remove([entry])
        tier.admit(entry)
        #expect(tier.statistics.images == 0)
        #expect(tier.statistics.bytes == 0)
    }

    @Test func `an entry removed twice counts once, and one that was evicted counts no more`() {
        let tier = MemoryTier(capacity: Self.cost)
        let first = Self.entry("a", uid: 1)
        tier.admit(first)
        tier.admit(Self.entry("b", uid: 1))
        tier.remove([first, first])
        #expect(tier.statistics.images == 1)
        #expect(tier.statistics.bytes == Self.cost)
    }

    @Test func `an image that would push out most of the others stays out; a capacity of zero keeps everything out`() {
        let tier = MemoryTier(capacity: 64 << 10)
        #expect(tier.admits(.sample("small", size: 4 << 10)))
        #expect(!tier.admits(.sample("large", size: 32 << 10)))
        #expect(!MemoryTier(capacity: 0).admits(.sample("small", size: 64)))
    }

    @Test func `the tier keeps no entry alive that was evicted or removed`() {
        let tier = MemoryTier(capacity: Self.cost)
        weak var evicted: MemoryEntry?
        weak var removed: MemoryEntry?
        do {
            let first = Self.entry("a", uid: 1)
            let second = Self.entry("b", uid: 1)
            (evicted, removed) = (first, second)
            tier.admit(first)
            tier.admit(second)
            tier.remove([second])
        }
        #expect(evicted == nil)
        #expect(removed == nil)
    }
}
