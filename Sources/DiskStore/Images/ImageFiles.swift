import CacheCore
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import Synchronization

/// The images of the store: generations, directories, quotas and trash. It has no keys; all entries it handles are
/// encrypted.
final class ImageFiles: Sendable {
    let disk: Disk
    let costs: DiskCosts
    let users: Directory
    let trash: Trash
    let random: any RandomSource
    let now: @Sendable () -> Int64
    let quota: Int
    let userQuota: Int
    let accountOf: @Sendable (UInt32) -> UInt32
    let counters: Counters<StoreEvent>
    let maintenance: MaintenanceSignal
    let buffers: BufferPool
    let log: Logger

    let ledger = NIOLockedValueBox(UsageLedger())
    /// Commit locks, held while an entry is added or removed.
    let locks = StripedLocks(count: 256)
    let claims = DirectoryClaims()
    let temporaryFiles = TemporaryFileRegistry()
    /// Whether the kernel and the file system support calls that do not block, as far as known.
    let canReadCached: Synchronization.Atomic<Bool>
    private let known = NIOLockedValueBox(KnownGenerations())

    init(
        _ configuration: DiskStoreConfiguration, disk: Disk, users: Directory, trash: Directory,
        random: any RandomSource, now: @escaping @Sendable () -> Int64,
        accountOf: @escaping @Sendable (UInt32) -> UInt32, counters: Counters<StoreEvent>,
        maintenance: MaintenanceSignal, buffers: BufferPool, log: Logger
    ) {
        (quota, userQuota) = (configuration.quota, configuration.userQuota)
        // Limited by the quotas and by OpenSSL's maximum per call.
        costs = DiskCosts(block: disk.system.blockSize(users.descriptor), maximumEntry: min(quota, userQuota, 1 << 30))
        canReadCached = Synchronization.Atomic(!disk.system.isRemote(users.descriptor))
        self.disk = disk
        self.users = users
        self.trash = Trash(disk: disk, directory: trash, random: random, costs: costs)
        (self.random, self.now, self.accountOf, self.counters) = (random, now, accountOf, counters)
        (self.maintenance, self.buffers, self.log) = (maintenance, buffers, log)
    }

    /// Returns the generation of an owner; always the same object.
    func generation(_ id: GenerationID, of owner: HashedOwner, isNew: Bool) -> Generation {
        let (generation, isUncounted) = known.withLockedValue { known -> (Generation, Bool) in
            if let found = known.all(of: owner).first(where: { $0.id == id }) { return (found, false) }
            let generation = known.add(id, of: owner, isNew: isNew)
            // Inside the lock, so that every known generation is in the ledger.
            ledger.withLockedValue { $0.open(generation.number, uid: owner.uid, isEmpty: isNew) }
            return (generation, !isNew)
        }
        // The sweep does not find generations without a directory.
        if isUncounted { maintenance.wake() }
        return generation
    }

    func generation(number: UInt64) -> Generation? { known.withLockedValue { $0.byNumber[number] } }

    var generations: [Generation] { known.withLockedValue { Array($0.byNumber.values) } }

    /// Discards all generations of an owner, except `living`. None may be in use by a generation store.
    func discardAll(of hashedOwner: HashedOwner, except living: GenerationID? = nil) throws {
        let ended = known.withLockedValue { $0.all(of: hashedOwner).filter { $0.id != living } }
        for generation in ended { try discard(generation) }
    }

    /// Moves the directory of a generation, which must not be in use, to the trash. If this fails, it stays counted,
    /// because it still occupies space, and maintenance retries.
    func discard(_ generation: Generation) throws {
        do {
            try moveToTrash(generation)
        } catch {
            known.withLockedValue { $0.notDiscarded[generation.number] = generation }
            maintenance.retryLater()
            throw error
        }
        maintenance.wake()
    }

    func discardLeftOver() throws {
        var failure = FirstFailure()
        for generation in known.withLockedValue({ Array($0.notDiscarded.values) }) {
            failure.attempt { try moveToTrash(generation) }
        }
        try failure.rethrow()
    }

    private func moveToTrash(_ generation: Generation) throws {
        let usage = ledger.withLockedValue { $0.counted(of: generation.number) }
        if let directory = try existingDirectory(of: generation.owner.uid) {
            defer { removeDirectoryIfEmpty(of: generation.owner.uid) }
            do {
                try trash.move(generation.directoryName, from: directory, holding: usage)
            } catch let error as SystemError where error.isMissing {
                // Nothing was written, or another thread has moved it.
            }
        }
        // After the move, so that the thread that moves it knows its usage.
        forget(generation)
    }

    private func forget(_ generation: Generation) {
        known.withLockedValue { $0.remove(generation) }
        temporaryFiles.forget(generation)
        disk.openEntries.removeAll(of: generation.number)
        disk.directories.removeAll(of: generation.number)
        disk.forgetFailedSyncs(of: generation.number)
        ledger.withLockedValue { _ = $0.close(generation.number) }
    }

    /// Runs a change of a bucket's entries under its commit lock.
    func withLock<Result>(_ generation: Generation, _ bucket: UInt8, _ body: () throws -> Result) rethrows -> Result {
        let key = generation.key(bucket)
        return try locks.withLock(for: key) { try disk.openEntries.changing(key, body) }
    }
}

/// Space on disk as the quotas count it (F69): whole blocks, an inode and a name.
///
/// Computed from the length of a file, so that it needs no system call and does not change. File systems that pack
/// small files use less.
struct DiskCosts: Sendable {
    /// Bytes for an inode, its name in a directory, and metadata of the file system.
    static let inode = 512

    /// Allocation unit of the file system in bytes.
    let block: Int
    /// Length in bytes of the largest possible entry.
    let maximumEntry: Int

    init(block: Int, maximumEntry: Int) {
        // File systems that report larger blocks pack several files into one, or report something else.
        self.block = min(max(block, 512), 64 << 10)
        self.maximumEntry = maximumEntry
    }

    /// The bytes that a file takes; 0 for one longer than any entry, which the store did not write and does not count.
    func file(_ length: Int64) -> Int {
        guard 0...Int64(maximumEntry) ~= length else { return 0 }
        return (Int(length) + block - 1) / block * block + Self.inode
    }

    var directory: Int { block + Self.inode }
}
