import Logging
import NIOConcurrencyHelpers

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

    /// The owner's cache if it is open and known: what a hit needs. Costs one lock and one look-up.
    public func openCache(_ owner: Owner) -> UserCache? {
        guard let entry = entry(owner), case .open(let cache) = entry.phase else { return nil }
        return cache
    }

    /// What is known of an owner without a look on disk.
    func entry(_ owner: Owner) -> UserEntry? {
        users(of: owner.uid)?.entry(owner.user)
    }

    private func users(of uid: UInt32) -> UsersOfUID? {
        directory.withLockedValue { $0.uids[uid] }
    }

    /// How many owners are kept in memory.
    var knownOwners: Int { allUsers.reduce(0) { $0 + $1.count } }

    private var allUsers: [UsersOfUID] { directory.withLockedValue { Array($0.uids.values) } }

    /// The owner's cache, looked up on disk if need be, after whatever is changing it has ended.
    /// - Throws: ``CacheFailure/notLoggedIn``; `inputOutput` while a purge or log-out could not be made durable.
    public func cache(_ owner: Owner) async throws(CacheFailure) -> UserCache {
        try checkRoom(for: owner)
        let cache: UserCache? = try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            switch entry.phase {
            case .open(let cache): return cache
            case .broken(_, let reason): throw .inputOutput(Self.closed(reason))
            case .loggedOut, .ending, .unknown, .stopped: return nil
            }
        }
        guard let cache else { throw .notLoggedIn }
        return cache
    }

    /// The users of a uid that are logged in, also those who are owed a log-out, in no order. Blocks nobody; costs one read per user where it is
    /// first asked for, none afterwards.
    /// - Parameter pool: where the disk is asked.
    func users(of uid: UInt32, on pool: any BlockingPool) async throws(CacheFailure) -> [OpaqueID] {
        let users = directory.withLockedValue { $0.users(of: uid) }
        defer { leave(users, uid: uid) }
        return Array(
            try await users.loggedIn { () async throws(CacheFailure) in
                try await pool.run(for: uid) { try self.services.store.users(of: uid) }
            })
    }

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

    /// The users of a uid that are open, or owed an end, as far as they were named since the start.
    func knownUsers(of uid: UInt32) -> [OpaqueID] {
        (users(of: uid)?.entries ?? []).compactMap { entry in
            switch entry.phase {
            case .open, .broken: return entry.owner.user
            case .loggedOut, .unknown, .ending, .stopped: return nil
            }
        }
    }

    /// A log-in, or a log-out, is durable.
    func changed(_ owner: Owner, isLoggedIn: Bool) {
        users(of: owner.uid)?.changed(owner.user, isLoggedIn: isLoggedIn)
    }

    /// A log-in failed half-way.
    func forgetListing(of uid: UInt32) {
        users(of: uid)?.forgetListing()
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
        try checkRoom(for: owner)
        return try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            switch entry.phase {
            case .open(let cache):
                let login = entry.state.withLockedValue { $0.login }
                return Status(
                    usage: cache.usage, sessions: entry.sessions.count, origin: login.origin ?? cache.origin?.name,
                    loggedInAt: login.loggedInAt, epoch: cache.epoch)
            case .broken(_, let reason): throw .inputOutput(Self.closed(reason))
            case .loggedOut, .ending, .unknown, .stopped: return nil
            }
        }
    }

    /// What one uid has, as far as its users were named since the start.
    public struct Figures: Sendable {
        public var openCaches = 0
        public var memoryHits = 0
        public var usage = Usage()
    }

    /// Costs two locks for each user.
    public func figures(of uid: UInt32) -> Figures {
        (users(of: uid)?.entries ?? []).reduce(into: Figures()) { figures, entry in
            guard case .open(let cache) = entry.phase else { return }
            figures.openCaches += 1
            figures.memoryHits += cache.memoryHits
            figures.usage = figures.usage + (cache.usage ?? Usage())
        }
    }

    /// The last epoch of a uid's.
    public func epoch(of uid: UInt32) -> UInt64 { epochs.current(of: uid) }

    /// Hits in memory since the start, and the caches that are open.
    public func statistics() -> (memoryHits: Int, openCaches: Int) {
        let open = allUsers.flatMap(\.entries).compactMap { entry -> UserCache? in
            if case .open(let cache) = entry.phase { return cache }
            return nil
        }
        return (open.reduce(services.counters[.memoryHits]) { $0 + $1.memoryHits }, open.count)
    }

    // MARK: Taking a turn

    /// Runs `body` when everybody who came earlier for this owner is done, with the owner looked up on disk. The phase is
    /// then one of `open`, `loggedOut` and `broken`.
    /// - Parameters:
    ///   - pool: where the disk is asked.
    ///   - evenUnreadable: whether an owner who cannot be looked up is no error but leaves the phase `unknown`.
    /// - Throws: `shuttingDown` once the daemon is stopping; what the look on disk throws; what `body` throws.
    func withTurn<Result: Sendable>(
        _ owner: Owner, on pool: any BlockingPool, evenUnreadable: Bool = false,
        _ body: @Sendable (UserEntry) async throws(CacheFailure) -> Result
    ) async throws(CacheFailure) -> Result {
        let entry = enter(owner.detached())
        defer { leave(entry) }
        return try await entry.lock.withLock { () async throws(CacheFailure) in
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

    private func enter(_ owner: Owner) -> UserEntry {
        directory.withLockedValue { directory in
            let isStopped = directory.isStopped
            let lease = { self.services.budget.lease(for: owner.uid) }
            return directory.users(of: owner.uid).enter(owner, lease) { entry in
                entry.state.withLockedValue { state in
                    state.users += 1
                    if isStopped, case .unknown = state.phase { state.phase = .stopped }
                }
            }
        }
    }

    /// Forgets an entry that says nothing once nobody works with it, so that asking for strangers fills no memory.
    private func leave(_ entry: UserEntry) {
        let uid = entry.owner.uid
        guard let users = users(of: uid) else { return }
        users.leave(entry) { entry in
            entry.state.withLockedValue { state in
                state.users -= 1
                switch state.phase {
                case .unknown, .loggedOut, .stopped: return state.users == 0
                case .open, .ending, .broken: return false
                }
            }
        }
        leave(users, uid: uid)
    }

    /// The same of a uid with all its users.
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
        guard let stored else {
            entry.phase = .loggedOut
            changed(owner, isLoggedIn: false)
            return
        }
        entry.state.withLockedValue { state in
            state.login = stored.record
            state.tokens = tokenService(entry.owner, stored.record.tokens)
        }
        entry.settleMemory()
        open(entry, stored.vault, epoch: epochs.current(of: entry.owner.uid))
    }

    /// Opens a generation to everybody.
    func open(_ entry: UserEntry, _ vault: any ImageVault, epoch: UInt64) {
        let account = entry.account
        let cache = UserCache(owner: entry.owner, epoch: epoch, vault: vault, account: account, services: services)
        entry.phase = .open(cache)
        // A refresh may have brought tokens of another family in between, when there was no cache to adopt it.
        cache.update(account)
    }

    static func closed(_ reason: String) -> String {
        "the end of this user's cache could not be made durable and is being tried again: \(reason)"
    }

    // MARK: Shutting down

    /// Closes every cache, so that nothing waits and nothing is written any more, and lets nobody in. Users stay logged in
    /// on disk; an end that is still owed is not tried again.
    public func shutDown() async {
        let entries = directory.withLockedValue { directory in
            directory.isStopped = true
            return directory.uids.values.flatMap(\.entries)
        }
        await settleTokens(of: entries)
        for entry in entries {
            await entry.lock.withLock {
                if case .open(let cache) = entry.phase { await cache.storesEnded() }
                let (phase, retry) = entry.state.withLockedValue { state in
                    defer { (state.phase, state.retry) = (.stopped, nil) }
                    return (state.phase, state.retry)
                }
                retry?.cancel()
                if case .open(let cache) = phase { _ = await services.endings.close(cache, .shuttingDown) }
            }
        }
    }
}

extension UserEntry {
    var account: UserCache.Account {
        state.withLockedValue { UserCache.Account(origin: $0.login.origin, tokens: $0.tokens) }
    }
}
