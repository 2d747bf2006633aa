import DiskStore
import NIOConcurrencyHelpers
import Testing
import ThumbnailCache

/// Bytes that `picture` takes on disk beside its own: header, record and tag.
private let overhead = 124

@Test func `a user over its quota gives its least recently used images, never the one just written`() throws {
    let tree = try TestTree()
    let entry = 1000 + overhead
    try tree.withStore(tree.configuration(userQuota: 10 * entry)) { store in
        let vault = try store.commitLogin(alice, .plain)
        for number in 0..<10 { try vault.put(slot("\(number)"), picture(UInt8(number))) }
        #expect(vault.usage == Usage(images: 10, bytes: 10 * entry))
        // Two hours later half of them are used.
        tree.clock.withLockedValue { $0 += 7200 }
        for number in 5..<10 { #expect(try vault.bytes(slot("\(number)")) != nil) }
        for number in 10..<13 {
            try vault.put(slot("\(number)"), picture(UInt8(number)))
            #expect(try vault.bytes(slot("\(number)")) == picture(UInt8(number)).content)
        }
        for number in 5..<10 { #expect(try vault.bytes(slot("\(number)")) != nil, "\(number) was used") }
        let usage = try #require(vault.usage)
        #expect(usage.bytes <= 10 * entry)
        #expect(usage.images == tree.entries.count)
        #expect(store.statistics.evictedImages == 13 - usage.images)
        #expect(store.statistics.evictedBytes == (13 - usage.images) * entry)
    }
}

@Test func `I8: one uid's flood leaves another uid's images alone below its share`() throws {
    let tree = try TestTree()
    let entry = 1000 + overhead
    try tree.withStore(tree.configuration(quota: 40 * entry)) { store in
        let quiet = try store.commitLogin(carol, .plain)
        for number in 0..<20 { try quiet.put(slot("\(number)"), picture(1)) }
        let flood = try [alice, bob].map { try store.commitLogin($0, .plain) }
        for number in 0..<200 { try flood[number % 2].put(slot("\(number)"), picture(2)) }
        #expect(quiet.usage?.images == 20)
        #expect(store.usageTotal.bytes <= 40 * entry)
        #expect(flood[0].usage?.images ?? 0 > 5 && flood[1].usage?.images ?? 0 > 5)
        #expect(store.usageTotal.images == tree.entries.count)
    }
}

@Test func `trash counts towards the quota, and goes before anybody's images`() throws {
    let tree = try TestTree()
    let entry = 1000 + overhead
    try tree.withStore(tree.configuration(quota: 40 * entry)) { store in
        let vault = try store.commitLogin(alice, .plain)
        for number in 0..<30 { try vault.put(slot("\(number)"), picture(1)) }
        vault.close()
        let renewed = try store.commitPurge(alice)
        vault.discard()
        #expect(store.statistics.trash == Usage(images: 30, bytes: 30 * entry))
        for number in 0..<30 { try renewed.put(slot("\(number)"), picture(1)) }
        #expect(renewed.usage?.images == 30)
        #expect(store.statistics.evictedImages == 0)
        #expect(store.usageTotal.bytes + store.statistics.trash.bytes <= 40 * entry)
    }
}

@Test func `what a start finds is counted in the background, and until then no count is claimed`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        for owner in [alice, carol] {
            let vault = try store.commitLogin(owner, .plain)
            for number in 0..<100 { try vault.put(slot("\(number)"), picture(1)) }
        }
    }
    try tree.withStore { store in
        let vault = try #require(try store.load(alice)).vault
        #expect(vault.usage == nil)
        #expect(!store.statistics.isCounted)
        // Writes before and after the count are in it once.
        try vault.put(slot("new"), picture(1))
        try vault.put(slot("0"), picture(1, count: 2000))
        store.maintain()
        try vault.put(slot("newer"), picture(1))
        try vault.put(slot("1"), picture(1, count: 3000))
        _ = try vault.remove([OpaqueID("2")], fence: { _ in })
        let entry = 1000 + overhead
        #expect(vault.usage == Usage(images: 101, bytes: 101 * entry + 1000 + 2000))
        #expect(store.usageTotal.images == 201)
        #expect(store.statistics.isCounted)
    }
}

@Test func `over a smaller quota than before, maintenance evicts after the count`() throws {
    let tree = try TestTree()
    let entry = 1000 + overhead
    try tree.withStore { store in
        let vault = try store.commitLogin(alice, .plain)
        for number in 0..<300 { try vault.put(slot("\(number)"), picture(1)) }
    }
    try tree.withStore(tree.configuration(quota: 150 * entry, userQuota: 200 * entry)) { store in
        store.maintain()
        #expect(store.usageTotal.bytes <= 150 * entry)
        #expect(store.usageTotal.images > 100)
        #expect(tree.entries.count == store.usageTotal.images)
    }
}

@Test func `the images of a log-in that is ended without ever having been loaded go too`() throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(slot("bob"), picture(1)) }
    for isSwept in [false, true] {
        try tree.withStore { store in
            if isSwept { store.maintain() }
            try store.commitLogout(alice)
            store.maintain()
            #expect(tree.entries.isEmpty)
            #expect(store.usageTotal == Usage())
            try store.commitLogin(alice, .plain).put(slot("bob"), picture(1))
        }
    }
}
