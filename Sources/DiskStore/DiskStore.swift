import CacheCore
import Glibc
import LinuxSupport
import Logging
import NIOConcurrencyHelpers
import NIOCore

/// Images and log-ins in files, as design.md has them.
///
/// Two halves: ``LoginFiles`` with the keys, ``ImageFiles`` with what is sealed under them. Each operation below is a
/// few lines that say which half does what, and in which order.
public final class DiskStore: ImageStore {
    public let epochBase: UInt64
    let logins: LoginFiles
    let images: ImageFiles
    let maintenance: Maintenance
    private let state: Directory
    /// The markers in the directory that the configuration names; nil where it names none.
    public let logoutMarkers: (any LogoutMarkers)?
    private let algorithms: Algorithms
    private let ciphers: EntryCipherPool
    public let counters = Counters<StoreEvent>()
    private let locks: NIOLockedValueBox<StoreLocks?>

    /// Opens the store, or makes it. Costs a few system calls, however much is stored.
    /// - Parameters:
    ///   - system: the machine's files.
    ///   - random: where keys come from.
    ///   - accountOf: the account that a uid counts for: shares of the quota are an account's.
    ///   - now: seconds since 1970.
    ///   - pause: waits a little; called between batches of deletions, so that they do not starve everything else.
    ///   - yield: called between the small steps of all that happens in the background.
    /// - Throws: ``StoreStartError``, which says what to do; ``StoreError`` when the system fails.
    public init(
        configuration: DiskStoreConfiguration, system: any FileSystem = LinuxFileSystem(),
        random: any RandomSource = SecureRandom(), accountOf: @escaping @Sendable (UInt32) -> UInt32 = { $0 },
        now: @escaping @Sendable () -> Int64 = { Int64(time(nil)) },
        pause: @escaping @Sendable () -> Void = { usleep(2_000) }, yield: @escaping YieldToOthers, log: Logger
    ) throws {
        let disk = try Disk(system: system, openDirectories: configuration.openDirectories, random: random)
        algorithms = try Algorithms()
        let opened = try storeErrors("opening the store") { [algorithms] in
            try OpenedStore(configuration, disk: disk, algorithms: algorithms, random: random, now: now(), log: log)
        }
        let signal = MaintenanceSignal()
        ciphers = EntryCipherPool(algorithms: algorithms)
        epochBase = opened.epochBase
        locks = NIOLockedValueBox(opened.locks)
        state = opened.state
        logoutMarkers = configuration.pendingLogouts.map { PendingDirectory(path: $0, disk: disk, log: log) }
        logins = LoginFiles(
            disk: disk, keys: opened.keys, sessions: opened.sessions, names: opened.names, algorithms: algorithms,
            reserve: EmergencyReserve(disk: disk, directory: opened.keys, whenReleased: signal.retryLater),
            random: random,
            counters: counters, log: log)
        images = ImageFiles(
            configuration, disk: disk, users: opened.users, trash: opened.trash, random: random, now: now,
            accountOf: accountOf, counters: counters, maintenance: signal, log: log)
        maintenance = Maintenance(logins: logins, images: images, signal: signal, pause: pause, yield: yield, log: log)
    }

    public func load(_ owner: Owner) throws -> (record: LoginRecord, generationStore: any GenerationStore)? {
        try exclusively(owner, "loading a log-in") { hashedOwner in
            guard let login = try logins.load(hashedOwner) else {
                // What was found of it before, when it was still there, is dead now.
                leaveToTrash(hashedOwner)
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
        try storeErrors("making log-ins durable") { try logins.makeDurable(uid) }
    }

    public func commitLogin(_ owner: Owner, _ login: LoginRecord) throws -> any GenerationStore {
        try exclusively(owner, "logging in") { hashedOwner in
            let keys = try logins.begin(hashedOwner, SessionRecord(user: owner.user, login: login))
            leaveToTrash(hashedOwner, except: keys.generation)
            return generationStore(of: hashedOwner, keys, isNew: true)
        }
    }

    public func commitSessions(_ owner: Owner, _ login: LoginRecord) throws {
        try exclusively(owner, "keeping a session") { hashedOwner in
            try logins.change(hashedOwner, SessionRecord(user: owner.user, login: login))
        }
    }

    public func commitPurge(_ owner: Owner) throws -> any GenerationStore {
        try exclusively(owner, "purging") { hashedOwner in
            // The new key is durable before the old one is destroyed (LoginFiles.write). When the images go promises
            // nothing: without a receipt they may be missing, and behind it no key opens them.
            let keys: KeyFile
            do {
                keys = try logins.renew(hashedOwner)
            } catch let error as SystemError where error.isNoSpace {
                // The closed generation will never be served again: its images make the room that its end needs (F4).
                try deleteImages(of: hashedOwner)
                keys = try logins.renew(hashedOwner)
            }
            return generationStore(of: hashedOwner, keys, isNew: true)
        }
    }

    public func commitLogout(_ owner: Owner) throws {
        try exclusively(owner, "logging out") { hashedOwner in
            // With a generation store about, whoever closed it discards it; without one nobody would.
            let hasGenerationStore = logins.isLive(hashedOwner)
            try logins.end(hashedOwner)
            if !hasGenerationStore { leaveToTrash(hashedOwner) }
        }
    }

    /// Ends what a boot is to end, and keeps on record which boot this is: last, so that a start that is interrupted
    /// before is followed by one that begins anew. Costs a few system calls for each log-in that ends. To be called
    /// before anybody is served.
    /// - Parameters:
    ///   - bootID: `/proc/sys/kernel/random/boot_id`.
    ///   - endsLogins: whether a boot since the last start logs everybody out.
    /// - Throws: ``StoreError`` when a log-out could not be made durable, or the record where a boot ends log-ins.
    public func recordBoot(_ bootID: String, endsLogins: Bool) throws {
        let (disk, fileName): (Disk, FileName) = (logins.disk, "boot")
        try storeErrors("logging everybody out after a boot") {
            // The kernel's id is a UUID of 36 characters. Without a record nothing says that there was no boot, and
            // what one is to end must not outlive it.
            let recorded = try disk.contents(of: fileName, in: state, limit: 128)
            if let recorded, recorded.withBytes({ $0.elementsEqual(bootID.utf8) }) { return }
            if endsLogins {
                let count = try endEveryLogin()
                logins.log.notice(
                    "everybody is logged out, since the machine has booted", metadata: ["users": "\(count)"])
            }
            do {
                try logins.reserve.givingUp { try disk.replace(fileName, in: state, with: bootID.utf8) }
            } catch let error as SystemError where !endsLogins {
                // The next start takes this boot for a new one, too, and ends nothing either unless it is told to by
                // then.
                logins.log.error("the boot cannot be put on record", metadata: ["error": "\(error)"])
            }
        }
    }

    /// Returns how many there were.
    private func endEveryLogin() throws -> Int {
        var count = 0
        for uid in try logins.uids() {
            for hashedOwner in try logins.owners(of: uid) {
                try logins.locks.withLock(for: hashedOwner) {
                    try logins.end(hashedOwner)
                    leaveToTrash(hashedOwner)
                }
                count += 1
            }
        }
        return count
    }

    public func digest(of image: ByteBuffer) -> ImageDigest {
        image.withUnsafeReadableBytes { algorithms.digest(of: $0) }
    }

    /// Images and bytes on disk, as far as counted.
    public var usageTotal: Usage { images.ledger.withLockedValue { $0.total } }

    /// What waits to be deleted.
    public var trashUsage: Usage { images.trash.usage }

    /// Whether everything that was there at the start is counted by now.
    public var isCounted: Bool { maintenance.isCounted }

    /// Does what is due in the background, now and on this thread: the sweep after a start, counting, deleting trash,
    /// evicting. Returns when nothing more can be done.
    public func maintain() { maintenance.run() }

    /// Starts the thread that maintains the store. Called once at most; ``shutdown()`` ends it.
    /// - Parameter rest: seconds until it begins with the sweep.
    public func start(after rest: Double = 0) throws { try maintenance.startThread(after: rest) }

    /// Ends the maintenance thread and gives up the locks. The generation stores must be closed or idle.
    public func shutdown() {
        maintenance.stop()
        logins.forgetKeys()
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

    /// The log-in is gone, whatever becomes of its images: the sweep finds what stays.
    func leaveToTrash(_ hashedOwner: HashedOwner, except living: GenerationID? = nil) {
        images.log.attempt("a dead generation could not be moved to the trash") {
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

/// What the store is told. Nothing of it changes while it runs.
public struct DiskStoreConfiguration: Sendable {
    /// Where keys are kept.
    public enum KeyStorage: String, CaseIterable, Sendable {
        /// In the state directory: images and log-ins survive a reboot.
        case disk
        /// In the runtime directory, a tmpfs: a reboot logs everybody out.
        case runtime
    }

    /// Absolute paths. Each must be there, belong to the daemon's user and be writable for nobody else.
    public var cacheDirectory: String
    public var stateDirectory: String
    /// Only used with ``KeyStorage/runtime``, and to destroy keys that an earlier start with it left there.
    public var runtimeDirectory: String?
    public var keys: KeyStorage
    /// Absolute path of the directory in which log-out hooks leave markers; need not exist. nil: none is looked at.
    public var pendingLogouts: String?
    /// Bytes that all images and the trash may take.
    public var quota: Int
    /// Bytes that the images of one user may take.
    public var userQuota: Int
    /// Directories kept open, each of which costs a descriptor.
    public var openDirectories: Int

    public init(
        cacheDirectory: String, stateDirectory: String, runtimeDirectory: String? = nil, keys: KeyStorage = .disk,
        pendingLogouts: String? = nil, quota: Int = 1 << 30, userQuota: Int = 64 << 20, openDirectories: Int = 256
    ) {
        self.cacheDirectory = cacheDirectory
        self.stateDirectory = stateDirectory
        self.runtimeDirectory = runtimeDirectory
        self.keys = keys
        self.pendingLogouts = pendingLogouts
        self.quota = quota
        self.userQuota = userQuota
        self.openDirectories = openDirectories
    }
}

/// What the store counts from its start on. INFO shows each under the name of the case.
public enum StoreEvent: Int, CaseIterable, Sendable {
    /// Entries that were torn, tampered with, planted or unreadable, and were removed (I5).
    case rejectedEntries
    /// Reads that failed without anything being wrong with the entry, for want of descriptors most likely.
    case failedReads
    case evictedImages, evictedBytes
    /// Log-ins ended because their files were damaged.
    case damagedLogins
}
