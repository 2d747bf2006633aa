import LinuxSupport
import NIOConcurrencyHelpers

/// One user as the daemon knows it at this moment. Whoever changes what is durable of the user has the entry's turn.
final class UserEntry: Sendable {
    let owner: Owner
    let lock = AsyncFIFOLock()
    let state = NIOLockedValueBox(UserState())
    /// What is kept of the user while it is logged in; goes with the entry.
    let memory: MemoryLease

    init(owner: Owner, memory: MemoryLease) {
        self.owner = owner
        self.memory = memory
    }

    var phase: UserState.Phase { state.withLockedValue { $0.phase } }

    var cache: UserCache? { state.withLockedValue { $0.cache } }

    var isLoggedIn: Bool { state.withLockedValue { $0.isLoggedIn } }

    /// How many sessions there are.
    var sessions: Int { state.withLockedValue { $0.sessions.count } }

    /// Changes the state, and what it counts for. With the entry's turn.
    @discardableResult
    func change<Result>(_ body: (inout UserState) -> Result) -> Result {
        let (result, bytes) = state.withLockedValue { state in (body(&state), state.bytes(of: owner)) }
        memory.set(to: bytes)
        return result
    }

    /// Takes what the user will take up once a log-in is done.
    /// - Throws: `busy` where there is no room.
    func takeMemory(for login: LoginRecord, _ request: LoginRequest) throws(CacheFailure) {
        let bytes = state.withLockedValue { state in
            var after = state
            after.loggedIn(login, request, service: nil)
            return after.bytes(of: owner, willBeLoggedIn: true)
        }
        guard memory.change(to: bytes) else { throw .busy(memory.refusal) }
    }
}

/// What is known of one user, and what follows from what happens to it.
///
/// A value without effects, as ``RequestCoordinator`` is: each function takes what was asked for, or what came of it,
/// and says what is to be done. ``UserSessions`` acts on log-ins and ``InvalidationService`` on endings.
struct UserState: Sendable {
    enum Phase: Sendable {
        /// Not yet looked up on disk.
        case unknown
        case loggedOut
        case open(UserCache)
        /// Being purged or logged out: nobody may read until that is durable.
        case invalidation
        /// An ending could not be made durable (I4): the user is closed to all, and it is tried again.
        case broken(Invalidation, reason: String)
        /// The daemon is stopping: nobody is served any more, and what the disk says stays.
        case stopped
    }

    /// What an ending is to lead to.
    enum Invalidation: Sendable, Equatable {
        case purge
        case logout
    }

    private(set) var phase = Phase.unknown
    private(set) var login = LoginRecord(loggedInAt: 0)
    /// Renews the log-in's tokens, where they can be; a purge leaves it be, each log-in has its own.
    private(set) var service: AccessTokenService?
    /// Sessions that end with a connection, and the connections that hold them.
    private(set) var held: [OpaqueID: Set<UInt64>] = [:]
    /// A generation that was closed and whose end is not yet durable.
    private var closed: UserCache?
    /// When the end that is owed will be tried again.
    var retry: (any Timer)?

    var cache: UserCache? { if case .open(let cache) = phase { cache } else { nil } }

    /// Whether the user is logged in as far as is known, or owed a log-out. What is kept of others, nobody needs.
    var isLoggedIn: Bool {
        switch phase {
        case .open, .invalidation, .broken: true
        case .unknown, .loggedOut, .stopped: false
        }
    }

    /// Sessions that a connection holds, or that are kept.
    var sessions: Set<OpaqueID> { login.sessions.union(held.keys) }

    var account: UserCache.Account { .init(origin: login.origin, tokens: login.tokens, service: service) }

    /// The cache, nil where there is none.
    /// - Throws: `inputOutput` while an ending is owed.
    func readableCache() throws(CacheFailure) -> UserCache? {
        if case .broken(_, let reason) = phase { throw Self.closed(reason) }
        return cache
    }

    private static func closed(_ reason: String) -> CacheFailure {
        .inputOutput("the end of this user's cache could not be made durable and is being tried again: \(reason)")
    }

    // MARK: Looked up, opened, stopped

    /// The disk has, or has not, a log-in of the user, which can be opened then.
    mutating func loaded(_ stored: LoginRecord?, service: AccessTokenService?) {
        guard let stored else {
            phase = .loggedOut
            return
        }
        login = stored
        self.service = service
    }

    mutating func opened(_ cache: UserCache) { phase = .open(cache) }

    /// Returns what is to be closed, and called off.
    mutating func stop() -> (cache: UserCache?, retry: (any Timer)?) {
        defer { (phase, retry) = (.stopped, nil) }
        return (cache, retry)
    }

    // MARK: Log-in

    /// What is to be made durable for a LOGIN.
    enum LoginStep {
        /// The first: a new generation.
        case begin(LoginRecord)
        /// A further session, or other tokens, for a cache that is open.
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
                throw .busy("this user has \(settings.sessionsPerUser) sessions, the limit sessions-per-user: end one")
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
            throw .shuttingDown
        }
    }

    /// Whether the origin that a log-in goes to can renew its tokens.
    private static func checkRefresh(
        _ request: LoginRequest, origin name: String?, _ settings: CacheSettings
    ) throws(CacheFailure) {
        guard request.refresh != nil else { return }
        let name = name ?? "default"
        guard let origin = settings.origins[name] else {
            throw .invalid("REFRESH: no origin \(name) is configured, so there is nothing to renew a token for")
        }
        guard origin.tokenEndpoint != nil else {
            let key = "origins.\(name).token"
            throw .invalid("REFRESH: origin \(name) has no token endpoint; \(key) in the configuration would name it")
        }
    }

    /// The log-in is durable.
    /// - Parameter service: renews its tokens from now on.
    mutating func loggedIn(_ login: LoginRecord, _ request: LoginRequest, service: AccessTokenService?) {
        (self.login, self.service) = (login, service)
        if let connection = request.heldBy { held[request.session.detached(), default: []].insert(connection) }
    }

    /// The first log-in failed. It may have come half way: whoever is next looks at the disk.
    mutating func loginFailed() { phase = .unknown }

    /// What a refresh brought becomes part of the log-in that has that service. Nil where that one is over.
    mutating func keepTokens(of service: AccessTokenService) throws(CacheFailure) -> LoginRecord? {
        guard self.service === service, let tokens = service.worthKeeping else { return nil }
        login.tokens = tokens
        if case .broken(_, let reason) = phase { throw Self.closed(reason) }
        return login
    }

    // MARK: Endings

    /// What is to be done for a PURGE or LOGOUT.
    enum InvalidationStep {
        /// Nothing of the user is there.
        case nothing
        /// A session goes, and so many stay: this is what is left, to be made durable.
        case endSession(OpaqueID, LoginRecord, remaining: Int)
        /// Close the cache, unless it is closed or cannot be read, then make that durable.
        case end(UserCache?, Invalidation)
    }

    mutating func end(_ invalidation: Invalidation) -> InvalidationStep {
        switch phase {
        case .open(let cache):
            (phase, closed) = (.invalidation, cache)
            return .end(cache, invalidation)
        case .broken(let earlier, _):
            // A log-out that is owed stays owed, whatever is asked for after it.
            return .end(nil, earlier == .logout ? .logout : invalidation)
        case .unknown where invalidation == .logout:
            // It cannot be read, so nothing of it is open: what is left is to destroy it.
            return .end(nil, .logout)
        case .loggedOut, .invalidation, .unknown, .stopped:
            return .nothing
        }
    }

    /// A log-out of one session, or of all (nil). The last one ends the cache.
    mutating func logOut(_ session: OpaqueID?) -> InvalidationStep {
        guard let session else { return end(.logout) }
        switch phase {
        case .broken(.purge, _):
            // What is left of the sessions is known only when the purge that failed is done: to be asked again then.
            return .end(nil, .purge)
        case .open where !sessions.subtracting([session]).isEmpty:
            var after = login
            after.sessions.remove(session)
            return .endSession(session, after, remaining: sessions.subtracting([session]).count)
        default:
            return end(.logout)
        }
    }

    /// That is durable.
    mutating func sessionEnded(_ session: OpaqueID, _ login: LoginRecord) {
        self.login = login
        held[session] = nil
    }

    /// A connection that held a session is gone. Nil where nothing ends with it.
    mutating func release(_ session: OpaqueID, connection: UInt64) -> InvalidationStep? {
        guard held[session]?.remove(connection) != nil else { return nil }
        if held[session]?.isEmpty == true { held[session] = nil }
        // While a purge is owed nothing else remembers that this session is over: the user is owed a log-out then.
        return sessions.isEmpty ? end(.logout) : nil
    }

    /// The log-in is over, or about to be: in either case nothing is downloaded in the user's name any more (I11).
    mutating func endTokens() -> AccessTokenService? {
        login.tokens = LoginTokens()
        defer { service = nil }
        return service
    }

    /// The ending is durable. After a purge the new generation is to be opened.
    /// - Returns: what was left behind, and the next try, which is to be called off.
    mutating func ended(_ invalidation: Invalidation) -> (closed: UserCache?, retry: (any Timer)?) {
        defer { (closed, retry) = (nil, nil) }
        if invalidation == .logout {
            phase = .loggedOut
            login = LoginRecord(loggedInAt: 0)
            held = [:]
        }
        return (closed, retry)
    }

    /// The ending could not be made durable. Whether it is the first failure: then it is to be tried again.
    mutating func failed(_ invalidation: Invalidation, reason: String) -> Bool {
        defer { phase = .broken(invalidation, reason: reason) }
        return if case .broken = phase { false } else { true }
    }

    // MARK: Memory

    /// What a user who is logged in takes up, measured: 5.1 KB, and 2.1 KB for each held session of 500 bytes.
    func bytes(of owner: Owner, willBeLoggedIn: Bool = false) -> Int {
        guard willBeLoggedIn || isLoggedIn else { return 0 }
        let tokens = (login.tokens.access?.count ?? 0) + (login.tokens.refresh?.count ?? 0)
        let kept = login.sessions.reduce(0) { $0 + 150 + $1.count }
        // Without the id, which the connection that holds it has as well, twice.
        let held = held.reduce(0) { $0 + $1.value.count * (600 + 3 * $1.key.count) }
        // A user's name stands with its entry and with its cache.
        return 5_100 + 2 * owner.user.count + tokens + kept + held
    }
}
