import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// The arguments of LOGIN.
public struct LoginRequest: Sendable {
    public var session: OpaqueID
    /// The connection that the session ends with; nil for a durable session.
    public var heldBy: UInt64?
    public var origin: String?
    public var token: Secret?
    public var refresh: Secret?

    public init(
        session: OpaqueID, heldBy: UInt64? = nil, origin: String? = nil, token: Secret? = nil, refresh: Secret? = nil
    ) {
        self.session = session
        self.heldBy = heldBy
        self.origin = origin
        self.token = token
        self.refresh = refresh
    }
}

extension UserSessions {
    /// Opens the owner's cache or adds a session to it. Durable when it returns.
    /// - Throws: `invalid` for an unknown origin, another origin than at the first login, or a refresh token without a
    ///   token endpoint; `busy` over a limit; `noSpace` and `inputOutput` from the disk.
    public func logIn(_ owner: Owner, _ request: LoginRequest) async throws(CacheFailure) {
        let settings = services.settings()
        try await withTurn(owner, on: services.loginPool) { entry throws(CacheFailure) in
            let state = entry.state.withLockedValue { $0 }
            switch try state.logIn(request, settings: settings, now: self.services.time.now) {
            case .begin(let login): try await self.begin(entry, login, request, limit: settings.usersPerUID)
            case .join(let login, let cache):
                try await self.join(entry, cache, login, request, mustSave: login != state.login || !state.isStored)
            }
            let sessions = entry.state.withLockedValue { $0.sessions.count }
            self.accountLog.write("logged in", uid: owner.uid, ["sessions": "\(sessions)"], at: self.services.time.now)
        }
        services.counters.count(.logins)
    }

    /// The first login: makes sessions and keys durable, then opens the cache.
    private func begin(
        _ entry: UserEntry, _ login: LoginRecord, _ request: LoginRequest, limit: Int
    ) async throws(CacheFailure) {
        let owner = entry.owner
        try entry.reserveMemory(for: login, request)
        // Not nil while the entry is in use.
        let users = users(of: owner.uid)
        do {
            let store = services.store
            let generationStore = try await services.loginPool.run(for: owner.uid) {
                let count = { try store.countUsers(of: owner.uid) }
                guard try users?.reserve(limit: limit, count: count) == true else {
                    throw CacheFailure.busy(
                        "limits.users-per-uid: \(limit) users are logged in or logging in; log one out")
                }
                do {
                    return try store.commitLogin(owner, login)
                } catch {
                    users?.loginFailed()
                    throw error
                }
            }
            let service = tokenService(owner, login.tokens)
            entry.state.withLockedValue { $0.loggedIn(login, request, service: service) }
            let epoch = epochs.next(of: owner.uid)
            services.events.publish(UserEvent(owner: owner, kind: .login, epoch: epoch))
            open(entry, generationStore, epoch: epoch)
            users?.loggedIn(owner.user)
        } catch {
            entry.change { $0.loginFailed() }
            throw CacheFailure(error)
        }
    }

    /// A further session or new tokens for the open cache.
    private func join(
        _ entry: UserEntry, _ cache: UserCache, _ login: LoginRecord, _ request: LoginRequest, mustSave: Bool
    ) async throws(CacheFailure) {
        try entry.reserveMemory(for: login, request)
        // Corrects the reservation if the login fails.
        defer { entry.change { _ in } }
        if mustSave {
            try await save(login, of: entry, on: services.loginPool)
        } else {
            try await makeDurable(entry.owner.uid, on: services.loginPool)
        }
        let earlier = entry.state.withLockedValue { $0.service }
        let service = earlier ?? tokenService(entry.owner, login.tokens)
        let credentials = entry.change { state in
            state.loggedIn(login, request, service: service)
            return state.credentials
        }
        if let earlier {
            earlier.logIn(access: request.token, refresh: request.refresh) { cache.update(credentials) }
        } else {
            cache.update(credentials)
        }
        _ = epochs.next(of: entry.owner.uid)
    }

    /// Creates the service that refreshes the tokens of a login; nil without a refresh token.
    func tokenService(_ owner: Owner, _ tokens: LoginTokens) -> AccessTokenService? {
        guard tokens.refresh != nil else { return nil }
        let log = self.log
        return AccessTokenService(
            tokens, quotaAccount: services.budget.account(of: owner.uid), services: services,
            callbacks: .init(
                store: { [weak self] service throws(CacheFailure) in try await self?.storeTokens(of: service, owner) },
                adopt: { [weak self] service in
                    // A cache that is being created reads the tokens itself.
                    guard let cache = self?.entry(owner)?.cache, cache.credentials.service === service else { return }
                    cache.update(cache.credentials)
                },
                log: { message, failure in
                    log.warning("\(message)", metadata: ["uid": "\(owner.uid)", "reason": "\(failure)"])
                }))
    }

    /// Makes the tokens of a service durable, with the owner's turn.
    private func storeTokens(of service: AccessTokenService, _ owner: Owner) async throws(CacheFailure) {
        try await withTurn(owner, on: services.loginPool) { entry throws(CacheFailure) in
            // Read only now, because an earlier turn may have brought other tokens or ended the login.
            let record = entry.change { state in
                Result { () throws(CacheFailure) in try state.updateTokens(from: service) }
            }
            guard let login = try record.get() else { return }
            try await self.save(login, of: entry, on: self.services.loginPool)
        }
    }
}
