import CacheCore
import Testing

@testable import DiskStore

@Test func `I8: images are evicted from the uid most over its share, down to its share`() {
    struct Case {
        /// Bytes by generation. The uid is the number of the generation divided by ten.
        let used: [UInt64: Int]
        let quota: Int
        let victim: UInt64?
        let bytes: Int
    }
    let cases = [
        Case(used: [10: 100], quota: 100, victim: nil, bytes: 0),
        Case(used: [10: 101], quota: 100, victim: 10, bytes: 1),
        Case(used: [10: 60, 20: 41], quota: 100, victim: 10, bytes: 1),
        Case(used: [10: 50, 20: 60], quota: 100, victim: 20, bytes: 10),
        // Two uids exceed their share, each by less than the excess in total.
        Case(used: [10: 52, 20: 51], quota: 100, victim: 10, bytes: 2),
        // The largest user of the uid with the largest total.
        Case(used: [10: 30, 11: 31, 20: 45], quota: 100, victim: 11, bytes: 6),
        // A uid without images has a share, too.
        Case(used: [10: 101, 20: 0], quota: 100, victim: 10, bytes: 1),
    ]
    for (index, test) in cases.enumerated() {
        var ledger = UsageLedger()
        for (generation, bytes) in test.used {
            ledger.open(generation, uid: UInt32(generation / 10), isEmpty: true)
            ledger.add(images: 1, bytes: bytes, to: generation, bucket: 0)
        }
        let victim = ledger.nextToEvict(quota: test.quota, accountOf: { $0 })
        #expect(victim?.generation == test.victim, "case \(index)")
        #expect(victim?.bytes ?? 0 == test.bytes, "case \(index)")
    }
}

@Test func `I8: a generation without images is skipped, and no account falls below its share`() {
    var ledger = UsageLedger()
    for (generation, bytes) in [10: 30, 11: 40, 20: 36, 30: 10] as [UInt64: Int] {
        ledger.open(generation, uid: UInt32(generation / 10), isEmpty: true)
        ledger.add(images: 1, bytes: bytes, to: generation, bucket: 0)
    }
    func nextToEvict(excluding: Set<UInt64>) -> UInt64? {
        ledger.nextToEvict(quota: 100, accountOf: { $0 }, excluding: excluding)?.generation
    }
    #expect(nextToEvict(excluding: []) == 11)
    #expect(nextToEvict(excluding: [11]) == 10)
    #expect(nextToEvict(excluding: [11, 10]) == 20)
    #expect(nextToEvict(excluding: [11, 10, 20]) == nil)
}

@Test func `I8, F80: all uids of an account have one share`() {
    var ledger = UsageLedger()
    // Ten uids of account 1, and account 2 with more than any of them.
    for uid in 10..<20 as Range<UInt32> {
        ledger.open(UInt64(uid), uid: uid, isEmpty: true)
        ledger.add(images: 1, bytes: Int(uid), to: UInt64(uid), bucket: 0)
    }
    ledger.open(2, uid: 2, isEmpty: true)
    ledger.add(images: 1, bytes: 45, to: 2, bucket: 0)
    let victim = ledger.nextToEvict(quota: 100) { $0 >= 10 ? 1 : $0 }
    #expect(victim?.generation == 19)
    #expect(victim?.bytes == 90)
    #expect(ledger.nextToEvict(quota: 100) { $0 }?.generation == 2)
}

@Test func `F69: the block size of a file system is limited to a plausible range`() {
    #expect(DiskCosts(block: 1 << 20, maximumEntry: 1 << 30).file(1) == (64 << 10) + DiskCosts.inode)
    #expect(DiskCosts(block: 0, maximumEntry: 1 << 30).file(1) == 512 + DiskCosts.inode)
    #expect(DiskCosts(block: 8192, maximumEntry: 1 << 30).file(1) == 8192 + DiskCosts.inode)
}

@Test func `usage of a generation is unknown until all buckets are counted, and exact during writes`() {
    var ledger = UsageLedger()
    ledger.open(1, uid: 5, isEmpty: false)
    ledger.add(images: 1, bytes: 10, to: 1, bucket: 3)
    #expect(ledger.counted(of: 1) == Usage())
    for bucket in UInt8.min...UInt8.max {
        #expect(ledger.usage(of: 1) == nil)
        ledger.setCount(Usage(images: 1, bytes: 2), of: 1, bucket: bucket)
        ledger.add(images: 1, bytes: 3, to: 1, bucket: bucket)
        // Counting a bucket again has no effect.
        ledger.setCount(Usage(images: 100, bytes: 200), of: 1, bucket: bucket)
    }
    #expect(ledger.usage(of: 1) == Usage(images: 512, bytes: 1280))
    #expect(ledger.total == Usage(images: 512, bytes: 1280))
    #expect(ledger.close(1) == Usage(images: 512, bytes: 1280))
    #expect(ledger.total == Usage())
    #expect(ledger.close(1) == nil)
    ledger.add(images: 1, bytes: 1, to: 1, bucket: 0)
    #expect(ledger.total == Usage())
}

@Test func `at most a quarter of an incomplete sample is evicted, least recently used first`() throws {
    let profile = try #require(HashedName(hex: [UInt8](repeating: UInt8(ascii: "a"), count: 64)))
    let sample = (0..<8).map { index in
        Eviction.Candidate(
            address: EntryAddress(profile: profile, code: UInt16(index)), size: 10,
            file: Eviction.File(modified: .seconds((index * 3) % 8), inode: UInt64(index)))
    }
    func uses(bytes: Int, isWhole: Bool) -> [Int64] {
        Eviction.victims(of: sample, bytes: bytes, isWhole: isWhole).map(\.lastUse.components.seconds)
    }
    #expect(uses(bytes: 1, isWhole: false) == [0])
    #expect(uses(bytes: 10, isWhole: false) == [0])
    #expect(uses(bytes: 11, isWhole: false) == [0, 1])
    #expect(uses(bytes: 1000, isWhole: false) == [0, 1])
    #expect(uses(bytes: 35, isWhole: true) == [0, 1, 2, 3])
    #expect(uses(bytes: 1000, isWhole: true) == [0, 1, 2, 3, 4, 5, 6, 7])
    #expect(uses(bytes: 0, isWhole: true) == [])
    #expect(Eviction.victims(of: [], bytes: 5, isWhole: true).isEmpty)
}

@Test func `renditions are evicted before sources, unless a source has been unused for a week longer`() throws {
    let profile = try #require(HashedName(hex: [UInt8](repeating: UInt8(ascii: "a"), count: 64)))
    func candidate(_ code: UInt16, hours: Int64, isRendition: Bool) -> Eviction.Candidate {
        var candidate = Eviction.Candidate(
            address: EntryAddress(profile: profile, code: code), size: 10,
            file: Eviction.File(modified: .seconds(1_000_000 + hours * 3_600), inode: 1))
        candidate.isRendition = isRendition
        return candidate
    }
    let sample = [
        candidate(1, hours: 0, isRendition: false), candidate(2, hours: 100, isRendition: true),
        candidate(3, hours: 169, isRendition: true), candidate(4, hours: 40, isRendition: true),
        candidate(5, hours: 20, isRendition: false),
    ]
    func codes(_ sample: [Eviction.Candidate], bytes: Int, isWhole: Bool) -> [UInt16] {
        Eviction.victims(of: sample, bytes: bytes, isWhole: isWhole).map(\.address.code)
    }
    #expect(codes(sample, bytes: 1000, isWhole: true) == [4, 2, 1, 3, 5])
    #expect(codes(sample, bytes: 11, isWhole: true) == [4, 2])
    // Elsewhere there may be other renditions.
    #expect(codes(sample + sample, bytes: 1000, isWhole: false) == [4, 4])
    #expect(
        codes(
            Array(repeating: sample[2], count: 1) + Array(repeating: sample[0], count: 7), bytes: 1000, isWhole: false)
            == [1, 1])
}

@Test(
    arguments: [
        (0, 64, true), (64, 0, false), (0, 0, false), (64, 128, false), (64, 64 | 1 << 13, true),
        (0, 64 | 1 << 13, true),
        (64, 128 | 1 << 13, false), (64 | 1 << 13, 64, false), (64 | 1 << 13, 64 | 2 << 13, false), (0, 1 << 13, true),
    ] as [(UInt16, UInt16, Bool)])
func `the image without a size is the source of all, and of a style also that of its size`(
    _ row: (source: UInt16, other: UInt16, isSource: Bool)
) {
    #expect(ImageKey.canBeSource(row.source, of: row.other) == row.isSource)
}

@Test func `F14: a use is noted at most hourly, and again after the clock was set back`() {
    #expect(!Eviction.shouldRecordUse(lastUse: 10_000, now: 10_000))
    #expect(!Eviction.shouldRecordUse(lastUse: 10_000, now: 13_599))
    #expect(Eviction.shouldRecordUse(lastUse: 10_000, now: 13_600))
    #expect(!Eviction.shouldRecordUse(lastUse: 10_000, now: 6_401))
    #expect(Eviction.shouldRecordUse(lastUse: 10_000, now: 6_400))
    #expect(Eviction.shouldRecordUse(lastUse: .min, now: .max))
    #expect(Eviction.shouldRecordUse(lastUse: .max, now: .min))
}
