import TestSupport
import Testing

@testable import CacheCore

/// A bounded map of image keys to values that expire, and its memory accounting (I8, F67).
@Suite struct ExpiringKeyMapTests {
    private static let perEntry = ExpiringKeyMap<Int>.bytesPerEntry

    private func imageKey(_ profile: Int, size: UInt16 = 64) -> ImageKey {
        ImageKey(profile: OpaqueID("\(profile)" + String(repeating: "x", count: 500)), size: size)
    }

    private func url(_ number: Int) -> String { "https://origin.test/\(number)" + String(repeating: "y", count: 2_000) }

    private func budget(_ bytes: Int) -> MemoryBudget {
        MemoryBudget(limits: { MemoryBudget.Limits(perAccount: bytes, total: bytes) })
    }

    @Test func `F67: long names take little memory per entry, and entries are charged to the budget`() {
        let budget = budget(1 << 20)
        var map = ExpiringKeyMap<Int>(limit: 100_000, memory: budget.lease(for: 1000))
        for number in 0..<100_000 { map.insert(imageKey(number), url: url(number), number, until: 300, now: 0) }
        #expect(map.count == (1 << 20) / Self.perEntry)
        #expect(budget.bytes(of: 1000) == map.count * Self.perEntry)
        #expect(map[imageKey(99_999), url(99_999)] == 99_999)
        #expect(map[imageKey(100_000 - map.count), url(100_000 - map.count)] != nil)
        #expect(map[imageKey(99_999 - map.count), url(99_999 - map.count)] == nil)
        map.removeAll()
        #expect(budget.bytes == 0 && map.count == 0)
    }

    @Test func `F67: without memory nothing is remembered, and lookups still work`() {
        var map = ExpiringKeyMap<Int>(limit: 10, memory: budget(Self.perEntry - 1).lease(for: 1000))
        map.insert(imageKey(1), url: url(1), 1, until: 300, now: 0)
        #expect(map.count == 0 && map[imageKey(1), url(1)] == nil)
        #expect(!map.contains(imageKey(1)) { _ in true })
    }

    @Test func `removed and expired entries release their memory`() {
        let budget = budget(1 << 20)
        var map = ExpiringKeyMap<Int>(limit: 1_000, memory: budget.lease(for: 1000))
        for number in 0..<1_000 { map.insert(imageKey(number), url: url(0), number, until: 300, now: 0) }
        map.insert(imageKey(1_000), url: url(0), 1_000, until: 600, now: 300)
        #expect(map.count == 1)
        #expect(budget.bytes == Self.perEntry)
        #expect(map[imageKey(1_000), url(0)] == 1_000)
        map = ExpiringKeyMap(limit: 0, memory: budget.lease(for: 1000))
        #expect(budget.bytes == 0)
    }

    /// Compares the map with a plain list over random operations.
    @Test(arguments: 1...8 as ClosedRange<UInt64>)
    func `it behaves like a list`(_ seed: UInt64) {
        struct Entry {
            let profile: Int
            let size: UInt16
            let url: Int
            let value: Int
            let until: Int64
        }
        var random = SeededRandom(seed: seed)
        let (limit, profiles) = seed.isMultiple(of: 2) ? (40, 12) : (200, 60)
        var map = ExpiringKeyMap<Int>(limit: limit, memory: MemoryBudget().lease(for: 1000))
        var list: [Entry] = []
        for step in 0..<4_000 {
            // Sometimes all entries expire.
            let now = Int64(step / 4 + step / 500 * 100)
            let (profile, size, url) = (
                Int.random(in: 0..<profiles, using: &random), UInt16.random(in: 1...3, using: &random),
                Int.random(in: 0..<7, using: &random)
            )
            switch Int.random(in: 0..<20, using: &random) {
            case 0:
                map.remove(imageKey(profile, size: size))
                list.removeAll { $0.profile == profile && $0.size == size }
            case 1:
                map.remove(profile: imageKey(profile).profile)
                list.removeAll { $0.profile == profile }
            case 2 where step.isMultiple(of: 50):
                map.removeAll()
                list = []
            default:
                let until = now + Int64.random(in: 0...30, using: &random)
                map.insert(imageKey(profile, size: size), url: self.url(url), step, until: until, now: now)
                guard until > now else { break }
                while let first = list.first, first.until <= now { list.removeFirst() }
                list.removeAll { $0.profile == profile && $0.size == size && $0.url == url }
                if list.count(where: { $0.profile == profile }) >= 64,
                    let first = list.firstIndex(where: { $0.profile == profile })
                {
                    list.remove(at: first)
                }
                if list.count >= limit { list.removeFirst() }
                list.append(Entry(profile: profile, size: size, url: url, value: step, until: until))
            }
            #expect(map.count == list.count)
            let known = list.first { $0.profile == profile && $0.size == size && $0.url == url }
            #expect(map[imageKey(profile, size: size), self.url(url)] == known?.value)
            let even = list.contains { $0.profile == profile && $0.size == size && $0.value.isMultiple(of: 2) }
            #expect(map.contains(imageKey(profile, size: size)) { $0.isMultiple(of: 2) } == even)
        }
    }
}
