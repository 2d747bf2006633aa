import LinuxSupport
import Logging
import NIOConcurrencyHelpers

/// What LOGIN asks for.
public struct LoginRequest: Sendable {
    public var session: OpaqueID
    /// The connection that the session ends with; nil for a session that outlives it.
    public var heldBy: UInt64?
    public var origin: String?
    /// Access token.
    public var token: Secret?
    /// Refresh token, for an origin with a token endpoint.
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
    /// Opens the owner's cache, or adds a session to it. Durable when it returns.
    /// - Throws: `invalid` for an unknown origin, another one than the cache was opened with, or a refresh token for
    ///   one without a token endpoint, `busy` over a limit, `noSpace` and `inputOutput` from the disk.
    public func logIn(_ owner: Owner, _ request: LoginRequest) async throws(CacheFailure) {
        let settings = services.settings()
        try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            let state = entry.state.withLockedValue { $0 }
            switch try state.logIn(request, settings: settings, now: self.services.time.now) {
            case .begin(let login): try await self.begin(entry, login, request, limit: settings.usersPerUID)
            case .join(let login, let cache):
                try await self.join(entry, cache, login, request, isChanged: login != state.login)
            }
            let sessions = entry.state.withLockedValue { $0.sessions.count }
            self.uidLog.write("logged in", uid: owner.uid, ["sessions": "\(sessions)"], at: self.services.time.now)
        }
        services.counters.count(.logins)
    }

    /// The first log-in: sessions and keys are made durable, then the cache is open.
    private func begin(
        _ entry: UserEntry, _ login: LoginRecord, _ request: LoginRequest, limit: Int
    ) async throws(CacheFailure) {
        let owner = entry.owner
        try entry.takeMemory(for: login, request)
        do {
            let store = services.store
            let generationStore = try await services.lifecycle.run(for: owner.uid) {
                guard try self.countUsers(of: owner.uid) < limit else {
                    throw CacheFailure.busy(
                        "this uid has \(limit) users logged in, the limit users-per-uid: log one out")
                }
                return try store.commitLogin(owner, login)
            }
            let service = tokenService(owner, login.tokens)
            entry.state.withLockedValue { $0.loggedIn(login, request, service: service) }
            let epoch = epochs.next(of: owner.uid)
            services.events.publish(UserEvent(owner: owner, kind: .login, epoch: epoch))
            open(entry, generationStore, epoch: epoch)
            users(of: owner.uid)?.changed(owner.user, isLoggedIn: true)
        } catch {
            entry.change { $0.loginFailed() }
            let failure = CacheFailure(error)
            // What is over the limit was never begun.
            if case .busy = failure {} else { users(of: owner.uid)?.forgetListing() }
            throw failure
        }
    }

    /// A further session, or other tokens, for a cache that is open.
    private func join(
        _ entry: UserEntry, _ cache: UserCache, _ login: LoginRecord, _ request: LoginRequest, isChanged: Bool
    ) async throws(CacheFailure) {
        try entry.takeMemory(for: login, request)
        // What was not kept counts no more.
        defer { entry.change { _ in } }
        if isChanged {
            try await save(login, of: entry.owner, on: services.lifecycle)
        } else {
            try await makeDurable(entry.owner.uid, on: services.lifecycle)
        }
        let earlier = entry.state.withLockedValue { $0.service }
        let service = earlier ?? tokenService(entry.owner, login.tokens)
        let account = entry.change { state in
            state.loggedIn(login, request, service: service)
            return state.account
        }
        if let earlier {
            earlier.logIn(access: request.token, refresh: request.refresh) { cache.update(account) }
        } else {
            cache.update(account)
        }
        _ = epochs.next(of: entry.owner.uid)
    }

    // MARK: Tokens

    /// Who renews the tokens of a log-in that begins, or is found on disk; nil where nothing can be renewed.
    func tokenService(_ owner: Owner, _ tokens: LoginTokens) -> AccessTokenService? {
        guard tokens.refresh != nil else { return nil }
        let log = self.log
        return AccessTokenService(
            tokens, quotaAccount: services.budget.account(of: owner.uid), services: services,
            keeper: .init(
                keep: { [weak self] service throws(CacheFailure) in try await self?.keepTokens(of: service, owner) },
                adopt: { [weak self] service in
                    // A cache that is being made looks itself.
                    guard let cache = self?.entry(owner)?.cache, cache.account.service === service else { return }
                    cache.update(cache.account)
                },
                tell: { what, failure in
                    log.warning("\(what)", metadata: ["uid": "\(owner.uid)", "reason": "\(failure)"])
                }))
    }

    /// Makes the tokens of a service durable, with the owner's turn.
    private func keepTokens(of service: AccessTokenService, _ owner: Owner) async throws(CacheFailure) {
        try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            // Looked at only now: whatever was before it in the line may have brought others, or ended the log-in.
            let kept = entry.change { state in Result { () throws(CacheFailure) in try state.keepTokens(of: service) } }
            guard let login = try kept.get() else { return }
            try await self.save(login, of: owner, on: self.services.lifecycle)
        }
    }
}
