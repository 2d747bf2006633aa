import Logging
import NIOConcurrencyHelpers
import Synchronization

/// The logged-in users. Finds the one cache of an owner.
///
/// A user is looked up on disk when a request first names it, so the startup time does not depend on what is stored.
public final class UserSessions: Sendable {
    let services: CacheServices
    let epochs: Epochs
    let log: Logger
    /// For log lines that clients can cause at any rate.
    public let accountLog: AccountLog
    private let directory = NIOLockedValueBox(Directory())
    /// The highest total of hits reported. A cache that ends during the count is missing from it, and a monitoring
    /// system takes a decreasing counter for a restart.
    private let reportedHits = Atomic<Int>(0)

    private struct Directory {
        var uids: [UInt32: UsersOfUID] = [:]
        /// Whether the daemon is stopping: no further user is looked up.
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
        self.accountLog = AccountLog(log) { services.budget.account(of: $0) }
    }

    // MARK: Lookup

    /// The owner's open cache, if it is in memory: for hits. Takes three locks and two dictionary lookups.
    public func openCache(_ owner: Owner) -> UserCache? { entry(owner)?.cache }

    func entry(_ owner: Owner) -> UserEntry? { users(of: owner.uid)?.entry(owner.user) }

    func users(of uid: UInt32) -> UsersOfUID? { directory.withLockedValue { $0.uids[uid] } }

    /// The entries in memory, of one uid or of all.
    func entries(of uid: UInt32? = nil) -> [UserEntry] {
        let users = directory.withLockedValue { directory -> [UsersOfUID] in
            guard let uid else { return Array(directory.uids.values) }
            return directory.uids[uid].map { [$0] } ?? []
        }
        return users.flatMap(\.entries)
    }

    /// The owner's cache, looked up on disk if necessary. Waits for changes in progress.
    /// - Throws: ``CacheFailure/notLoggedIn``; `inputOutput` while a purge or logout could not be made durable.
    public func cache(_ owner: Owner) async throws(CacheFailure) -> UserCache {
        guard let cache = try await lookUp(owner)?.cache else { throw .notLoggedIn }
        return cache
    }

    /// The state of an owner with an open cache, looked up on disk if necessary; nil if not logged in.
    private func lookUp(_ owner: Owner) async throws(CacheFailure) -> UserState? {
        // Only lookups need room in the budget; a logout must work without.
        if entry(owner) == nil {
            let memory = services.budget.lease(for: owner.uid)
            guard memory.hasRoom(for: 1) else { throw .busy(memory.refusal) }
        }
        return try await withTurn(owner, on: services.loginPool) { entry throws(CacheFailure) in
            let state = entry.state.withLockedValue { $0 }
            return try state.readableCache() == nil ? nil : state
        }
    }

    public struct Status: Sendable {
        public let usage: Usage?
        public let sessions: Int
        /// The origin named at login, otherwise the default one; nil if none is configured.
        public let origin: String?
        public let loggedInAt: Int64
        public let epoch: UInt64
    }

    /// Nil when not logged in.
    public func status(_ owner: Owner) async throws(CacheFailure) -> Status? {
        guard let state = try await lookUp(owner), let cache = state.cache else { return nil }
        return Status(
            usage: cache.usage, sessions: state.sessions.count, origin: state.login.origin ?? cache.origin?.name,
            loggedInAt: state.login.loggedInAt, epoch: cache.epoch)
    }

    // MARK: The users of a uid

    /// The logged-in users of a uid, including those whose logout is not durable yet, in no order.
    ///
    /// The first call reads one file per user, later calls none.
    func loggedInUsers(of uid: UInt32, on pool: any BlockingPool) async throws(CacheFailure) -> [OpaqueID] {
        let users = directory.withLockedValue { $0.users(of: uid) }
        defer { leave(users, uid: uid) }
        return Array(
            try await users.loggedIn { () async throws(CacheFailure) in
                try await pool.run(for: uid) { try self.services.store.users(of: uid) }
            })
    }

    /// The uids that may have logged-in users: those on disk and those in memory.
    /// - Parameter pool: where the disk is read, charged to `caller`.
    func uids(on pool: any BlockingPool, for caller: UInt32) async throws(CacheFailure) -> Set<UInt32> {
        Set(try await pool.run(for: caller) { try self.services.store.uids() }).union(knownUIDs)
    }

    /// The uids that have entries in memory.
    var knownUIDs: Set<UInt32> { directory.withLockedValue { Set($0.uids.keys) } }

    /// ``loggedInUsers(of:on:)`` as an object that all callers share until it changes.
    public func userList(of uid: UInt32) async throws(CacheFailure) -> UserList {
        if let known = knownUserList(of: uid) { return known }
        let users = try await loggedInUsers(of: uid, on: services.loginPool)
        return UserList(users, services.budget.lease(for: uid))
    }

    public func knownUserList(of uid: UInt32) -> UserList? {
        users(of: uid)?.list { services.budget.lease(for: uid) }
    }

    /// Statistics of one uid or of all, for the users in memory.
    public struct Figures: Sendable {
        public var openCaches = 0
        public var memoryHits = 0
        /// Purges and logouts that could not be made durable and are retried.
        public var pendingInvalidations = 0
        /// For a single uid only; the store reports the total.
        public var usage = Usage()

        public init(openCaches: Int = 0, memoryHits: Int = 0, pendingInvalidations: Int = 0, usage: Usage = Usage()) {
            (self.openCaches, self.memoryHits) = (openCaches, memoryHits)
            (self.pendingInvalidations, self.usage) = (pendingInvalidations, usage)
        }

        public var metrics: [Metric] {
            [
                Metric(
                    "open_caches", .gauge, unit: "users", "Logged-in users that a request named since the start.",
                    openCaches, .everyone),
                Metric(
                    "invalidations_pending", .gauge, unit: "users",
                    "Logouts and purges that could not be made durable and are retried.", pendingInvalidations),
            ]
        }
    }

    /// - Parameter uid: nil for all uids, including the hits of caches that have ended.
    public func figures(of uid: UInt32?) -> Figures {
        let ended = uid == nil ? services.counters[.memoryHits] : 0
        var figures = entries(of: uid).reduce(into: Figures(memoryHits: ended)) { figures, entry in
            if case .broken = entry.phase { figures.pendingInvalidations += 1 }
            guard let cache = entry.cache else { return }
            figures.openCaches += 1
            figures.memoryHits += cache.memoryHits
            if uid != nil { figures.usage = figures.usage + (cache.usage ?? Usage()) }
        }
        if uid == nil { figures.memoryHits = reportedHits.max(figures.memoryHits, ordering: .relaxed).newValue }
        return figures
    }

    public func epoch(of uid: UInt32) -> UInt64 { epochs.current(of: uid) }

    // MARK: Changes, one at a time

    /// Runs `body` with the owner's lock held and the owner looked up on disk.
    ///
    /// The phase is then `open`, `loggedOut` or `broken`.
    /// - Parameters:
    ///   - pool: where the disk is read.
    ///   - evenUnreadable: whether `body` also runs if the lookup fails; the phase is then `unknown`.
    /// - Throws: `shuttingDown` when the daemon is stopping; errors of the lookup and of `body`.
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
                    "login unreadable; destroying it",
                    metadata: ["uid": "\(owner.uid)", "reason": "\(error)"])
            }
            if case .stopped = entry.phase { throw .shuttingDown }
            return try await body(entry)
        }
    }

    private func leave(_ users: UsersOfUID, uid: UInt32) {
        guard users.isIdle else { return }
        // Checked again with the lock held, which every task needs to find it.
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
            users(of: owner.uid)?.loggedOut(owner.user)
        }
    }

    func open(_ entry: UserEntry, _ generationStore: any GenerationStore, epoch: UInt64) {
        let credentials = entry.state.withLockedValue { $0.credentials }
        let cache = UserCache(
            owner: entry.owner, epoch: epoch, generationStore: generationStore, credentials: credentials,
            services: services)
        entry.change { $0.opened(cache) }
        // A refresh may have changed the tokens while there was no cache that could adopt them.
        cache.update(credentials)
    }

    /// Rejects users that are not in memory yet. Returns the entries of those that are.
    func stop() -> [UserEntry] {
        directory.withLockedValue { directory in
            directory.isStopped = true
            return directory.uids.values.flatMap(\.entries)
        }
    }

    /// Call before a reply that confirms what was found on disk without a commit (I4).
    func makeDurable(_ uid: UInt32, on pool: any BlockingPool) async throws(CacheFailure) {
        try await pool.run(for: uid) { try self.services.store.makeDurable(uid) }
    }

    /// Makes a login durable. Requires the entry's lock.
    func save(_ login: LoginRecord, of entry: UserEntry, on pool: any BlockingPool) async throws(CacheFailure) {
        let owner = entry.owner
        entry.state.withLockedValue { $0.saveBegan() }
        try await pool.run(for: owner.uid) { try self.services.store.commitSessions(owner, login) }
        entry.state.withLockedValue { $0.saved() }
    }
}
