import Logging
import NIOConcurrencyHelpers

/// Ends caches: log-out, purge, the stop of the daemon, and the trying again when an end could not be made durable.
///
/// What is to be done ``UserState`` says; here it is done, and nowhere else. The order of an ending is what the promise
/// rests on: the cache is closed to new work, its flights are detached and their waiters answered, what the disk is
/// doing drains, keys and memory are wiped, the key file is committed, and only then is there a receipt. Deleting what
/// is left comes behind it; so does wiping memory after a purge, when nothing leads to it any more.
public final class InvalidationService: Sendable {
    let sessions: UserSessions
    let services: CacheServices
    private let log: Logger

    public init(sessions: UserSessions, log: Logger) {
        self.sessions = sessions
        self.services = sessions.services
        self.log = log
    }

    // MARK: Log-out

    /// Ends one session, or all, of an owner; with the last one ends the cache.
    /// - Throws: `inputOutput` when it could not be made durable: it is tried again, and nobody reads until then.
    public func logOut(_ owner: Owner, session: OpaqueID? = nil) async throws(CacheFailure) -> Receipt {
        services.counters.count(.logouts)
        return try await end(owner, session: session)
    }

    /// The same, counted by whoever asks for it.
    func end(_ owner: Owner, session: OpaqueID?) async throws(CacheFailure) -> Receipt {
        try await sessions.withTurn(owner, on: services.invalidations, evenUnreadable: session == nil) {
            entry throws(CacheFailure) in
            var step = entry.change { $0.logOut(session) }
            if case .end(nil, .purge) = step {
                _ = try await self.act(step, on: entry)
                step = entry.change { $0.logOut(session) }
            }
            return try await self.act(step, on: entry)
        }
    }

    /// Ends the caches of every user of a uid, or that session of each.
    public func logOutAll(uid: UInt32, session: OpaqueID? = nil) async throws(CacheFailure) -> Receipt {
        try await forAll(of: uid) { owner throws(CacheFailure) in try await self.logOut(owner, session: session) }
    }

    /// A connection that held a session is gone.
    public func release(_ owner: Owner, session: OpaqueID, connection: UInt64) async throws(CacheFailure) {
        try await sessions.withTurn(owner, on: services.invalidations) { entry throws(CacheFailure) in
            guard let step = entry.change({ $0.release(session, connection: connection) }) else { return }
            _ = try await self.act(step, on: entry)
        }
    }

    // MARK: Purge

    /// Removes the images of the profiles named, in every size, or all where none is; the user stays logged in.
    /// - Throws: `inputOutput` when it could not be made durable.
    public func purge(_ owner: Owner, profiles: [OpaqueID]) async throws(CacheFailure) -> Receipt {
        services.counters.count(.purges)
        return try await remove(profiles, of: owner)
    }

    /// The same, counted by whoever asks for it.
    func remove(_ profiles: [OpaqueID], of owner: Owner) async throws(CacheFailure) -> Receipt {
        let profiles = profiles.map { $0.detached() }
        return try await sessions.withTurn(owner, on: services.invalidations) { entry throws(CacheFailure) in
            // An end that is owed is tried again; who is not logged in has zeros.
            if !profiles.isEmpty, let cache = entry.cache {
                if let receipt = await self.remove(profiles, from: cache, of: entry) { return receipt }
            }
            return try await self.act(entry.change { $0.end(.purge) }, on: entry)
        }
    }

    /// The same for every user of a uid.
    public func purgeAll(uid: UInt32, profiles: [OpaqueID]) async throws(CacheFailure) -> Receipt {
        try await forAll(of: uid) { owner throws(CacheFailure) in try await self.purge(owner, profiles: profiles) }
    }

    private static var profilesAtOnce: Int { 8 }

    /// Nil where it failed: what cannot be taken out of the generation ends with the whole of it (I4).
    private func remove(_ profiles: [OpaqueID], from cache: UserCache, of entry: UserEntry) async -> Receipt? {
        let uid = entry.owner.uid
        do throws(CacheFailure) {
            var receipt = Receipt(users: 1, sessions: entry.sessions)
            // A few at a time: others' log-outs have their turns in between (F66).
            for start in stride(from: 0, to: profiles.count, by: Self.profilesAtOnce) {
                let some = Array(profiles[start...].prefix(Self.profilesAtOnce))
                let removed = try await services.invalidations.run(for: uid) { try cache.purge(some) }
                receipt.usage = receipt.usage.map { $0 + removed.usage }
                receipt.cancelled += removed.cancelled
                receipt.epoch = sessions.epochs.next(of: uid)
                for profile in some { publish(.purge(profile), of: entry, receipt.epoch) }
            }
            tell("purged", entry.owner, ["profiles": "\(profiles.count)"], receipt.usage)
            return receipt
        } catch {
            log.warning(
                "images of a profile could not be removed; all of the user's are purged instead",
                metadata: ["uid": "\(uid)", "reason": "\(error)"])
            return nil
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
            users = try await sessions.users(of: uid, on: services.invalidations)
        } catch {
            // The disk does not say who is logged in: those that are known to be end all the same.
            failure = error
            users = sessions.entries(of: uid).filter { $0.isLoggedIn }.map(\.owner.user)
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
        try await sessions.makeDurable(uid, on: services.invalidations)
        total.epoch = max(total.epoch, sessions.epochs.next(of: uid))
        return total
    }

    // MARK: Doing what was decided

    /// With the entry's turn.
    private func act(_ step: UserState.InvalidationStep, on entry: UserEntry) async throws(CacheFailure) -> Receipt {
        let owner = entry.owner
        switch step {
        case .nothing:
            try await sessions.makeDurable(owner.uid, on: services.invalidations)
            return Receipt(epoch: sessions.epochs.next(of: owner.uid))
        case .endSession(let session, let login, let remaining):
            if login != entry.state.withLockedValue({ $0.login }) {
                try await sessions.save(login, of: owner, on: services.invalidations)
            }
            tell("logged out", owner, ["sessions": "\(remaining)"])
            entry.change { $0.sessionEnded(session, login) }
            return Receipt(sessions: remaining, epoch: sessions.epochs.next(of: owner.uid))
        case .end(let cache, let invalidation):
            let usage = cache?.usage
            // A purge takes as long for 100,000 images as for one; after a log-out none is in memory either.
            let closed = await services.invalidations.value(for: owner.uid) {
                cache?.close(wipesBehind: invalidation == .purge)
            }
            defer { if let wipe = closed?.wipe { services.disk.submit(for: owner.uid, wipe) } }
            let epoch = try await commit(invalidation, of: entry)
            tell(invalidation, owner, usage)
            let (cancelled, sessions) = (closed?.cancelled ?? 0, entry.sessions)
            return Receipt(users: 1, usage: usage, cancelled: cancelled, sessions: sessions, epoch: epoch)
        }
    }

    /// The commit point. When it fails the user stays closed, and it is tried again behind.
    private func commit(_ invalidation: UserState.Invalidation, of entry: UserEntry) async throws(CacheFailure)
        -> UInt64
    {
        let owner = entry.owner
        let store = services.store
        // Whatever comes of a log-out, nothing is downloaded in the user's name any more (I11).
        if invalidation == .logout { entry.change { $0.endTokens() }?.end() }
        do throws(CacheFailure) {
            let next = try await services.invalidations.run(for: owner.uid) { () -> (any GenerationStore)? in
                if invalidation == .purge { return try store.commitPurge(owner) }
                try store.commitLogout(owner)
                return nil
            }
            let (closed, retry) = entry.change { $0.ended(invalidation) }
            retry?.cancel()
            // What the generation left behind goes to the trash, behind whoever waits for the receipt.
            if let closed { services.disk.submit(for: owner.uid) { closed.generationStore.discard() } }
            let epoch = sessions.epochs.next(of: owner.uid)
            publish(invalidation == .purge ? .purge(nil) : .logout, of: entry, epoch)
            if let next {
                sessions.open(entry, next, epoch: epoch)
            } else {
                sessions.users(of: owner.uid)?.changed(owner.user, isLoggedIn: false)
            }
            return epoch
        } catch {
            let reason = "\(error)"
            let isFirst = entry.change { $0.failed(invalidation, reason: reason) }
            services.counters.count(.failedInvalidations)
            log.error(
                "a purge or log-out could not be made durable; the user is closed until it is",
                metadata: ["uid": "\(owner.uid)", "ending": "\(invalidation)", "reason": "\(reason)"])
            if isFirst { retry(entry, attempt: 1) }
            throw .inputOutput(reason)
        }
    }

    /// Behind the fact, with the entry's turn, before the receipt.
    private func publish(_ kind: UserEvent.Kind, of entry: UserEntry, _ epoch: UInt64) {
        services.events.publish(UserEvent(owner: entry.owner, kind: kind, epoch: epoch))
    }

    private func tell(_ invalidation: UserState.Invalidation, _ owner: Owner, _ usage: Usage?) {
        switch invalidation {
        case .logout: tell("logged out", owner, ["sessions": "0"], usage)
        case .purge: tell("purged", owner, [:], usage)
        }
    }

    /// - Parameter usage: what was held; nil where it was not counted yet.
    private func tell(
        _ what: Logger.Message, _ owner: Owner, _ details: Logger.Metadata, _ usage: Usage? = nil
    ) {
        let held = usage.map { ["images": "\($0.images)", "bytes": "\($0.bytes)"] as Logger.Metadata } ?? [:]
        sessions.uidLog.write(what, uid: owner.uid, details.merging(held) { $1 }, at: services.time.now)
    }

    // MARK: Trying again

    /// Milliseconds before an ending that failed is tried again.
    private static let backoff = Backoff(base: 500, most: 30_000)

    private func retry(_ entry: UserEntry, attempt: Int) {
        let owner = entry.owner
        let timer = services.time.after(milliseconds: Self.backoff.ceiling(attempt: attempt)) {
            Task(executorPreference: self.services.tasks) { await self.tryAgain(owner, attempt: attempt) }
        }
        entry.change { $0.retry = timer }
    }

    private func tryAgain(_ owner: Owner, attempt: Int) async {
        do {
            try await sessions.withTurn(owner, on: services.invalidations) { entry throws(CacheFailure) in
                guard case .broken(let owed, _) = entry.phase else { return }
                do {
                    _ = try await self.commit(owed, of: entry)
                    self.tell(owed, entry.owner, nil)
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

    // MARK: The stop

    /// Closes every cache, so that nothing waits and nothing is written any more, and lets nobody in. Users stay logged
    /// in on disk; an end that is still owed is not tried again.
    public func shutDown() async {
        let entries = sessions.stop()
        await withTaskGroup { group in
            for service in entries.compactMap({ $0.state.withLockedValue { $0.service } }) {
                group.addTask { await service.stop() }
            }
        }
        // Lest each download that ends begin another, and there always be something to be written.
        for entry in entries { entry.cache?.stopWarming() }
        for entry in entries {
            await entry.lock.withLock {
                if let cache = entry.cache {
                    // What was downloaded is on its way to be written when whoever waited for it has it.
                    await services.invalidations.value(for: entry.owner.uid) { cache.drainDeliveries() }
                    await services.writes.finish()
                }
                let (cache, retry) = entry.change { $0.stop() }
                retry?.cancel()
                if let cache {
                    _ = await services.invalidations.value(for: entry.owner.uid) { cache.close(.shuttingDown) }
                }
            }
        }
    }
}
