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
