import Logging
import NIOConcurrencyHelpers
import Synchronization

/// Who is logged in. The way from an owner to the one cache that is theirs.
///
/// A user is looked up on disk when first named, so that a start costs the same whatever is stored.
public final class UserSessions: Sendable {
    let services: CacheServices
    let epochs: Epochs
    let log: Logger
    /// For what a uid may do all the time.
    public let uidLog: UIDLog
    private let directory = NIOLockedValueBox(Directory())
    /// The most hits that ``figures(of:)`` ever told of all. A cache that ends between its looks is missing from both,
    /// and a count that falls means a restart to whoever reads it.
    private let hitsTold = Atomic<Int>(0)

    private struct Directory {
        var uids: [UInt32: UsersOfUID] = [:]
        /// Shutting down: whoever is new comes too late.
        var isStopped = false

        mutating func users(of uid: UInt32) -> UsersOfUID {
            let users = uids[uid] ?? UsersOfUID()
            uids[uid] = users
            return users
        }
    }

    public init(services: CacheServices, log: Logger) {
        self.services = services
        self.epochs = Epochs(base: services.store.epochBase)
        self.log = log
        self.uidLog = UIDLog(log) { services.budget.account(of: $0) }
    }

    // MARK: Looking up

    /// The owner's cache if it is open and known: what a hit needs. Costs three locks and two look-ups.
    public func openCache(_ owner: Owner) -> UserCache? { entry(owner)?.cache }

    /// What is known of an owner without a look on disk.
    func entry(_ owner: Owner) -> UserEntry? { users(of: owner.uid)?.entry(owner.user) }

    func users(of uid: UInt32) -> UsersOfUID? { directory.withLockedValue { $0.uids[uid] } }

    /// The entries of a uid, or of all: of users that were named since the start.
    func entries(of uid: UInt32? = nil) -> [UserEntry] {
        let users = directory.withLockedValue { directory -> [UsersOfUID] in
            guard let uid else { return Array(directory.uids.values) }
            return directory.uids[uid].map { [$0] } ?? []
        }
        return users.flatMap(\.entries)
    }

    /// The owner's cache, looked up on disk if need be, after whatever is changing it has ended.
    /// - Throws: ``CacheFailure/notLoggedIn``; `inputOutput` while a purge or log-out could not be made durable.
    public func cache(_ owner: Owner) async throws(CacheFailure) -> UserCache {
        guard let cache = try await lookedUp(owner)?.cache else { throw .notLoggedIn }
        return cache
    }

    /// What is known of an owner with an open cache, looked up on disk if need be.
    private func lookedUp(_ owner: Owner) async throws(CacheFailure) -> UserState? {
        // For what ends a user no room is needed: only for this.
        if entry(owner) == nil {
            let memory = services.budget.lease(for: owner.uid)
            guard memory.hasRoom(for: 1) else { throw .busy(memory.refusal) }
        }
        return try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            let state = entry.state.withLockedValue { $0 }
            return try state.readableCache() == nil ? nil : state
        }
    }

    /// What is known of a logged-in user.
    public struct Status: Sendable {
        public let usage: Usage?
        public let sessions: Int
        /// The one that is asked: named at log-in, else the default one; nil when none is configured.
        public let origin: String?
        public let loggedInAt: Int64
        public let epoch: UInt64
    }

    /// Nil when not logged in.
    public func status(_ owner: Owner) async throws(CacheFailure) -> Status? {
        guard let state = try await lookedUp(owner), let cache = state.cache else { return nil }
        return Status(
            usage: cache.usage, sessions: state.sessions.count, origin: state.login.origin ?? cache.origin?.name,
            loggedInAt: state.login.loggedInAt, epoch: cache.epoch)
    }

    // MARK: The users of a uid

    /// The users of a uid that are logged in, also those who are owed a log-out, in no order. Blocks nobody; costs one
    /// read per user where it is first asked for, none afterwards.
    /// - Parameter pool: where the disk is asked.
    func users(of uid: UInt32, on pool: any BlockingPool) async throws(CacheFailure) -> [OpaqueID] {
        let users = directory.withLockedValue { $0.users(of: uid) }
        defer { leave(users, uid: uid) }
        return Array(
            try await users.loggedIn { () async throws(CacheFailure) in
                try await pool.run(for: uid) { try self.services.store.users(of: uid) }
            })
    }

    /// The uids of which somebody may be logged in: those that the disk has, and those that are known here.
    /// - Parameter pool: where the disk is asked, in the turn of `caller`.
    func uids(on pool: any BlockingPool, for caller: UInt32) async throws(CacheFailure) -> Set<UInt32> {
        Set(try await pool.run(for: caller) { try self.services.store.uids() }).union(knownUIDs)
    }

    /// The uids of which somebody was named since the start, and is logged in or being worked with.
    var knownUIDs: Set<UInt32> { directory.withLockedValue { Set($0.uids.keys) } }

    /// The same as one object, which all who ask share until it changes.
    public func userList(of uid: UInt32) async throws(CacheFailure) -> UserList {
        if let known = knownUserList(of: uid) { return known }
        let users = try await users(of: uid, on: services.lifecycle)
        return UserList(users, services.budget.lease(for: uid))
    }

    /// The same if the disk need not be asked.
    public func knownUserList(of uid: UInt32) -> UserList? {
        users(of: uid)?.list { services.budget.lease(for: uid) }
    }

    /// How many users of a uid are logged in. Blocks where the disk has to be asked.
    func countUsers(of uid: UInt32) throws -> Int {
        try users(of: uid)?.loggedIn?.count ?? services.store.countUsers(of: uid)
    }

    /// What one uid has, or all have, as far as users were named since the start.
    public struct Figures: Sendable {
        public var openCaches = 0
        public var memoryHits = 0
        /// Log-outs and purges that could not be made durable and are tried again.
        public var pendingInvalidations = 0
        /// Of one uid alone: of all, the store knows.
        public var usage = Usage()
    }

    /// Costs two locks for each user.
    /// - Parameter uid: nil for all, with the hits of caches that have ended.
    public func figures(of uid: UInt32?) -> Figures {
        let ended = uid == nil ? services.counters[.memoryHits] : 0
        var figures = entries(of: uid).reduce(into: Figures(memoryHits: ended)) { figures, entry in
            if case .broken = entry.phase { figures.pendingInvalidations += 1 }
            guard let cache = entry.cache else { return }
            figures.openCaches += 1
            figures.memoryHits += cache.memoryHits
            if uid != nil { figures.usage = figures.usage + (cache.usage ?? Usage()) }
        }
        if uid == nil { figures.memoryHits = hitsTold.max(figures.memoryHits, ordering: .relaxed).newValue }
        return figures
    }

    /// The last epoch of a uid's.
    public func epoch(of uid: UInt32) -> UInt64 { epochs.current(of: uid) }

    // MARK: Taking a turn

    /// Runs `body` when everybody who came earlier for this owner is done, with the owner looked up on disk. The phase
    /// is then one of `open`, `loggedOut` and `broken`.
    /// - Parameters:
    ///   - pool: where the disk is asked.
    ///   - evenUnreadable: whether an owner who cannot be looked up is no error but leaves the phase `unknown`.
    /// - Throws: `shuttingDown` once the daemon is stopping; what the look on disk throws; what `body` throws.
    func withTurn<Result: Sendable>(
        _ owner: Owner, on pool: any BlockingPool, evenUnreadable: Bool = false,
        _ body: @Sendable (UserEntry) async throws(CacheFailure) -> Result
    ) async throws(CacheFailure) -> Result {
        let owner = owner.detached()
        let (users, entry) = directory.withLockedValue { directory in
            let users = directory.users(of: owner.uid)
            return (users, users.enter(owner) { services.budget.lease(for: owner.uid) })
        }
        defer {
            users.leave(entry)
            leave(users, uid: owner.uid)
        }
        return try await entry.lock.withLock { () async throws(CacheFailure) in
            if case .unknown = entry.phase, directory.withLockedValue({ $0.isStopped }) { throw .shuttingDown }
            do throws(CacheFailure) {
                try await load(entry, on: pool)
            } catch  where evenUnreadable {
                log.warning(
                    "a log-in cannot be read; it can still be ended",
                    metadata: ["uid": "\(owner.uid)", "reason": "\(error)"])
            }
            if case .stopped = entry.phase { throw .shuttingDown }
            return try await body(entry)
        }
    }

    /// Forgets a uid of which there is nothing to know.
    private func leave(_ users: UsersOfUID, uid: UInt32) {
        guard users.isIdle else { return }
        // Asked again where nobody can come to it.
        directory.withLockedValue { directory in
            if directory.uids[uid] === users, users.isIdle { directory.uids[uid] = nil }
        }
    }

    private func load(_ entry: UserEntry, on pool: any BlockingPool) async throws(CacheFailure) {
        guard case .unknown = entry.phase else { return }
        let owner = entry.owner
        let stored = try await pool.run(for: owner.uid) { try self.services.store.load(owner) }
        let service = stored.flatMap { tokenService(owner, $0.record.tokens) }
        entry.change { $0.loaded(stored?.record, service: service) }
        if let stored {
            open(entry, stored.generationStore, epoch: epochs.current(of: owner.uid))
        } else {
            users(of: owner.uid)?.changed(owner.user, isLoggedIn: false)
        }
    }

    /// Opens a generation to everybody.
    func open(_ entry: UserEntry, _ generationStore: any GenerationStore, epoch: UInt64) {
        let account = entry.state.withLockedValue { $0.account }
        let cache = UserCache(
            owner: entry.owner, epoch: epoch, generationStore: generationStore, account: account, services: services)
        entry.change { $0.opened(cache) }
        // A refresh may have brought tokens of another family in between, when there was no cache to adopt it.
        cache.update(account)
    }

    /// Lets nobody in any more who is not known yet. Returns those who are.
    func stop() -> [UserEntry] {
        directory.withLockedValue { directory in
            directory.isStopped = true
            return directory.uids.values.flatMap(\.entries)
        }
    }

    /// What was found on disk holds from here on through loss of power (I4). Before any answer without a commit.
    func makeDurable(_ uid: UInt32, on pool: any BlockingPool) async throws(CacheFailure) {
        try await pool.run(for: uid) { try self.services.store.makeDurable(uid) }
    }

    func save(_ login: LoginRecord, of owner: Owner, on pool: any BlockingPool) async throws(CacheFailure) {
        try await pool.run(for: owner.uid) { try self.services.store.commitSessions(owner, login) }
    }
}
