import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Stores images and logins in files. design.md describes the layout.
///
/// ``LoginFiles`` owns the keys, ``ImageFiles`` the images encrypted under them.
public final class DiskStore: ImageStore {
    public let epochBase: UInt64
    let logins: LoginFiles
    let images: ImageFiles
    let maintenance: Maintenance
    private let state: Directory
    /// The configured directory of pending logouts, or nil.
    public let pendingLogoutFiles: (any PendingLogoutFiles)?
    private let algorithms: Algorithms
    private let ciphers: EntryCipherPool
    public let counters = Counters<StoreEvent>()
    private let locks: NIOLockedValueBox<StoreLocks?>

    /// Opens or creates the store. Costs a fixed number of system calls, independent of what is stored.
    /// - Parameters:
    ///   - accountOf: returns the quota account of a uid.
    ///   - now: returns seconds since 1970.
    ///   - pause: blocks briefly; called between batches of deletions, so that they do not starve requests.
    ///   - yield: called between small steps of background work.
    ///   - buffers: for images that are read from disk.
    /// - Throws: ``StoreStartError`` if an administrator has to act; ``StoreError`` if a system call fails.
    public init(
        configuration: DiskStoreConfiguration, system: any FileSystem = LinuxFileSystem(),
        random: any RandomSource = SecureRandom(), accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 },
        now: @escaping @Sendable () -> Int64 = { Int64(time(nil)) },
        pause: @escaping @Sendable () -> Void = { usleep(2_000) }, yield: @escaping YieldToOthers,
        buffers: BufferPool = BufferPool(), log: Logger
    ) throws {
        let disk = try Disk(
            system: system, openDirectories: configuration.openDirectories, openEntries: configuration.openEntries,
            random: random)
        algorithms = try Algorithms()
        let opened = try storeErrors("opening the store") { [algorithms] in
            try OpenedStore(configuration, disk: disk, algorithms: algorithms, random: random, now: now(), log: log)
        }
        let signal = MaintenanceSignal()
        ciphers = EntryCipherPool(algorithms: algorithms)
        epochBase = opened.epochBase
        locks = NIOLockedValueBox(opened.locks)
        state = opened.state
        pendingLogoutFiles = configuration.pendingLogouts.map { PendingDirectory(path: $0, disk: disk, log: log) }
        logins = LoginFiles(
            disk: disk, keys: opened.keys, sessions: opened.sessions, names: opened.names, algorithms: algorithms,
            reserve: EmergencyReserve(disk: disk, directory: opened.keys, whenReleased: signal.retryLater),
            random: random, counters: counters, log: log)
        images = ImageFiles(
            configuration, disk: disk, users: opened.users, trash: opened.trash, random: random, now: now,
            accountOf: accountOf, counters: counters, maintenance: signal, buffers: buffers, log: log)
        maintenance = Maintenance(logins: logins, images: images, signal: signal, pause: pause, yield: yield, log: log)
    }

    public func load(_ owner: Owner) throws -> (record: LoginRecord, generationStore: any GenerationStore)? {
        try exclusively(owner, "loading a login") { hashedOwner in
            guard let login = try logins.load(hashedOwner) else {
                // Generations found earlier for this owner are dead.
                discardGenerations(of: hashedOwner)
                return nil
            }
            logins.setLive(hashedOwner, sessionKey: login.keys.sessionKey)
            return (login.session.login, generationStore(of: hashedOwner, login.keys, isNew: false))
        }
    }

    public func uids() throws -> [UInt32] { try storeErrors("listing uids") { try logins.uids() } }

    public func users(of uid: UInt32) throws -> [OpaqueID] {
        try storeErrors("listing users") {
            try logins.owners(of: uid).compactMap { hashedOwner in
                try logins.locks.withLock(for: hashedOwner) { try logins.load(hashedOwner)?.session.user }
            }
        }
    }

    public func countUsers(of uid: UInt32) throws -> Int {
        try storeErrors("counting users") { try logins.owners(of: uid).count }
    }

    public func makeDurable(_ uid: UInt32) throws {
        try storeErrors("making logins durable") { try logins.makeDurable(uid) }
    }

    public func commitLogin(_ owner: Owner, _ login: LoginRecord) throws -> any GenerationStore {
        try exclusively(owner, "logging in") { hashedOwner in
            let keys = try logins.begin(hashedOwner, SessionRecord(user: owner.user, login: login))
            discardGenerations(of: hashedOwner, except: keys.generation)
            return generationStore(of: hashedOwner, keys, isNew: true)
        }
    }

    public func commitSessions(_ owner: Owner, _ login: LoginRecord) throws {
        try exclusively(owner, "storing sessions") { hashedOwner in
            try logins.change(hashedOwner, SessionRecord(user: owner.user, login: login))
        }
    }

    public func commitPurge(_ owner: Owner) throws -> any GenerationStore {
        try exclusively(owner, "purging") { hashedOwner in
            // ``LoginFiles/write(_:of:)`` destroys the old key after the new one is durable. A crash before the receipt
            // may lose the images, but after the receipt no key opens them.
            let keys: KeyFile
            do {
                keys = try logins.renew(hashedOwner)
            } catch let error as SystemError where error.isNoSpace {
                // Nothing reads the closed generation any more, so its images can make room for the new key (F4).
                try deleteImages(of: hashedOwner)
                keys = try logins.renew(hashedOwner)
            }
            return generationStore(of: hashedOwner, keys, isNew: true)
        }
    }

    public func commitLogout(_ owner: Owner) throws {
        try exclusively(owner, "logging out") { hashedOwner in
            // Discards the generation here if this run has no generation store for it.
            let hasGenerationStore = logins.isLive(hashedOwner)
            try logins.end(hashedOwner)
            if !hasGenerationStore { discardGenerations(of: hashedOwner) }
        }
    }

    /// Ends the logins that a boot ends, then records the boot, so that an interrupted start is repeated. Costs a few
    /// system calls per ended login. Call this before the daemon serves clients.
    /// - Parameters:
    ///   - bootID: an id of the current boot, 32 hexadecimal digits.
    ///   - endsLogins: whether a boot since the last start logs out all users.
    /// - Throws: ``StoreError`` if a logout cannot be made durable, or, with `endsLogins`, the record.
    public func endLoginsOfEarlierBoot(than bootID: String, endsLogins: Bool) throws {
        let (disk, fileName): (Disk, FileName) = (logins.disk, "boot")
        try storeErrors("ending logins after a boot") {
            // Without a record, assume that the machine has booted: logins must not outlive a boot.
            let recorded = try disk.contents(of: fileName, in: state, limit: 128)
            if let recorded, recorded.withBytes({ $0.elementsEqual(bootID.utf8) }) { return }
            if endsLogins {
                let count = try endEveryLogin()
                logins.log.notice(
                    "all users logged out after a boot", metadata: ["users": "\(count)"])
            }
            do {
                try logins.reserve.retryingWithReserve { try disk.replace(fileName, in: state, with: bootID.utf8) }
            } catch let error as SystemError where !endsLogins {
                // Harmless: the next start treats this boot as new, and ends logins only if it is configured to.
                logins.log.error("boot id not recorded", metadata: ["reason": "\(error)"])
            }
        }
    }

    private func endEveryLogin() throws -> Int {
        var count = 0
        for uid in try logins.uids() {
            for hashedOwner in try logins.owners(of: uid) {
                try logins.locks.withLock(for: hashedOwner) {
                    try logins.end(hashedOwner)
                    discardGenerations(of: hashedOwner)
                }
                count += 1
            }
        }
        return count
    }

    public func digest(of image: ByteBuffer) -> ImageDigest {
        image.withUnsafeReadableBytes { algorithms.digest(of: $0) }
    }

    /// Images on disk that are counted so far.
    public var usageTotal: Usage { images.ledger.withLockedValue { $0.total } }

    public var trashUsage: Usage { images.trash.usage }

    public var isCounted: Bool { maintenance.isCounted }

    public var statistics: StoreStatistics {
        StoreStatistics(usage: usageTotal, trash: trashUsage, isCounted: isCounted, counters: counters)
    }

    /// Does all pending background work on the calling thread: sweep, counting, trash, eviction.
    public func maintain() { maintenance.run() }

    /// Starts the maintenance thread, which ``shutdown()`` ends. Call this at most once.
    /// - Parameters:
    ///   - delay: seconds until the sweep begins.
    ///   - whenCounted: called once, by that thread, when the sweep has ended and all images have been counted.
    public func start(after delay: Double = 0, whenCounted: @escaping @Sendable () -> Void = {}) throws {
        try maintenance.startThread(after: delay, whenCounted: whenCounted)
    }

    /// Ends the maintenance thread and releases the locks. Generation stores must be closed or idle.
    public func shutdown() {
        maintenance.stop()
        logins.wipeKeys()
        locks.withLockedValue { $0 = nil }
    }

    private func exclusively<Result>(
        _ owner: Owner, _ attempt: String, _ body: (HashedOwner) throws -> Result
    ) throws -> Result {
        try storeErrors(attempt) {
            let hashedOwner = try logins.hashedOwner(owner)
            return try logins.locks.withLock(for: hashedOwner) { try body(hashedOwner) }
        }
    }

    /// Failure is harmless: the login has ended, and the sweep finds the images.
    func discardGenerations(of hashedOwner: HashedOwner, except living: GenerationID? = nil) {
        images.log.onFailure("could not move the directory of an ended generation to the trash") {
            try images.discardAll(of: hashedOwner, except: living)
        }
    }

    private func generationStore(of hashedOwner: HashedOwner, _ keys: KeyFile, isNew: Bool) -> DiskGenerationStore {
        let generation = images.generation(keys.generation, of: hashedOwner, isNew: isNew)
        return DiskGenerationStore(generation: generation, key: keys.imageKey, files: images, ciphers: ciphers)
    }

    private func deleteImages(of hashedOwner: HashedOwner) throws {
        guard let keys = try logins.keyFile(of: hashedOwner) else { return }
        try images.discard(images.generation(keys.generation, of: hashedOwner, isNew: false))
        _ = try images.trash.emptySome(budget: 8 * Eviction.batch)
    }
}

public struct DiskStoreConfiguration: Sendable {
    public enum KeyStorage: String, CaseIterable, Sendable {
        /// In the state directory: images and logins survive a reboot.
        case disk
        /// In the runtime directory, a tmpfs: a reboot logs out all users.
        case runtime
    }

    /// Absolute paths. Each directory must exist, belong to the daemon's user, and be writable for that user only.
    public var cacheDirectory: String
    public var stateDirectory: String
    /// Used with ``KeyStorage/runtime``; otherwise only to destroy keys that an earlier configuration left there.
    public var runtimeDirectory: String?
    public var keys: KeyStorage
    /// Absolute path of the directory in which logout hooks create pending-logout files. It may be missing. Nil
    /// disables it.
    public var pendingLogouts: String?
    /// Maximum bytes of all images and the trash.
    public var quota: Int
    /// Maximum bytes of one user's images.
    public var userQuota: Int
    /// Maximum number of directories kept open. Each takes a file descriptor.
    public var openDirectories: Int
    /// Maximum number of entry files kept open. Each takes a file descriptor.
    public var openEntries: Int

    public init(
        cacheDirectory: String, stateDirectory: String, runtimeDirectory: String? = nil, keys: KeyStorage = .disk,
        pendingLogouts: String? = nil, quota: Int = 1 << 30, userQuota: Int = 64 << 20, openDirectories: Int = 256,
        openEntries: Int = 1024
    ) {
        (self.cacheDirectory, self.stateDirectory) = (cacheDirectory, stateDirectory)
        (self.runtimeDirectory, self.keys, self.pendingLogouts) = (runtimeDirectory, keys, pendingLogouts)
        (self.quota, self.userQuota) = (quota, userQuota)
        (self.openDirectories, self.openEntries) = (openDirectories, openEntries)
    }
}
