import Testing

@testable import DiskStore

@Suite struct KnownGenerationsTests {
    private let owners: [HashedOwner]
    private let ids: [GenerationID]

    init() throws {
        let user = try #require(HashedName(hex: Array(String(repeating: "ab", count: 32).utf8)))
        // They share a key, because it does not depend on the uid.
        owners = (0..<3).map { HashedOwner(uid: $0, user: user) }
        ids = try ["1", "2", "3", "4"].map {
            try #require(GenerationID(hex: Array(String(repeating: $0, count: 32).utf8)))
        }
    }

    @Test func `owners with the same key have their own generations after removals in any order`() {
        var order = Array(0..<6)
        for _ in 0..<200 {
            order.shuffle()
            var known = KnownGenerations()
            // Two of each owner.
            let all = (0..<6).map { known.add(ids[$0 / 3], of: owners[$0 % 3], isNew: false) }
            #expect(all.map(\.number) == [1, 2, 3, 4, 5, 6])
            var left = Set(0..<6)
            for next in order {
                known.remove(all[next])
                left.remove(next)
                #expect(Set(known.byNumber.keys) == Set(left.map { all[$0].number }))
                for (index, owner) in owners.enumerated() {
                    let expected = left.filter { $0 % 3 == index }.map { all[$0].number }
                    #expect(Set(known.all(of: owner).map(\.number)) == Set(expected))
                }
            }
            #expect(known.add(ids[3], of: owners[0], isNew: true).number == 7 && known.all(of: owners[0]).count == 1)
        }
    }

    @Test func `a removed generation is no longer in notDiscarded`() {
        var known = KnownGenerations()
        let generation = known.add(ids[0], of: owners[0], isNew: false)
        known.notDiscarded[generation.number] = generation
        known.remove(generation)
        #expect(known.notDiscarded.isEmpty)
    }
}
