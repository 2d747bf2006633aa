/// Ends caches in every uid at once, for whoever knows an account and not under which uids of the machine it is logged
/// in: `LOGOUT user UID *` and `PURGE user UID *`.
///
/// Each uid's ending is an ending by itself, in the order and as durable as any. One uid's trouble keeps no other's
/// caches alive: all are tried, and then there is one receipt of all, or an error. Asking again is harmless.
extension InvalidationService {
    /// Ends one session, or all, of a user in every uid. A user who is logged in nowhere is no error.
    /// - Parameters:
    ///   - user: nil for every user.
    ///   - caller: in whose turn the uids are looked for.
    /// - Throws: `inputOutput` where it could not be made durable in one of the uids. Costs a look for each uid.
    public func logOutInEveryUID(
        _ user: OpaqueID?, session: OpaqueID? = nil, caller: UInt32
    ) async throws(CacheFailure) -> Receipt {
        if user != nil { services.counters.count(.logouts) }
        return try await inEveryUID(caller: caller) { uid throws(CacheFailure) in
            guard let user else { return try await self.logOutAll(uid: uid, session: session) }
            return try await self.end(Owner(uid: uid, user: user), session: session)
        }
    }

    /// Removes images of a user in every uid; otherwise as ``purge(_:profiles:)``.
    /// - Parameters:
    ///   - user: nil for every user.
    ///   - caller: in whose turn the uids are looked for.
    public func purgeInEveryUID(
        _ user: OpaqueID?, profiles: [OpaqueID], caller: UInt32
    ) async throws(CacheFailure) -> Receipt {
        if user != nil { services.counters.count(.purges) }
        return try await inEveryUID(caller: caller) { uid throws(CacheFailure) in
            guard let user else { return try await self.purgeAll(uid: uid, profiles: profiles) }
            return try await self.remove(profiles, of: Owner(uid: uid, user: user))
        }
    }

    private func inEveryUID(
        caller: UInt32, _ end: @Sendable (UInt32) async throws(CacheFailure) -> Receipt
    ) async throws(CacheFailure) -> Receipt {
        var unlisted: CacheFailure?
        let uids: Set<UInt32>
        do throws(CacheFailure) {
            uids = try await sessions.uids(on: services.invalidations, for: caller)
        } catch {
            // The disk does not say which there are: those that are known end all the same.
            unlisted = error
            uids = sessions.knownUIDs
        }
        var total = Receipt()
        var failures: [CacheFailure] = []
        for uid in uids {
            do throws(CacheFailure) {
                total.add(try await end(uid))
            } catch {
                failures.append(error)
            }
        }
        if failures.contains(.shuttingDown) { throw .shuttingDown }
        if let unlisted {
            throw .inputOutput("it is not known which uids there are, only those in memory were tried: \(unlisted)")
        }
        if let first = failures.first {
            throw .inputOutput("in \(failures.count) of \(uids.count) uids it failed, ask again: \(first)")
        }
        // Of nobody's uid there is no epoch; the caller's is as good as any.
        if uids.isEmpty { total.epoch = sessions.epochs.next(of: caller) }
        return total
    }
}
