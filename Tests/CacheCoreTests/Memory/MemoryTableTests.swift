import CacheFakes
import Testing

@testable import CacheCore

/// The index of memory entries by image key and by profile.
@Suite struct MemoryTableTests {
    private var table = MemoryTable()

    private static func imageKey(_ profile: String, _ size: UInt16 = 0) -> ImageKey {
        ImageKey(profile: OpaqueID(profile), size: size)
    }

    private mutating func add(_ profile: String, _ sizes: UInt16...) {
        for size in sizes {
            let served = ServedImage(.sample(profile), from: .memory, at: 0)
            table.insert(MemoryEntry(served: served, imageKey: Self.imageKey(profile, size), account: 1) { _ in })
        }
    }

    private mutating func purge(_ profile: String) -> [UInt16] {
        table.removeAll(of: OpaqueID(profile)).map(\.imageKey.size).sorted()
    }

    @Test mutating func `I3: a purge finds a profile's entries in every size after replacements and evictions`() {
        add("bob", 0, 64, 128)
        add("eve", 64)
        // Replaced, evicted, and inserted again.
        add("bob", 64)
        for size in [0, 128, 128] as [UInt16] { _ = table.remove(Self.imageKey("bob", size)) }
        add("bob", 128, 256)
        #expect(table.entries.count == 4)
        #expect(purge("bob") == [64, 128, 256])
        #expect(purge("bob") == [] && purge("nobody") == [])
        #expect(table[Self.imageKey("bob", 64)] == nil && table[Self.imageKey("eve", 64)] != nil)
        #expect(purge("eve") == [64])
        #expect(table.entries.isEmpty)
    }

    @Test mutating func `I3: a purge finds a profile that is inserted again after all its entries were evicted`() {
        add("bob", 0, 64)
        #expect(table.remove(Self.imageKey("bob", 64)) != nil && table.remove(Self.imageKey("bob")) != nil)
        #expect(table.remove(Self.imageKey("bob")) == nil)
        add("bob", 32)
        #expect(purge("bob") == [32])
    }
}
