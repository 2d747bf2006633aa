import Logging
import NIOConcurrencyHelpers

/// Ends caches: log-out, purge, and the trying again when an end could not be made durable.
///
/// The order of an ending is what the promise rests on: the cache is closed to new work, its flights are detached and their
/// waiters answered, what the disk is doing drains, keys and memory are wiped, the key file is committed, and only then is
/// there a receipt. Deleting what is left comes behind it; so does wiping memory after a purge, when nothing leads to it any more.
public final class EndingService: Sendable {
    private let sessions: UserSessions
    private let services: CacheServices
    private let log: Logger

    public init(sessions: UserSessions, log: Logger) {
        self.sessions = sessions
        self.services = sessions.services
        self.log = log
    }

    // MARK: Log-out

    /// Ends one session, or all, of an owner; with the last one ends the cache.
    /// - Throws: `inputOutput` when it could not be made durable: the user is then closed to reads, and it is tried again.
    public func logOut(_ owner: Owner, session: OpaqueID? = nil) async throws(CacheFailure) -> Receipt {
        services.counters.count(.logouts)
        return try await sessions.withTurn(owner, on: services.endings, evenUnreadable: session == nil) {
            entry throws(CacheFailure) in
            // What is left of the sessions is known again only when the purge that failed is done.
            if session != nil, case .broken(.purge, _) = entry.phase { _ = try await self.end(entry, for: .purge) }
            let remaining = try await self.close(session, of: entry)
            if remaining > 0 {
                return self.receipt(of: entry, sessions: remaining)
            }
            return try await self.end(entry, for: .logout)
        }
    }

    /// Ends the caches of every user of a uid, or that session of each.
    public func logOutAll(uid: UInt32, session: OpaqueID? = nil) async throws(CacheFailure) -> Receipt {
        try await forAll(of: uid) { owner throws(CacheFailure) in try await self.logOut(owner, session: session) }
    }

    /// A connection that held a session is gone.
    public func release(_ owner: Owner, session: OpaqueID, connection: UInt64) async throws(CacheFailure) {
        try await sessions.withTurn(owner, on: services.endings) { entry throws(CacheFailure) in
            let isLast = entry.state.withLockedValue { state in
                guard state.held[session]?.remove(connection) != nil else { return false }
                if state.held[session]?.isEmpty == true { state.held[session] = nil }
                return state.held.isEmpty && state.login.sessions.isEmpty
            }
            entry.settleMemory()
            // While a purge is owed nothing else remembers that this session is over: the user is owed a log-out then.
            if isLast { _ = try await self.end(entry, for: .logout) }
        }
    }

    /// Takes a session (nil: all) away, durably where it was kept. Returns how many remain.
    private func close(_ session: OpaqueID?, of entry: UserEntry) async throws(CacheFailure) -> Int {
        guard case .open = entry.phase, let session else { return 0 }
        let (before, after, remaining) = entry.state.withLockedValue { state in
            var after = state.login
            after.sessions.remove(session)
            return (state.login, after, after.sessions.union(state.held.keys.filter { $0 != session }).count)
        }
        guard remaining > 0 else { return 0 }
        if after != before { try await sessions.save(after, of: entry.owner, on: services.endings) }
        sessions.uidLog.write(
            "logged out", uid: entry.owner.uid, ["sessions": "\(remaining)"], at: services.time.now)
        entry.state.withLockedValue { state in
            state.login = after
            state.held[session] = nil
        }
        entry.settleMemory()
        return remaining
    }

    // MARK: Purge

    /// Removes the images of the profiles named, in every size, or with none named all of them; the user stays logged in.
    /// - Throws: `inputOutput` when it could not be made durable.
    public func purge(_ owner: Owner, profiles: [OpaqueID]) async throws(CacheFailure) -> Receipt {
        profiles.isEmpty ? try await empty(owner) : try await remove(profiles, of: owner)
    }

    /// The same for every user of a uid.
    public func purgeAll(uid: UInt32, profiles: [OpaqueID]) async throws(CacheFailure) -> Receipt {
        try await forAll(of: uid) { owner throws(CacheFailure) in try await self.purge(owner, profiles: profiles) }
    }

    private func empty(_ owner: Owner) async throws(CacheFailure) -> Receipt {
        services.counters.count(.purges)
        return try await sessions.withTurn(owner, on: services.endings) { entry throws(CacheFailure) in
            try await self.end(entry, for: .purge)
        }
    }

    private func remove(_ profiles: [OpaqueID], of owner: Owner) async throws(CacheFailure) -> Receipt {
        services.counters.count(.purges)
        let profiles = profiles.map { $0.detached() }
        return try await sessions.withTurn(owner, on: services.endings) { entry throws(CacheFailure) in
            // An end that is owed is tried again; who is not logged in has zeros.
            guard case .open(let cache) = entry.phase else { return try await self.end(entry, for: .purge) }
            do {
                let removed = try await self.services.endings.run(for: owner.uid) { try cache.purge(profiles) }
                return Receipt(
                    users: 1, usage: removed.usage, cancelled: removed.cancelled, sessions: entry.sessions.count,
                    epoch: self.sessions.epochs.next(of: entry.owner.uid))
            } catch {
                // What cannot be taken out of the generation ends with the whole of it (I4).
                self.log.warning(
                    "images of a profile could not be removed; all of the user's are purged instead",
                    metadata: ["uid": "\(owner.uid)", "reason": "\(CacheFailure(error))"])
                return try await self.end(entry, for: .purge)
            }
        }
    }

    /// One user's trouble does not keep the others' caches alive: all are tried, then the first failure is told.
    private func forAll(
        of uid: UInt32, _ end: @Sendable (Owner) async throws(CacheFailure) -> Receipt
    ) async throws(CacheFailure) -> Receipt {
        var total = Receipt()
        var failure: CacheFailure?
        let users: [OpaqueID]
        do throws(CacheFailure) {
            users = try await sessions.users(of: uid, on: services.endings)
        } catch {
            // The disk does not say who is logged in: those that are known to be end all the same.
            failure = error
            users = sessions.knownUsers(of: uid)
        }
        for user in users {
            do throws(CacheFailure) {
                total.add(try await end(Owner(uid: uid, user: user)))
            } catch {
                failure = failure ?? error
            }
        }
        if let failure { throw failure }
        // Of who was not listed it says that they are logged out.
        try await sessions.settle(uid, on: services.endings)
        total.epoch = max(total.epoch, sessions.epochs.next(of: uid))
        return total
    }

    // MARK: Ending a generation

    /// Ends what is open, or tries again what could not be ended. With the entry's turn.
    private func end(_ entry: UserEntry, for ending: UserEntry.Ending) async throws(CacheFailure) -> Receipt {
        switch entry.phase {
        case .open(let cache):
            entry.phase = .ending
            let usage = cache.usage
            // A purge takes as long for a hundred thousand images as for one; after a log-out nothing is in memory either.
            let closing = await services.endings.close(cache, wipesBehind: ending == .purge)
            defer { if let wipe = closing.wipe { services.disk.submit(for: entry.owner.uid, wipe) } }
            entry.state.withLockedValue { $0.closed = cache }
            let epoch = try await commit(ending, of: entry)
            return Receipt(
                users: 1, usage: usage, cancelled: closing.cancelled,
                sessions: ending == .purge ? entry.sessions.count : 0, epoch: epoch)
        case .broken(let earlier, _):
            // A log-out that is owed stays owed, whatever is asked for after it.
            let owed = earlier == .logout ? .logout : ending
            let epoch = try await commit(owed, of: entry)
            return Receipt(
                users: 1, usage: nil, cancelled: 0, sessions: owed == .purge ? entry.sessions.count : 0, epoch: epoch)
        case .unknown where ending == .logout:
            // It cannot be read, so nothing of it is open: what is left is to destroy it.
            return Receipt(
                users: 1, usage: nil, cancelled: 0, sessions: 0, epoch: try await commit(.logout, of: entry))
        case .loggedOut, .ending, .unknown, .stopped:
            try await sessions.settle(entry.owner.uid, on: services.endings)
            return receipt(of: entry)
        }
    }

    /// The commit point. When it fails the user stays closed, and it is tried again behind.
    private func commit(_ ending: UserEntry.Ending, of entry: UserEntry) async throws(CacheFailure) -> UInt64 {
        let owner = entry.owner
        let store = services.store
        // Whatever comes of a log-out, nothing is downloaded in the user's name any more (I11).
        if ending == .logout { entry.endTokens(services) }
        do {
            switch ending {
            case .purge:
                let vault = try await services.endings.run(for: owner.uid) { try store.commitPurge(owner) }
                leaveBehind(entry)
                let epoch = sessions.epochs.next(of: owner.uid)
                sessions.open(entry, vault, epoch: epoch)
                return epoch
            case .logout:
                try await services.endings.run(for: owner.uid) { try store.commitLogout(owner) }
                leaveBehind(entry)
                entry.state.withLockedValue { state in
                    state.phase = .loggedOut
                    state.login = LoginRecord(loggedInAt: 0)
                    state.held = [:]
                }
                sessions.changed(owner, isLoggedIn: false)
                sessions.uidLog.write("logged out", uid: owner.uid, ["sessions": "0"], at: services.time.now)
                return sessions.epochs.next(of: owner.uid)
            }
        } catch {
            let reason = "\(CacheFailure(error))"
            let wasBroken = if case .broken = entry.phase { true } else { false }
            entry.phase = .broken(ending, reason: reason)
            services.counters.count(.endingsThatFailed)
            log.error(
                "a purge or log-out could not be made durable; the user is closed until it is",
                metadata: ["uid": "\(owner.uid)", "ending": "\(ending)", "reason": "\(reason)"])
            if !wasBroken { retry(entry, attempt: 1) }
            throw .inputOutput(reason)
        }
    }

    /// The end is durable: what the generation left behind goes to the trash, behind whoever waits for the receipt.
    private func leaveBehind(_ entry: UserEntry) {
        let (closed, retry) = entry.state.withLockedValue { state in
            defer { (state.closed, state.retry) = (nil, nil) }
            return (state.closed, state.retry)
        }
        retry?.cancel()
        if let closed { services.disk.submit(for: entry.owner.uid) { closed.vault.discard() } }
    }

    /// Milliseconds before an ending that failed is tried again.
    private static let backoff = Backoff(base: 500, most: 30_000)

    private func retry(_ entry: UserEntry, attempt: Int) {
        let owner = entry.owner
        let timer = services.time.after(milliseconds: Self.backoff.ceiling(attempt: attempt)) {
            Task(executorPreference: self.services.tasks) { await self.tryAgain(owner, attempt: attempt) }
        }
        entry.state.withLockedValue { $0.retry = timer }
    }

    private func tryAgain(_ owner: Owner, attempt: Int) async {
        do {
            try await sessions.withTurn(owner, on: services.endings) { entry throws(CacheFailure) in
                guard case .broken(let owed, _) = entry.phase else { return }
                do {
                    _ = try await self.commit(owed, of: entry)
                    self.log.notice(
                        "a purge or log-out that had failed is durable now",
                        metadata: ["uid": "\(owner.uid)", "ending": "\(owed)"])
                } catch {
                    // Still broken: `commit` has logged why.
                    self.retry(entry, attempt: attempt + 1)
                }
            }
        } catch {
            // The daemon is stopping.
        }
    }

    private func receipt(of entry: UserEntry, sessions count: Int = 0) -> Receipt {
        Receipt(
            users: 0, usage: Usage(), cancelled: 0, sessions: count,
            epoch: sessions.epochs.next(of: entry.owner.uid))
    }
}
