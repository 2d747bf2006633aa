import LinuxSupport

/// The state machine of one user: login, sessions, purge and logout.
///
/// A value without effects, like ``RequestCoordinator``: each function takes a request or the result of an effect and
/// returns the next effect. ``UserSessions`` performs those of logins, ``InvalidationService`` those of purges and
/// logouts.
struct UserState: Sendable {
    enum Phase: Sendable {
        /// Not yet looked up on disk.
        case unknown
        case loggedOut
        case open(UserCache)
        /// Being purged or logged out: closed to reads until that is durable.
        case invalidation
        /// A purge or logout could not be made durable (I4): the user is closed, and the daemon retries.
        case broken(Invalidation, reason: String)
        /// The daemon is stopping. The state on disk remains.
        case stopped
    }

    /// A purge keeps the login, a logout ends it.
    enum Invalidation: Sendable, Equatable {
        case purge
        case logout
    }

    private(set) var phase = Phase.unknown
    private(set) var login = LoginRecord(loggedInAt: 0)
    /// False after a failed write: the disk may have this login or the one that was being written.
    private(set) var isStored = true
    /// Refreshes the tokens of this login, if it has a refresh token. A purge keeps it.
    private(set) var service: AccessTokenService?
    /// Sessions that end with a connection, and the connections that hold them.
    private(set) var held: [OpaqueID: Set<UInt64>] = [:]
    /// The closed generation whose end is not yet durable.
    private var closed: UserCache?
    var retry: (any Timer)?

    var cache: UserCache? { if case .open(let cache) = phase { cache } else { nil } }

    /// Whether the user is logged in, or its purge or logout is not durable yet. Other entries need not be kept.
    var isLoggedIn: Bool {
        switch phase {
        case .open, .invalidation, .broken: true
        case .unknown, .loggedOut, .stopped: false
        }
    }

    var sessions: Set<OpaqueID> { login.sessions.union(held.keys) }

    var credentials: UserCache.Credentials { .init(origin: login.origin, tokens: login.tokens, service: service) }

    /// - Throws: `inputOutput` while a purge or logout could not be made durable.
    func readableCache() throws(CacheFailure) -> UserCache? {
        if case .broken(_, let reason) = phase { throw Self.closed(reason) }
        return cache
    }

    private static func closed(_ reason: String) -> CacheFailure {
        .inputOutput("purge or logout not durable yet, retrying: \(reason)")
    }

    // MARK: Lookup, open, stop

    /// Records the result of the lookup on disk. A login that was found can then be opened.
    mutating func loaded(_ stored: LoginRecord?, service: AccessTokenService?) {
        guard let stored else {
            phase = .loggedOut
            return
        }
        (login, isStored) = (stored, true)
        self.service = service
    }

    mutating func opened(_ cache: UserCache) { phase = .open(cache) }

    mutating func stop() -> (cache: UserCache?, retry: (any Timer)?) {
        defer { (phase, retry) = (.stopped, nil) }
        return (cache, retry)
    }

    // MARK: Login

    /// The record that a LOGIN must make durable.
    enum LoginStep {
        /// The first login: a new generation.
        case begin(LoginRecord)
        /// A further session or new tokens for the open cache.
        case join(LoginRecord, UserCache)
    }

    func logIn(_ request: LoginRequest, settings: CacheSettings, now: Int64) throws(CacheFailure) -> LoginStep {
        if let origin = request.origin, settings.origins[origin] == nil {
            let known = settings.origins.keys.sorted().joined(separator: ", ")
            throw .invalid("no origin of that name is configured; configured: \(known.isEmpty ? "none" : known)")
        }
        let kept: Set<OpaqueID> = request.heldBy == nil ? [request.session.detached()] : []
        switch phase {
        case .open(let cache):
            if let origin = request.origin, origin != login.origin ?? "default" {
                throw .invalid("the user is logged in with another origin; log out first to change it")
            }
            try Self.checkRefresh(request, origin: login.origin, settings)
            guard sessions.contains(request.session) || sessions.count < settings.sessionsPerUser else {
                throw .busy("limits.sessions-per-user: \(settings.sessionsPerUser) sessions; log one out")
            }
            var after = login
            after.sessions.formUnion(kept)
            after.tokens.logIn(access: request.token, refresh: request.refresh)
            return .join(after, cache)
        case .loggedOut:
            try Self.checkRefresh(request, origin: request.origin, settings)
            return .begin(
                LoginRecord(
                    sessions: kept, origin: request.origin, token: request.token, refresh: request.refresh,
                    loggedInAt: now))
        case .broken(_, let reason):
            throw Self.closed(reason)
        case .invalidation, .unknown, .stopped:
            // Only the last can occur: the caller has the entry's lock and has looked the user up.
            throw .shuttingDown
        }
    }

    /// Throws if the login brings a refresh token and its origin has no token endpoint.
    private static func checkRefresh(
        _ request: LoginRequest, origin name: String?, _ settings: CacheSettings
    ) throws(CacheFailure) {
        guard request.refresh != nil else { return }
        let name = name ?? "default"
        guard let origin = settings.origins[name] else {
            throw .invalid("REFRESH: origin \(name) is not configured")
        }
        guard origin.tokenEndpoint != nil else {
            throw .invalid("REFRESH: origin \(name) has no token endpoint; set origins.\(name).token")
        }
    }

    /// Records a durable login, whose tokens `service` refreshes.
    mutating func loggedIn(_ login: LoginRecord, _ request: LoginRequest, service: AccessTokenService?) {
        (self.login, self.service, isStored) = (login, service, true)
        if let connection = request.heldBy { held[request.session.detached(), default: []].insert(connection) }
    }

    /// The first login failed, perhaps after its commit: the next request looks it up on disk.
    mutating func loginFailed() { phase = .unknown }

    /// Updates the login with the tokens of its service. Nil if the service's login has ended.
    mutating func updateTokens(from service: AccessTokenService) throws(CacheFailure) -> LoginRecord? {
        guard self.service === service, let tokens = service.durableTokens else { return nil }
        (login.tokens, isStored) = (tokens, false)
        if case .broken(_, let reason) = phase { throw Self.closed(reason) }
        return login
    }

    mutating func saveBegan() { isStored = false }

    mutating func saved() { isStored = true }

    // MARK: Purge and logout

    enum InvalidationStep {
        /// The user is not logged in.
        case nothing
        /// One session ends and others remain: the record to make durable.
        case endSession(OpaqueID, LoginRecord, remaining: Int)
        /// Close the cache, if it is open, and commit the purge or logout.
        case end(UserCache?, Invalidation)
    }

    mutating func end(_ invalidation: Invalidation) -> InvalidationStep {
        switch phase {
        case .open(let cache):
            (phase, closed) = (.invalidation, cache)
            return .end(cache, invalidation)
        case .broken(let earlier, _):
            // A failed logout is not replaced by a purge.
            return .end(nil, earlier == .logout ? .logout : invalidation)
        case .unknown where invalidation == .logout:
            // The login could not be read from disk, so no cache is open. It can still be destroyed.
            return .end(nil, .logout)
        case .loggedOut, .invalidation, .unknown, .stopped:
            // An invalidation in progress cannot occur: it has the entry's lock.
            return .nothing
        }
    }

    /// A logout of one session, or of all if nil. The end of the last session ends the cache.
    mutating func logOut(_ session: OpaqueID?) -> InvalidationStep {
        guard let session else { return end(.logout) }
        switch phase {
        case .broken(.purge, _):
            // Finishes the failed purge first; the caller then repeats the logout.
            return .end(nil, .purge)
        case .open where !sessions.subtracting([session]).isEmpty:
            var after = login
            after.sessions.remove(session)
            return .endSession(session, after, remaining: sessions.subtracting([session]).count)
        default:
            return end(.logout)
        }
    }

    /// Records the durable end of a session.
    mutating func sessionEnded(_ session: OpaqueID, _ login: LoginRecord) {
        self.login = login
        held[session] = nil
    }

    /// Handles the close of a connection that held a session. Returns nil if a session remains.
    mutating func release(_ session: OpaqueID, connection: UInt64) -> InvalidationStep? {
        guard held[session]?.remove(connection) != nil else { return nil }
        if held[session]?.isEmpty == true { held[session] = nil }
        // A held session is not on disk. If a failed purge is to be retried, a logout is retried instead, which
        // includes it.
        return sessions.isEmpty ? end(.logout) : nil
    }

    /// Removes the tokens of a login that ends: no later download uses them (I11).
    mutating func endTokens() -> AccessTokenService? {
        login.tokens = LoginTokens()
        defer { service = nil }
        return service
    }

    /// Records a durable purge or logout. Returns the closed generation to discard, and the retry timer to cancel.
    mutating func ended(_ invalidation: Invalidation) -> (closed: UserCache?, retry: (any Timer)?) {
        defer { (closed, retry) = (nil, nil) }
        if invalidation == .logout {
            phase = .loggedOut
            login = LoginRecord(loggedInAt: 0)
            held = [:]
        }
        return (closed, retry)
    }

    /// Records a failed commit. Returns whether this is the first failure, which needs a retry.
    mutating func failed(_ invalidation: Invalidation, reason: String) -> Bool {
        defer { phase = .broken(invalidation, reason: reason) }
        return if case .broken = phase { false } else { true }
    }

    // MARK: Memory

    /// The memory of a logged-in user: 5.1 KB, and 2.1 KB for each held session with an id of 500 bytes (measured).
    func bytes(of owner: Owner, willBeLoggedIn: Bool = false) -> Int {
        guard willBeLoggedIn || isLoggedIn else { return 0 }
        let tokens = (login.tokens.access?.count ?? 0) + (login.tokens.refresh?.count ?? 0)
        let kept = login.sessions.reduce(0) { $0 + 150 + $1.count }
        // The connection that holds the session keeps two more copies of its id.
        let held = held.reduce(0) { $0 + $1.value.count * (600 + 3 * $1.key.count) }
        // The entry and the cache each have a copy of the user's name.
        return 5_100 + 2 * owner.user.count + tokens + kept + held
    }
}
