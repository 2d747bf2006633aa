import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import Synchronization
import ThumbnailCache

/// The images' half of the store: generations, their directories and buckets, what they hold, and the trash.
///
/// It knows no key. What it is handed is sealed already, and what it hands out is sealed still.
final class ImageFiles: Sendable {
    let disk: Disk
    let costs: DiskCosts
    let users: Directory
    let trash: Trash
    let random: any RandomSource
    let now: @Sendable () -> Int64
    let quota: Int
    let userQuota: Int
    /// The account that a uid counts for: shares of the quota are an account's.
    let accountOf: @Sendable (UInt32) -> UInt32
    let counters: Counters<StoreEvent>
    let maintenance: MaintenanceSignal
    let log: Logger

    let ledger = NIOLockedValueBox(UsageLedger())
    /// Held while an entry appears under its name or goes from it.
    let locks = StripedLocks(count: 256)
    let claims = DirectoryClaims()
    let underWay = ImagesUnderWay()
    /// Whether kernel and file system know calls that never wait, as far as has been tried.
    let canReadCached: Synchronization.Atomic<Bool>
    private let known = NIOLockedValueBox(Known())

    private struct Known {
        /// One each, mostly; an array of one takes less memory than any other collection.
        var byPerson: [SealedOwner: [Generation]] = [:]
        var byNumber: [UInt64: Generation] = [:]
        var last: UInt64 = 0
    }

    init(
        _ configuration: DiskStoreConfiguration, disk: Disk, users: Directory, trash: Directory,
        random: any RandomSource, now: @escaping @Sendable () -> Int64,
        accountOf: @escaping @Sendable (UInt32) -> UInt32, counters: Counters<StoreEvent>,
        maintenance: MaintenanceSignal, log: Logger
    ) {
        (quota, userQuota) = (configuration.quota, configuration.userQuota)
        costs = DiskCosts(
            block: disk.system.blockSize(users.descriptor), longest: min(quota, userQuota, 1 << 30))
        canReadCached = Synchronization.Atomic(!disk.system.isRemote(users.descriptor))
        self.disk = disk
        self.users = users
        self.trash = Trash(disk: disk, directory: trash, random: random, costs: costs)
        self.random = random
        self.now = now
        self.accountOf = accountOf
        self.counters = counters
        self.maintenance = maintenance
        self.log = log
    }

    /// Bytes that one entry may have: no more than the quotas, nor than OpenSSL takes at once.
    var largestEntry: Int { costs.longest }

    /// The generation of that name, the same object for all who ask.
    /// - Parameter isNew: it was made just now, so that nothing is in it.
    func generation(_ name: GenerationName, uid: UInt32, isNew: Bool) -> Generation {
        let (generation, isUncounted) = known.withLockedValue { known -> (Generation, Bool) in
            let sealedOwner = SealedOwner(uid: uid, user: name.user)
            if let found = known.byPerson[sealedOwner]?.first(where: { $0.name == name }) { return (found, false) }
            known.last += 1
            let generation = Generation(number: known.last, uid: uid, name: name, isNew: isNew)
            known.byPerson[sealedOwner, default: []].append(generation)
            known.byNumber[generation.number] = generation
            // Inside the lock: nobody meets a generation that has no account.
            ledger.withLockedValue { $0.open(generation.number, uid: uid, isEmpty: isNew) }
            return (generation, !isNew)
        }
        // One that the sweep did not meet, having no directory, is to be counted, too.
        if isUncounted { maintenance.wake() }
        return generation
    }

    func generation(number: UInt64) -> Generation? { known.withLockedValue { $0.byNumber[number] } }

    /// All that are known, to be counted.
    var generations: [Generation] { known.withLockedValue { Array($0.byNumber.values) } }

    /// Discards what is known of a sealedOwner's images, except a generation that lives: nobody holds a vault of them.
    func discardAll(of sealedOwner: SealedOwner, except living: GenerationID? = nil) throws {
        let dead = known.withLockedValue { $0.byPerson[sealedOwner]?.filter { $0.name.generation != living } ?? [] }
        for generation in dead { try discard(generation) }
    }

    /// Gives a generation's directory to the trash. It must not be in use any more.
    func discard(_ generation: Generation) throws {
        forget(generation)
        defer { maintenance.wake() }
        guard let owner = try existingDirectory(of: generation.uid) else { return }
        defer { removeDirectoryIfEmpty(of: generation.uid) }
        do {
            try trash.take(
                generation.directoryName, from: owner, holding: generation.lastUsage ?? Usage())
        } catch let error as SystemError where error.isMissing {
            // Nothing was ever written to it, or somebody else has found it dead already.
        }
    }

    private func forget(_ generation: Generation) {
        known.withLockedValue { known in
            let sealedOwner = SealedOwner(uid: generation.uid, user: generation.name.user)
            known.byPerson[sealedOwner]?.removeAll { $0 === generation }
            if known.byPerson[sealedOwner]?.isEmpty == true { known.byPerson[sealedOwner] = nil }
            known.byNumber[generation.number] = nil
        }
        ledger.withLockedValue { ledger in
            if let usage = ledger.usage(of: generation.number) { generation.close(holding: usage) }
            _ = ledger.close(generation.number)
        }
        underWay.forget(generation)
        disk.directories.removeAll(of: generation.number)
        disk.forgetFailedSyncs(of: generation.number)
    }

    func usage(of generation: Generation) -> Usage? {
        ledger.withLockedValue { $0.usage(of: generation.number) } ?? generation.lastUsage
    }

    /// Holds the commit lock of an address.
    func withLock<Result>(
        _ generation: Generation, _ bucket: UInt8, _ body: () throws -> Result
    ) rethrows -> Result {
        try locks.withLock(for: generation.key(bucket), body)
    }
}

/// Who uses how much: per generation, per uid and in all. A value; its owner locks it. It is kept by uid, and
/// uids are put together to accounts where shares are compared.
///
/// After a start a generation's buckets are counted one after another. A change in a bucket that is not counted yet is
/// ignored: its count, made with that bucket's entries standing still, will see it.
struct UsageLedger {
    private struct Account {
        let uid: UInt32
        var usage = Usage()
        var uncounted: BucketSet
    }

    private struct OwnerUsage {
        var bytes = 0
        var generations: Set<UInt64> = []
    }

    private var accounts: [UInt64: Account] = [:]
    private var owners: [UInt32: OwnerUsage] = [:]
    /// All that is counted so far.
    private(set) var total = Usage()

    /// Begins an account.
    /// - Parameter isEmpty: for a generation just made; of any other nothing is counted yet.
    mutating func open(_ generation: UInt64, uid: UInt32, isEmpty: Bool) {
        accounts[generation] = Account(uid: uid, uncounted: isEmpty ? .none : .all)
        owners[uid, default: OwnerUsage()].generations.insert(generation)
    }

    /// Ends an account. Returns what was counted.
    mutating func close(_ generation: UInt64) -> Usage? {
        guard let account = accounts.removeValue(forKey: generation) else { return nil }
        total.images -= account.usage.images
        total.bytes -= account.usage.bytes
        if var owner = owners[account.uid] {
            owner.bytes -= account.usage.bytes
            owner.generations.remove(generation)
            owners[account.uid] = owner.generations.isEmpty ? nil : owner
        }
        return account.usage
    }

    mutating func add(images: Int, bytes: Int, to generation: UInt64, bucket: UInt8) {
        guard accounts[generation]?.uncounted.contains(bucket) == false else { return }
        change(generation, images: images, bytes: bytes)
    }

    mutating func setCount(_ usage: Usage, of generation: UInt64, bucket: UInt8) {
        guard accounts[generation]?.uncounted.remove(bucket) == true else { return }
        change(generation, images: usage.images, bytes: usage.bytes)
    }

    private mutating func change(_ generation: UInt64, images: Int, bytes: Int) {
        guard let uid = accounts[generation]?.uid else { return }
        accounts[generation]?.usage.images += images
        accounts[generation]?.usage.bytes += bytes
        owners[uid]?.bytes += bytes
        total.images += images
        total.bytes += bytes
    }

    /// nil until every bucket is counted, and for a generation without account.
    func usage(of generation: UInt64) -> Usage? {
        guard let account = accounts[generation], account.uncounted.isEmpty else { return nil }
        return account.usage
    }

    var isCounted: Bool { accounts.values.allSatisfy(\.uncounted.isEmpty) }

    /// What is counted so far.
    func counted(of generation: UInt64) -> Usage { accounts[generation]?.usage ?? Usage() }

    /// Whether a bucket still waits to be counted.
    func awaitsCount(_ generation: UInt64, bucket: UInt8) -> Bool {
        accounts[generation]?.uncounted.contains(bucket) == true
    }

    /// Who gives when the store is over its quota, and how much: the account most over its share, which is the quota
    /// through the accounts that have a cache, and of that account the user who uses most. It gives what brings the
    /// store back to its quota, but not so much that it falls below its share itself (I8). Whoever uses most *is* over
    /// its share: when all use more than the quota together, somebody uses more than an equal part of it.
    ///
    /// Costs a look at each uid that has a cache.
    /// - Parameters:
    ///   - accountOf: the account that a uid counts for. Asked each time, since a reload may change it.
    ///   - passingOver: generations that have nothing to give. Then it is the turn of the account's next one, and of
    ///     the next account that is over its share.
    func giver(
        quota: Int, accountOf: (UInt32) -> UInt32, passingOver: Set<UInt64> = []
    ) -> (generation: UInt64, bytes: Int)? {
        let excess = total.bytes - quota
        guard excess > 0 else { return nil }
        var used: [UInt32: Int] = [:]
        for (uid, owner) in owners { used[accountOf(uid), default: 0] += owner.bytes }
        let share = quota / max(1, used.count)
        var overShare = used.filter { $0.value > share }
        while let (account, bytes) = overShare.max(by: { $0.value < $1.value }) {
            var largest: (generation: UInt64, bytes: Int)?
            for (uid, owner) in owners where accountOf(uid) == account {
                for generation in owner.generations where !passingOver.contains(generation) {
                    let bytes = counted(of: generation).bytes
                    if bytes > largest?.bytes ?? 0 { largest = (generation, bytes) }
                }
            }
            if let largest { return (largest.generation, min(excess, bytes - share)) }
            overShare[account] = nil
        }
        return nil
    }
}

/// A set of the 256 buckets, in 32 bytes.
struct BucketSet: Equatable {
    private var words: SIMD4<UInt64>

    static let none = BucketSet(words: SIMD4(repeating: 0))
    static let all = BucketSet(words: SIMD4(repeating: .max))

    var isEmpty: Bool { self == .none }

    func contains(_ bucket: UInt8) -> Bool {
        words[Int(bucket >> 6)] & (1 << UInt64(bucket & 63)) != 0
    }

    /// Whether it was in.
    mutating func remove(_ bucket: UInt8) -> Bool {
        defer { words[Int(bucket >> 6)] &= ~(1 << UInt64(bucket & 63)) }
        return contains(bucket)
    }
}

/// What things take on the disk, as the quotas count them (F69): whole blocks, and an inode with the name that leads to
/// it.
///
/// Computed from a file's length, so that it costs no call when one is written and is the same whenever it is asked. A
/// file system that packs small files takes less.
struct DiskCosts: Sendable {
    /// Bytes for an inode, its name in a directory, and what the file system keeps about the two.
    static let inode = 512

    /// Bytes that the file system hands out at once.
    let block: Int
    /// Bytes of the longest file that can be an entry.
    let longest: Int

    init(block: Int, longest: Int) {
        // A file system that says more counts in blocks and packs several files in one, or says something else.
        self.block = min(max(block, 512), 64 << 10)
        self.longest = longest
    }

    /// Bytes that a file of this length takes. Nothing where it is longer than any entry: then somebody has planted it,
    /// its length may be any number, and it was never counted.
    func file(_ length: Int64) -> Int {
        guard 0...Int64(longest) ~= length else { return 0 }
        return (Int(length) + block - 1) / block * block + Self.inode
    }

    /// Bytes that a directory takes.
    var directory: Int { block + Self.inode }
}
