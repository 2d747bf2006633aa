import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import Synchronization

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
        var byPerson: [HashedOwner: [Generation]] = [:]
        var byNumber: [UInt64: Generation] = [:]
        /// The dead among them whose directories could not be moved.
        var undiscarded: [UInt64: Generation] = [:]
        var last: UInt64 = 0
    }

    init(
        _ configuration: DiskStoreConfiguration, disk: Disk, users: Directory, trash: Directory,
        random: any RandomSource, now: @escaping @Sendable () -> Int64,
        accountOf: @escaping @Sendable (UInt32) -> UInt32, counters: Counters<StoreEvent>,
        maintenance: MaintenanceSignal, log: Logger
    ) {
        (quota, userQuota) = (configuration.quota, configuration.userQuota)
        // No more than the quotas, nor than OpenSSL takes at once.
        costs = DiskCosts(block: disk.system.blockSize(users.descriptor), longest: min(quota, userQuota, 1 << 30))
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

    /// A generation of an owner's, the same object for all who ask.
    /// - Parameter isNew: it was made just now, so that nothing is in it.
    func generation(_ id: GenerationID, of owner: HashedOwner, isNew: Bool) -> Generation {
        let (generation, isUncounted) = known.withLockedValue { known -> (Generation, Bool) in
            if let found = known.byPerson[owner]?.first(where: { $0.id == id }) { return (found, false) }
            known.last += 1
            let generation = Generation(number: known.last, owner: owner, id: id, isNew: isNew)
            known.byPerson[owner, default: []].append(generation)
            known.byNumber[generation.number] = generation
            // Inside the lock: nobody meets a generation that has no account.
            ledger.withLockedValue { $0.open(generation.number, uid: owner.uid, isEmpty: isNew) }
            return (generation, !isNew)
        }
        // One that the sweep did not meet, having no directory, is to be counted, too.
        if isUncounted { maintenance.wake() }
        return generation
    }

    func generation(number: UInt64) -> Generation? { known.withLockedValue { $0.byNumber[number] } }

    /// All that are known, to be counted.
    var generations: [Generation] { known.withLockedValue { Array($0.byNumber.values) } }

    /// Discards what is known of a hashed owner's images, except a generation that lives: nobody holds a generation store of them.
    func discardAll(of hashedOwner: HashedOwner, except living: GenerationID? = nil) throws {
        let dead = known.withLockedValue { $0.byPerson[hashedOwner]?.filter { $0.id != living } ?? [] }
        for generation in dead { try discard(generation) }
    }

    /// Gives a generation's directory to the trash. It must not be in use any more.
    ///
    /// One that cannot be moved stays known and counted, since it still takes the room; maintenance tries again.
    func discard(_ generation: Generation) throws {
        do {
            try moveToTrash(generation)
        } catch {
            known.withLockedValue { $0.undiscarded[generation.number] = generation }
            maintenance.retryLater()
            throw error
        }
        maintenance.wake()
    }

    /// Discards what could not be discarded before.
    func discardLeftOver() throws {
        var failure = FirstFailure()
        for generation in known.withLockedValue({ Array($0.undiscarded.values) }) {
            failure.attempt { try moveToTrash(generation) }
        }
        try failure.rethrow()
    }

    private func moveToTrash(_ generation: Generation) throws {
        let usage = ledger.withLockedValue { $0.counted(of: generation.number) }
        if let directory = try existingDirectory(of: generation.owner.uid) {
            defer { removeDirectoryIfEmpty(of: generation.owner.uid) }
            do {
                try trash.take(generation.directoryName, from: directory, holding: usage)
            } catch let error as SystemError where error.isMissing {
                // Nothing was ever written to it, or somebody else has found it dead already.
            }
        }
        // Behind the move, so that whichever of two does it knows what it held.
        forget(generation)
    }

    private func forget(_ generation: Generation) {
        known.withLockedValue { known in
            known.byPerson[generation.owner]?.removeAll { $0 === generation }
            if known.byPerson[generation.owner]?.isEmpty == true { known.byPerson[generation.owner] = nil }
            known.byNumber[generation.number] = nil
            known.undiscarded[generation.number] = nil
        }
        underWay.forget(generation)
        disk.directories.removeAll(of: generation.number)
        disk.forgetFailedSyncs(of: generation.number)
        ledger.withLockedValue { _ = $0.close(generation.number) }
    }

    /// Holds the commit lock of an address.
    func withLock<Result>(_ generation: Generation, _ bucket: UInt8, _ body: () throws -> Result) rethrows -> Result {
        try locks.withLock(for: generation.key(bucket), body)
    }
}

/// Who uses how much: per generation, per uid and in all. A value; its owner locks it. Uids are put together to
/// accounts where shares are compared.
///
/// After a start a generation's buckets are counted one after another. A change in a bucket that is not counted yet is
/// ignored: its count, made with that bucket's entries standing still, will see it.
struct UsageLedger {
    private struct Account {
        let uid: UInt32
        var usage = Usage()
        /// How many of its 256 buckets are counted, from the first on.
        var counted: Int
        var isCounted: Bool { counted == 256 }
    }

    private struct Owner {
        var bytes = 0
        var generations: Set<UInt64> = []
    }

    private var accounts: [UInt64: Account] = [:]
    private var owners: [UInt32: Owner] = [:]
    /// All that is counted so far.
    private(set) var total = Usage()

    /// Begins an account.
    /// - Parameter isEmpty: for a generation just made; of any other nothing is counted yet.
    mutating func open(_ generation: UInt64, uid: UInt32, isEmpty: Bool) {
        accounts[generation] = Account(uid: uid, counted: isEmpty ? 256 : 0)
        owners[uid, default: Owner()].generations.insert(generation)
    }

    /// Ends an account. Returns what was counted.
    mutating func close(_ generation: UInt64) -> Usage? {
        guard let account = accounts[generation] else { return nil }
        change(generation, images: -account.usage.images, bytes: -account.usage.bytes)
        accounts[generation] = nil
        owners[account.uid]?.generations.remove(generation)
        if owners[account.uid]?.generations.isEmpty == true { owners[account.uid] = nil }
        return account.usage
    }

    mutating func add(images: Int, bytes: Int, to generation: UInt64, bucket: UInt8) {
        guard let account = accounts[generation], bucket < account.counted else { return }
        change(generation, images: images, bytes: bytes)
    }

    /// Counts the bucket that is ``nextToCount(of:)``.
    mutating func setCount(_ usage: Usage, of generation: UInt64, bucket: UInt8) {
        guard nextToCount(of: generation) == bucket else { return }
        accounts[generation]?.counted += 1
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
        guard let account = accounts[generation], account.isCounted else { return nil }
        return account.usage
    }

    var isCounted: Bool { accounts.values.allSatisfy(\.isCounted) }

    /// What is counted so far.
    func counted(of generation: UInt64) -> Usage { accounts[generation]?.usage ?? Usage() }

    /// nil when every bucket is counted, and for a generation without account.
    func nextToCount(of generation: UInt64) -> UInt8? { accounts[generation].flatMap { UInt8(exactly: $0.counted) } }

    /// Who gives when the store is over its quota, and how much: the account most over its share, which is the quota
    /// through the accounts that have a cache, and of that account the user who uses most. It gives what brings the
    /// store back to its quota, but not so much that it falls below its share itself (I8). Whoever uses most *is* over
    /// its share: when all use more than the quota together, somebody uses more than an equal part of it.
    ///
    /// Costs a look at each uid that has a cache, and at the generations of the account that gives.
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
            let generations = owners.filter { accountOf($0.key) == account }.flatMap(\.value.generations)
            let able = generations.filter { counted(of: $0).bytes > 0 && !passingOver.contains($0) }
            if let largest = able.max(by: { counted(of: $0).bytes < counted(of: $1).bytes }) {
                return (largest, min(excess, bytes - share))
            }
            overShare[account] = nil
        }
        return nil
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
