import CacheCore
import Foundation
import Glibc
import NIOConcurrencyHelpers
import Testing

@testable import DiskStore

/// Space as the quotas count it: whole blocks and an inode (F69).
private struct Costs {
    private let costs: DiskCosts

    init(_ tree: TestTree) {
        var found = statvfs()
        let isKnown = statvfs(tree.root, &found) == 0
        costs = DiskCosts(block: isKnown ? Int(found.f_frsize) : 4096, maximumEntry: 1 << 30)
    }

    /// Size of an entry with an image of `count` bytes, header, record and tag.
    func entry(_ count: Int = 1000) -> Int { costs.file(Int64(count + 124)) }

    var directory: Int { costs.directory }

    /// Size of the buckets in use.
    func directories(_ tree: TestTree) -> Int {
        Set(tree.entries.map { ($0 as NSString).deletingLastPathComponent }).count * costs.directory
    }
}

@Test func `eviction for a user's quota removes the least recently used images, not the one just written`() throws {
    let tree = try TestTree()
    let costs = Costs(tree)
    let entry = costs.entry()
    // An image, usually in its own bucket.
    try tree.withStore(tree.configuration(userQuota: 20 * entry)) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<10 { try generationStore.put(imageKey("\(number)"), testImage(UInt8(number))) }
        #expect(generationStore.usage == Usage(images: 10, bytes: 10 * entry + costs.directories(tree)))
        // Use half of them two hours later.
        tree.clock.withLockedValue { $0 += 7200 }
        for number in 5..<10 { #expect(try generationStore.bytes(imageKey("\(number)")) != nil) }
        for number in 10..<14 {
            try generationStore.put(imageKey("\(number)"), testImage(UInt8(number)))
            #expect(try generationStore.bytes(imageKey("\(number)")) == testImage(UInt8(number)).content)
        }
        for number in 5..<10 {
            #expect(try generationStore.bytes(imageKey("\(number)")) != nil, "image \(number) was used, but is evicted")
        }
        let usage = try #require(generationStore.usage)
        #expect(usage.bytes <= 20 * entry)
        #expect(usage.bytes == usage.images * entry + costs.directories(tree))
        #expect(usage.images == tree.entries.count)
        #expect(usage.images < 14)
        #expect(store.counters[.evictedImages] == 14 - usage.images)
        #expect(store.counters[.evictedBytes] >= (14 - usage.images) * entry)
    }
}

@Test func `I8: an unreadable bucket does not prevent counting the others`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<10 { try generationStore.put(imageKey("\(number)"), testImage(UInt8(number))) }
    }
    // Fails each listing in turn: of the generation's buckets and their parents.
    for failing in 1...12 {
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            system.plan { call, _, ofKind in call == .list && ofKind == failing ? .fail(EIO) : nil }
            store.maintain()
            system.heal()
            let usage = try #require(generationStore.usage, "listing \(failing)")
            #expect(usage.images >= 8, "listing \(failing)")
            try generationStore.put(imageKey("new"), testImage(1))
            #expect(try #require(generationStore.usage).images >= usage.images)
        }
    }
}

@Test func `I8: writes of one uid do not evict another uid's images below its share`() throws {
    let tree = try TestTree()
    let entry = Costs(tree).entry()
    try tree.withStore(tree.configuration(quota: 80 * entry)) { store in
        let quiet = try store.commitLogin(carol, .plain)
        for number in 0..<20 { try quiet.put(imageKey("\(number)"), testImage(1)) }
        let flood = try [alice, bob].map { try store.commitLogin($0, .plain) }
        for number in 0..<200 { try flood[number % 2].put(imageKey("\(number)"), testImage(2)) }
        #expect(quiet.usage?.images == 20)
        #expect(store.usageTotal.bytes <= 80 * entry)
        #expect(flood[0].usage?.images ?? 0 > 5 && flood[1].usage?.images ?? 0 > 5)
        #expect(store.usageTotal.images == tree.entries.count)
    }
}

@Test func `trash counts towards the quota and is deleted before images are evicted`() throws {
    let tree = try TestTree()
    let entry = Costs(tree).entry()
    try tree.withStore(tree.configuration(quota: 80 * entry)) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<30 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
        generationStore.close()
        let before = generationStore.usage
        let renewed = try store.commitPurge(alice)
        generationStore.discard()
        #expect(store.trashUsage == before)
        for number in 0..<30 { try renewed.put(imageKey("\(number)"), testImage(1)) }
        #expect(renewed.usage?.images == 30)
        #expect(store.counters[.evictedImages] == 0)
        #expect(store.usageTotal.bytes + store.trashUsage.bytes <= 80 * entry)
    }
}

@Test func `images found at a start are counted in the background; until then usage is unknown`() throws {
    let tree = try TestTree()
    try tree.withStore { store in
        for owner in [alice, carol] {
            let generationStore = try store.commitLogin(owner, .plain)
            for number in 0..<100 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
        }
    }
    try tree.withStore { store in
        let generationStore = try #require(try store.load(alice)).generationStore
        #expect(generationStore.usage == nil)
        #expect(!store.isCounted)
        // Images written before and after counting are counted once.
        try generationStore.put(imageKey("new"), testImage(1))
        try generationStore.put(imageKey("0"), testImage(1, count: 2000))
        store.maintain()
        try generationStore.put(imageKey("newer"), testImage(1))
        try generationStore.put(imageKey("1"), testImage(1, count: 3000))
        _ = try generationStore.remove([OpaqueID("2")])
        let costs = Costs(tree)
        let bytes = 99 * costs.entry() + costs.entry(2000) + costs.entry(3000)
        let total = try #require(generationStore.usage)
        #expect(total.images == 101)
        #expect(store.usageTotal.bytes == bytes + 100 * costs.entry() + costs.directories(tree))
        #expect(total.bytes < store.usageTotal.bytes)
        #expect(store.usageTotal.images == 201)
        #expect(store.isCounted)
    }
}

@Test func `with a lowered quota, maintenance evicts after counting`() throws {
    let tree = try TestTree()
    let entry = Costs(tree).entry()
    try tree.withStore { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<300 { try generationStore.put(imageKey("\(number)"), testImage(1)) }
    }
    try tree.withStore(tree.configuration(quota: 300 * entry, userQuota: 400 * entry)) { store in
        store.maintain()
        #expect(store.usageTotal.bytes <= 300 * entry)
        #expect(store.usageTotal.images > 100)
        #expect(tree.entries.count == store.usageTotal.images)
    }
}

@Test func `a logout without a previous load removes the images`() throws {
    let tree = try TestTree()
    try tree.withStore { store in try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1)) }
    for isSwept in [false, true] {
        try tree.withStore { store in
            if isSwept { store.maintain() }
            try store.commitLogout(alice)
            store.maintain()
            #expect(tree.entries.isEmpty)
            #expect(store.usageTotal == Usage())
            try store.commitLogin(alice, .plain).put(imageKey("bob"), testImage(1))
        }
    }
}

@Test func `F69: tiny images meet the quota in blocks and inodes, before and after a restart`() throws {
    let tree = try TestTree()
    let quota = 1 << 20
    /// Space in use: bytes of blocks, and inodes.
    func used() throws -> (bytes: Int, inodes: Int) {
        let root = tree.cache + "/users"
        let all = try #require(FileManager.default.enumerator(atPath: root)?.allObjects as? [String])
        return all.reduce(into: (bytes: 0, inodes: 0)) { used, path in
            var status = stat()
            guard lstat(root + "/" + path, &status) == 0 else { return }
            used.bytes += Int(status.st_blocks) * 512
            used.inodes += 1
        }
    }
    try tree.withStore(tree.configuration(userQuota: quota)) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        for number in 0..<2_000 { try generationStore.put(imageKey("\(number)"), testImage(1, count: 13)) }
        let (bytes, inodes) = try used()
        #expect(bytes <= quota)
        #expect(inodes <= quota / 4096 + 2)
        #expect(try #require(generationStore.usage).bytes <= quota)
        // Removed images and directories are no longer counted.
        _ = try generationStore.remove((0..<2_000).map { OpaqueID("\($0)") })
        #expect(generationStore.usage == Usage())
        for number in 0..<100 { try generationStore.put(imageKey("\(number)"), testImage(1, count: 13)) }
        let before = generationStore.usage
        store.shutdown()
        try tree.withStore(tree.configuration(userQuota: quota)) { store in
            let generationStore = try #require(try store.load(alice)).generationStore
            store.maintain()
            #expect(generationStore.usage == before)
        }
    }
}

@Test func `F69: buckets are removed and created again under concurrent reads and writes`() throws {
    let tree = try TestTree()
    // So small that every image evicts others and their buckets.
    let entry = Costs(tree).entry()
    try tree.withStore(tree.configuration(userQuota: 12 * entry)) { store in
        let generationStore = try store.commitLogin(alice, .plain)
        let put: @Sendable () throws -> Void = {
            for round in 0..<400 { try generationStore.put(imageKey("\(round % 40)"), testImage(UInt8(round % 40))) }
        }
        try atOnce([put, put, { for round in 0..<400 { _ = try generationStore.bytes(imageKey("\(round % 40)")) } }])
        store.maintain()
        let usage = try #require(generationStore.usage)
        #expect(
            usage
                == Usage(images: tree.entries.count, bytes: tree.entries.count * entry + Costs(tree).directories(tree)))
        for number in 0..<40 {
            let wasPresent = try generationStore.bytes(imageKey("\(number)")) != nil
            try generationStore.put(imageKey("\(number)"), testImage(UInt8(number)))
            #expect(
                try generationStore.bytes(imageKey("\(number)")) == testImage(UInt8(number)).content,
                "present before: \(wasPresent)")
        }
    }
}

/// Renditions and their sources under a user's quota.
@Suite struct RenditionQuotaTests {
    private static let sizes: [UInt16] = [32, 64, 128]

    /// Requests each image in each size, as a cache without memory tier does: missing images are downloaded and
    /// rendered.
    /// - Returns: the number of downloads.
    private func pass(over images: Range<Int>, in generationStore: any GenerationStore) throws -> Int {
        var downloads = 0
        for image in images {
            let source = testImage(UInt8(image), count: 8_000)
            for size in Self.sizes {
                if try generationStore.bytes(imageKey("\(image)")) == nil {
                    downloads += 1
                    try generationStore.put(imageKey("\(image)"), source)
                }
                if try generationStore.bytes(imageKey("\(image)", size)) == nil {
                    try generationStore.put(imageKey("\(image)", size), rendition(of: source, count: Int(size) * 20))
                }
            }
        }
        return downloads
    }

    /// Hours between two passes, and the number of renditions that fit in the quota.
    @Test(arguments: [0, 1, 5, 30], [0, 3, 60])
    func `one download serves all sizes as long as the sources fit in the quota`(
        _ hours: Int64, _ renditions: Int
    ) throws {
        let tree = try TestTree()
        let costs = Costs(tree)
        let sources = 40 * (costs.entry(8_000) + costs.directory)
        try tree.withStore(tree.configuration(userQuota: sources + renditions * costs.entry(2_560))) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            #expect(try pass(over: 0..<40, in: generationStore) == 40)
            for _ in 0..<3 {
                tree.clock.withLockedValue { $0 += hours * 3_600 }
                #expect(try pass(over: 0..<40, in: generationStore) == 0)
            }
            #expect(store.counters[.evictedImages] > 0)
            store.maintain()
            #expect(try #require(generationStore.usage).bytes <= sources + renditions * costs.entry(2_560))
        }
    }

    @Test func `evicting a source evicts its renditions`() throws {
        let tree = try TestTree()
        let costs = Costs(tree)
        try tree.withStore(tree.configuration(userQuota: 40 * (costs.entry(8_000) + costs.directory))) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            _ = try pass(over: 0..<5, in: generationStore)
            tree.clock.withLockedValue { $0 += 9 * 24 * 3_600 }
            // Enough to evict all of the first images.
            for number in 100..<200 { try generationStore.put(imageKey("\(number)"), testImage(9, count: 8_000)) }
            for image in 0..<5 { #expect(try generationStore.imageKeys(of: OpaqueID("\(image)")) == []) }
            #expect(try #require(generationStore.usage).images == tree.entries.count)
        }
    }

    // MARK: On a full disk

    private func withTenImages(_ body: (TestTree, DiskStore, any GenerationStore, FaultySystem) throws -> Void) throws {
        let tree = try TestTree()
        let system = FaultySystem()
        try tree.withStore(system: system) { store in
            let generationStore = try store.commitLogin(alice, .plain)
            for number in 0..<10 { try generationStore.put(imageKey("\(number)"), testImage(UInt8(number))) }
            try body(tree, store, generationStore, system)
        }
    }

    @Test func `F4: a rendition does not evict other images from a full disk`() throws {
        try withTenImages { tree, store, generationStore, system in
            system.plan { call, _, _ in call == .write ? .fail(ENOSPC) : nil }
            #expect(throws: StoreError.self) {
                try generationStore.put(imageKey("0", 64), rendition(of: testImage(0), count: 500))
            }
            #expect(tree.entries.count == 10)
            #expect(store.counters[.evictedImages] == 0)
        }
    }

    @Test(arguments: [ENOSPC, EDQUOT])
    func `F4, F5: an image evicts as much as it needs from a full disk, and not its source`(_ code: CInt) throws {
        try withTenImages { tree, store, generationStore, system in
            system.plan { call, _, ofKind in call == .write && ofKind <= 2 ? .fail(code) : nil }
            try generationStore.put(imageKey("0", 64), testImage(10))
            #expect((9...10).contains(tree.entries.count))
            #expect((1...2).contains(store.counters[.evictedImages]))
            #expect(try generationStore.bytes(imageKey("0")) == testImage(0).content)
            #expect(try generationStore.bytes(imageKey("0", 64)) == testImage(10).content)
        }
    }

    @Test func `F4: an image larger than all of the user's images evicts nothing`() throws {
        try withTenImages { tree, store, generationStore, system in
            system.plan { call, _, _ in call == .write ? .fail(ENOSPC) : nil }
            #expect(throws: StoreError.self) {
                try generationStore.put(imageKey("large"), testImage(1, count: 1_000_000))
            }
            #expect(tree.entries.count == 10)
        }
    }
}

/// An image rendered from `source`.
private func rendition(of source: Image, count: Int) -> Image {
    let made = testImage(0, count: count)
    var record = made.record
    record.sourceDigest = source.record.digest
    return Image(record: record, bytes: made.bytes)
}
