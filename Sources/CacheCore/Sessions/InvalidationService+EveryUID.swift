/// Purges and logouts in every uid, `LOGOUT user UID *` and `PURGE user UID *`, for callers that know a user but not
/// the uids under which it is logged in.
///
/// Uids are processed one by one, as by single commands. A failure in one does not stop the others. The result is one
/// receipt, or an error. Retrying is harmless.
extension InvalidationService {
    /// Ends one session of a user in every uid, or all. Succeeds if the user is not logged in. Costs a disk lookup for
    /// each uid.
    /// - Parameters:
    ///   - user: nil for every user.
    ///   - caller: the uid that is charged for listing the uids.
    public func logOutInEveryUID(
        _ user: OpaqueID?, session: OpaqueID? = nil, caller: UInt32
    ) async throws(CacheFailure) -> Receipt {
        if user != nil { services.counters.count(.logouts) }
        return try await inEveryUID(caller: caller) { uid throws(CacheFailure) in
            guard let user else { return try await self.logOutAll(uid: uid, session: session) }
            return try await self.end(Owner(uid: uid, user: user), session: session)
        }
    }

    /// Removes images of a user in every uid, like ``purge(_:profiles:)``; of every user if nil.
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
            uids = try await sessions.uids(on: services.invalidationPool, for: caller)
        } catch {
            // The uids on disk are unknown; those in memory are still processed.
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
            throw .inputOutput("the uids on disk could not be listed; only those in memory were tried: \(unlisted)")
        }
        if let first = failures.first {
            throw .inputOutput("failed in \(failures.count) of \(uids.count) uids, retry: \(first)")
        }
        // Without any uid, the epoch is the caller's.
        if uids.isEmpty { total.epoch = sessions.epochs.next(of: caller) }
        return total
    }
}
