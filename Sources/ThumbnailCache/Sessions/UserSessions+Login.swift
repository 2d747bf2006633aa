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
    /// - Throws: `invalid` for an unknown origin, another one than the cache was opened with, or a refresh token for one
    ///   without a token endpoint, `busy` over a limit,
    ///   `noSpace` and `inputOutput` from the disk.
    public func logIn(_ owner: Owner, _ request: LoginRequest) async throws(CacheFailure) {
        let settings = services.settings()
        if let origin = request.origin, settings.origins[origin] == nil {
            let known = settings.origins.keys.sorted().joined(separator: ", ")
            throw .invalid("no origin of that name is configured; configured: \(known.isEmpty ? "none" : known)")
        }
        try await withTurn(owner, on: services.lifecycle) { entry throws(CacheFailure) in
            switch entry.phase {
            case .open(let cache):
                try await self.join(entry, cache, request, limit: settings.sessionsPerUser)
            case .loggedOut:
                try await self.begin(entry, request, limit: settings.usersPerUID)
            case .broken(_, let reason):
                throw .inputOutput(Self.closed(reason))
            case .ending, .unknown, .stopped:
                throw .shuttingDown
            }
            self.uidLog.write(
                "logged in", uid: owner.uid, ["sessions": "\(entry.sessions.count)"], at: self.services.time.now)
        }
        services.counters.count(.logins)
    }

    /// The first log-in: sessions and keys are made durable, then the cache is open.
    private func begin(_ entry: UserEntry, _ request: LoginRequest, limit: Int) async throws(CacheFailure) {
        let owner = entry.owner
        try checkRefresh(request, origin: request.origin)
        var login = LoginRecord(
            origin: request.origin, token: request.token, refresh: request.refresh, loggedInAt: services.time.now)
        if request.heldBy == nil { login.sessions = [request.session.detached()] }
        try entry.takeMemory(for: login, and: request)
        do {
            let store = services.store
            let record = login
            let vault = try await services.lifecycle.run(for: owner.uid) {
                guard try self.countUsers(of: owner.uid) < limit else {
                    throw CacheFailure.busy(
                        "this uid has \(limit) users logged in, the limit users-per-uid: log one out")
                }
                return try store.commitLogin(owner, record)
            }
            keep(login, request, in: entry)
            entry.state.withLockedValue { $0.tokens = tokenService(owner, login.tokens) }
            open(entry, vault, epoch: epochs.next(of: owner.uid))
            changed(owner, isLoggedIn: true)
        } catch {
            // It may have come half way: whoever is next looks at the disk.
            entry.phase = .unknown
            entry.memory.settle(at: 0)
            let failure = CacheFailure(error)
            // What is over the limit was never begun.
            if case .busy = failure {} else { forgetListing(of: owner.uid) }
            throw failure
        }
    }

    /// A further session, or other tokens, for a cache that is open.
    private func join(
        _ entry: UserEntry, _ cache: UserCache, _ request: LoginRequest, limit: Int
    ) async throws(CacheFailure) {
        let before = entry.state.withLockedValue { $0.login }
        if let origin = request.origin, origin != before.origin ?? "default" {
            throw .invalid("the user is logged in with another origin; log out first to change it")
        }
        try checkRefresh(request, origin: before.origin)
        guard entry.sessions.contains(request.session) || entry.sessions.count < limit else {
            throw .busy("this user has \(limit) sessions, the limit sessions-per-user: end one")
        }
        var login = before
        if request.heldBy == nil { login.sessions.insert(request.session.detached()) }
        login.tokens.logIn(access: request.token, refresh: request.refresh)
        try entry.takeMemory(for: login, and: request)
        // What was not kept counts no more.
        defer { entry.settleMemory() }
        if login != before {
            try await save(login, of: entry.owner, on: services.lifecycle)
        } else {
            try await settle(entry.owner.uid, on: services.lifecycle)
        }
        keep(login, request, in: entry)
        let account = entry.account
        account.tokens.logIn(access: request.token, refresh: request.refresh, services) { cache.update(account) }
        _ = epochs.next(of: entry.owner.uid)
    }

    /// What was found on disk holds from here on through loss of power (I4): before anything is answered that no commit stands behind.
    func settle(_ uid: UInt32, on pool: any BlockingPool) async throws(CacheFailure) {
        try await pool.run(for: uid) { try self.services.store.settle(uid) }
    }

    func save(_ login: LoginRecord, of owner: Owner, on pool: any BlockingPool) async throws(CacheFailure) {
        try await pool.run(for: owner.uid) { try self.services.store.commitSessions(owner, login) }
    }

    private func keep(_ login: LoginRecord, _ request: LoginRequest, in entry: UserEntry) {
        entry.state.withLockedValue { state in
            state.login = login
            if let connection = request.heldBy {
                state.held[request.session.detached(), default: []].insert(connection)
            }
        }
    }
}
