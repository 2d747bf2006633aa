import NIOConcurrencyHelpers

// What a user who is logged in takes up, measured: 5.1 KB by itself, and 2.1 KB for each session of 500 bytes that a connection holds.

extension UserEntry {
    private static var bytesOfUser: Int { 5_100 }
    /// Without the id, which the connection that holds it has as well, twice.
    private static var bytesOfHeldSession: Int { 600 }
    private static var bytesOfSession: Int { 150 }

    private static func bytes(of owner: Owner, _ login: LoginRecord) -> Int {
        let tokens = (login.tokens.access?.count ?? 0) + (login.tokens.refresh?.count ?? 0)
        let sessions = login.sessions.reduce(0) { $0 + bytesOfSession + $1.count }
        // A user's name stands with its entry and with its cache.
        return bytesOfUser + 2 * owner.user.count + tokens + sessions
    }

    private static func bytes(of session: OpaqueID, heldBy connections: Int) -> Int {
        connections * (bytesOfHeldSession + 3 * session.count)
    }

    private static func bytes(_ held: [OpaqueID: Set<UInt64>]) -> Int {
        held.reduce(0) { $0 + bytes(of: $1.key, heldBy: $1.value.count) }
    }

    /// Takes what the user will take up once a log-in is done.
    /// - Throws: `busy` where there is no room.
    func takeMemory(for login: LoginRecord, and request: LoginRequest) throws(CacheFailure) {
        let held = state.withLockedValue { Self.bytes($0.held) }
        let more = request.heldBy == nil ? 0 : Self.bytes(of: request.session, heldBy: 1)
        guard memory.change(to: Self.bytes(of: owner, login) + held + more) else { throw .busy(memory.refusal) }
    }

    /// Counts what the user takes up now.
    func settleMemory() {
        memory.settle(at: state.withLockedValue { Self.bytes(of: owner, $0.login) + Self.bytes($0.held) })
    }
}

extension UserSessions {
    /// Whether a user who is not in memory may be looked for on disk. Not for what ends one, which needs no room.
    /// - Throws: `busy` where the uid has no room for another.
    func checkRoom(for owner: Owner) throws(CacheFailure) {
        guard entry(owner) == nil, !services.budget.hasRoom(for: 1, of: owner.uid) else { return }
        throw .busy(services.budget.refusal(for: owner.uid))
    }
}
