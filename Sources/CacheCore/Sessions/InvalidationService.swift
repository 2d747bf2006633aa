import Logging
import NIOConcurrencyHelpers

/// Performs purges and logouts, retries those that could not be made durable, and closes all caches at a stop.
///
/// ``UserState`` decides; this service performs the effects. I3 and I4 depend on their order: the cache is closed to
/// new work, its flights are detached and their waiters answered, disk operations drain, keys and memory are wiped, the
/// key file is committed, and only then the receipt is returned (design.md, "Login, purge, logout"). After the receipt,
/// files are deleted and, for a purge, memory of the closed generation is wiped.
public final class InvalidationService: Sendable {
    let sessions: UserSessions
    let services: CacheServices
    private let log: Logger

    public init(sessions: UserSessions, log: Logger) {
        self.sessions = sessions
        self.services = sessions.services
        self.log = log
    }

    // MARK: Logout

    /// Ends one session of an owner, or all. The end of the last session ends the cache.
    /// - Throws: `inputOutput` if it could not be made durable; the daemon retries, and the user is closed until then.
    public func logOut(_ owner: Owner, session: OpaqueID? = nil) async throws(CacheFailure) -> Receipt {
        services.counters.count(.logouts)
        return try await end(owner, session: session)
    }

    /// ``logOut(_:session:)`` without counting it.
    func end(_ owner: Owner, session: OpaqueID?) async throws(CacheFailure) -> Receipt {
        try await sessions.withTurn(owner, on: services.invalidationPool, evenUnreadable: session == nil) {
            entry throws(CacheFailure) in
            var step = entry.change { $0.logOut(session) }
            // An earlier purge has failed. It is completed first.
            if case .end(nil, .purge) = step {
                _ = try await self.perform(step, on: entry)
                step = entry.change { $0.logOut(session) }
            }
            return try await self.perform(step, on: entry)
        }
    }

    /// Ends all sessions of every user of a uid, or that session of each.
    public func logOutAll(uid: UInt32, session: OpaqueID? = nil) async throws(CacheFailure) -> Receipt {
        try await forAll(of: uid) { owner throws(CacheFailure) in try await self.logOut(owner, session: session) }
    }

    /// Ends a session whose connection has closed, unless another connection holds it.
    public func release(_ owner: Owner, session: OpaqueID, connection: UInt64) async throws(CacheFailure) {
        try await sessions.withTurn(owner, on: services.invalidationPool) { entry throws(CacheFailure) in
            guard let step = entry.change({ $0.release(session, connection: connection) }) else { return }
            _ = try await self.perform(step, on: entry)
        }
    }

    // MARK: Purge

    /// Removes the images of the profiles in every size, or all images if none is named. The user stays logged in.
    /// - Throws: `inputOutput` if it could not be made durable.
    public func purge(_ owner: Owner, profiles: [OpaqueID]) async throws(CacheFailure) -> Receipt {
        services.counters.count(.purges)
        return try await remove(profiles, of: owner)
    }

    /// ``purge(_:profiles:)`` without counting it.
    func remove(_ profiles: [OpaqueID], of owner: Owner) async throws(CacheFailure) -> Receipt {
        let profiles = profiles.map { $0.detached() }
        return try await sessions.withTurn(owner, on: services.invalidationPool) { entry throws(CacheFailure) in
            if !profiles.isEmpty, let cache = entry.cache {
                if let receipt = await self.remove(profiles, from: cache, of: entry) { return receipt }
            }
            // Purges all images. If no cache is open, retries a failed purge or logout, or returns an empty receipt.
            return try await self.perform(entry.change { $0.end(.purge) }, on: entry)
        }
    }

    /// ``purge(_:profiles:)`` for every user of a uid.
    public func purgeAll(uid: UInt32, profiles: [OpaqueID]) async throws(CacheFailure) -> Receipt {
        try await forAll(of: uid) { owner throws(CacheFailure) in try await self.purge(owner, profiles: profiles) }
    }

    private static var profilesAtOnce: Int { 8 }

    /// Returns nil if it failed: the caller then purges the whole generation (I4).
    private func remove(_ profiles: [OpaqueID], from cache: UserCache, of entry: UserEntry) async -> Receipt? {
        let uid = entry.owner.uid
        do throws(CacheFailure) {
            var receipt = Receipt(users: 1, sessions: entry.sessions)
            // Otherwise a power cut could restore an earlier key file, which opens images of an earlier generation.
            try await sessions.makeDurable(uid, on: services.invalidationPool)
            // A few at a time, so that logouts of other accounts are served in between (F66).
            for start in stride(from: 0, to: profiles.count, by: Self.profilesAtOnce) {
                let some = Array(profiles[start...].prefix(Self.profilesAtOnce))
                let removed = try await services.invalidationPool.run(for: uid) { try cache.purge(some) }
                receipt.usage = receipt.usage.map { $0 + removed.usage }
                receipt.cancelled += removed.cancelled
                receipt.epoch = sessions.epochs.next(of: uid)
                for profile in some { publish(.purge(profile), of: entry, receipt.epoch) }
            }
            logInfo("purged", entry.owner, ["profiles": "\(profiles.count)"], receipt.usage)
            return receipt
        } catch {
            log.warning(
                "purge of profiles failed; purging all images of the user",
                metadata: ["uid": "\(uid)", "command": "purge", "reason": "\(error)"])
            return nil
        }
    }

    /// Tries every user of a uid, then throws the first failure, if any.
    private func forAll(
        of uid: UInt32, _ end: @Sendable (Owner) async throws(CacheFailure) -> Receipt
    ) async throws(CacheFailure) -> Receipt {
        var total = Receipt()
        var failure: CacheFailure?
        let users: [OpaqueID]
        do throws(CacheFailure) {
            users = try await sessions.loggedInUsers(of: uid, on: services.invalidationPool)
        } catch {
            // The users on disk are unknown; those in memory are still processed.
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
        // Makes the absence of all other users durable, too.
        try await sessions.makeDurable(uid, on: services.invalidationPool)
        total.epoch = max(total.epoch, sessions.epochs.next(of: uid))
        return total
    }

    // MARK: Effects

    /// Requires the entry's lock.
    private func perform(_ step: UserState.InvalidationStep, on entry: UserEntry) async throws(CacheFailure) -> Receipt
    {
        let owner = entry.owner
        switch step {
        case .nothing:
            try await sessions.makeDurable(owner.uid, on: services.invalidationPool)
            return Receipt(epoch: sessions.epochs.next(of: owner.uid))
        case .endSession(let session, let login, let remaining):
            if entry.state.withLockedValue({ login != $0.login || !$0.isStored }) {
                try await sessions.save(login, of: entry, on: services.invalidationPool)
            } else {
                try await sessions.makeDurable(owner.uid, on: services.invalidationPool)
            }
            logInfo("logged out", owner, ["sessions": "\(remaining)"])
            entry.change { $0.sessionEnded(session, login) }
            return Receipt(sessions: remaining, epoch: sessions.epochs.next(of: owner.uid))
        case .end(let cache, let invalidation):
            let usage = cache?.usage
            let (cancelled, epoch) = try await commit(invalidation, of: entry, closing: cache, usage: usage)
            return Receipt(users: 1, usage: usage, cancelled: cancelled, sessions: entry.sessions, epoch: epoch)
        }
    }

    /// Closes the cache, if any, and commits. If the commit fails, the user stays closed and a timer retries.
    /// - Parameter usage: the removed images, for the log; nil if not counted yet.
    private func commit(
        _ invalidation: UserState.Invalidation, of entry: UserEntry, closing cache: UserCache? = nil,
        usage: Usage? = nil
    ) async throws(CacheFailure) -> (cancelled: Int, epoch: UInt64) {
        let owner = entry.owner
        let store = services.store
        // One piece of work, since a change of threads takes longer than closing a small cache.
        let (closed, outcome) = await services.invalidationPool.value(for: owner.uid) {
            // Memory is wiped before the receipt of a logout, but after that of a purge, whose time must not depend on
            // the number of images.
            let closed = cache?.close(wipesLater: invalidation == .purge)
            // Even if the logout fails, no later download uses the user's tokens (I11).
            if invalidation == .logout { entry.change { $0.endTokens() }?.end() }
            let outcome = Result<(any GenerationStore)?, any Error> {
                if invalidation == .purge { return try store.commitPurge(owner) }
                try store.commitLogout(owner)
                return nil
            }
            return (closed, outcome.mapError { CacheFailure($0) })
        }
        let wipeLater: @Sendable () -> Void = { [services] in
            if let wipe = closed?.wipe { services.imagePool.submit(for: owner.uid, wipe) }
        }
        do throws(CacheFailure) {
            let next = try outcome.get()
            let (ended, retry) = entry.change { $0.ended(invalidation) }
            retry?.cancel()
            let epoch = sessions.epochs.next(of: owner.uid)
            logInfo(invalidation, owner, usage)
            publish(invalidation == .purge ? .purge(nil) : .logout, of: entry, epoch) { [services] in
                wipeLater()
                // The old generation's directory moves to the trash without delaying the receipt.
                if let ended { services.imagePool.submit(for: owner.uid) { ended.generationStore.discard() } }
            }
            if let next {
                sessions.open(entry, next, epoch: epoch)
            } else {
                sessions.users(of: owner.uid)?.loggedOut(owner.user)
            }
            return (closed?.cancelled ?? 0, epoch)
        } catch {
            wipeLater()
            let reason = "\(error)"
            let isFirst = entry.change { $0.failed(invalidation, reason: reason) }
            services.counters.count(.failedInvalidations)
            log.error(
                "purge or logout not durable; user closed until a retry succeeds",
                metadata: ["uid": "\(owner.uid)", "command": "\(invalidation)", "reason": "\(reason)"])
            if isFirst { retry(entry, attempt: 1) }
            throw .inputOutput(reason)
        }
    }

    /// Called after the commit and before the receipt, with the entry's lock.
    private func publish(
        _ kind: UserEvent.Kind, of entry: UserEntry, _ epoch: UInt64, then next: (@Sendable () -> Void)? = nil
    ) {
        services.events.publish(UserEvent(owner: entry.owner, kind: kind, epoch: epoch), then: next)
    }

    private func logInfo(_ invalidation: UserState.Invalidation, _ owner: Owner, _ usage: Usage?) {
        switch invalidation {
        case .logout: logInfo("logged out", owner, ["sessions": "0"], usage)
        case .purge: logInfo("purged", owner, [:], usage)
        }
    }

    /// - Parameter usage: the removed images; nil if not counted yet.
    private func logInfo(
        _ message: Logger.Message, _ owner: Owner, _ details: Logger.Metadata, _ usage: Usage? = nil
    ) {
        let removed = usage.map { ["images": "\($0.images)", "bytes": "\($0.bytes)"] as Logger.Metadata } ?? [:]
        sessions.accountLog.write(message, uid: owner.uid, details.merging(removed) { $1 }, at: services.time.now)
    }

    // MARK: Retries

    /// Milliseconds before a failed purge or logout is retried.
    private static let backoff = Backoff(base: 500, most: 30_000)

    private func retry(_ entry: UserEntry, attempt: Int) {
        let owner = entry.owner
        let timer = services.time.after(milliseconds: Self.backoff.ceiling(attempt: attempt)) {
            Task(executorPreference: self.services.tasks) { await self.retryNow(owner, attempt: attempt) }
        }
        entry.change { $0.retry = timer }
    }

    private func retryNow(_ owner: Owner, attempt: Int) async {
        do {
            try await sessions.withTurn(owner, on: services.invalidationPool) { entry throws(CacheFailure) in
                guard case .broken(let failed, _) = entry.phase else { return }
                do {
                    _ = try await self.commit(failed, of: entry)
                    self.log.notice(
                        "purge or logout durable after a retry",
                        metadata: ["uid": "\(owner.uid)", "command": "\(failed)"])
                } catch {
                    // `commit` has logged the reason.
                    self.retry(entry, attempt: attempt + 1)
                }
            }
        } catch {
            // The daemon is stopping.
        }
    }

    // MARK: Stop

    /// Closes every cache, after the queued images are written, and ends the retries of purges and logouts. Logins stay
    /// on disk; users that are not in memory are rejected from now on.
    public func shutDown() async {
        let entries = sessions.stop()
        await withTaskGroup { group in
            for service in entries.compactMap({ $0.state.withLockedValue { $0.service } }) {
                group.addTask { await service.stop() }
            }
        }
        // Otherwise each download that ends would start another one, and writing would never end.
        for entry in entries { entry.cache?.stopWarming() }
        for entry in entries {
            await entry.lock.withLock {
                if let cache = entry.cache {
                    // A downloaded image is enqueued for writing after its delivery.
                    await services.invalidationPool.value(for: entry.owner.uid) { cache.drainDeliveries() }
                    await services.writes.finish()
                }
                let (cache, retry) = entry.change { $0.stop() }
                retry?.cancel()
                if let cache {
                    _ = await services.invalidationPool.value(for: entry.owner.uid) { cache.close(.shuttingDown) }
                }
            }
        }
    }
}
