import NIOConcurrencyHelpers

/// One user as the daemon knows it at this moment. What changes it waits its turn.
final class UserEntry: Sendable {
    enum Phase: Sendable {
        /// Not yet looked up on disk.
        case unknown
        case loggedOut
        case open(UserCache)
        /// Being purged or logged out: nobody may read until that is durable.
        case ending
        /// An ending could not be made durable (I4): the user is closed to all, and it is tried again.
        case broken(Ending, reason: String)
        /// The daemon is stopping: nobody is served any more, and what the disk says stays.
        case stopped
    }

    /// What an ending is to lead to.
    enum Ending: Sendable, Equatable {
        case purge
        case logout
    }

    struct State: Sendable {
        var phase = Phase.unknown
        var login = LoginRecord(loggedInAt: 0)
        /// The login's tokens as downloads use them; a purge leaves them be, each log-in has its own.
        var tokens = AccessTokenService()
        /// Sessions that end with a connection, and the connections that hold them.
        var held: [OpaqueID: Set<UInt64>] = [:]
        /// A generation that was closed and whose end is not yet durable.
        var closed: UserCache?
        /// When the end that is owed will be tried again.
        var retry: (any Timer)?
        /// Who is working with this entry; it stays in the map until nobody is.
        var users = 0
    }

    let owner: Owner
    let lock = AsyncFIFOLock()
    let state = NIOLockedValueBox(State())
    /// What is kept of the user while it is logged in; goes with the entry.
    let memory: MemoryLease

    init(owner: Owner, memory: MemoryLease) {
        self.owner = owner
        self.memory = memory
    }

    var phase: Phase {
        get { state.withLockedValue { $0.phase } }
        set { state.withLockedValue { $0.phase = newValue } }
    }

    /// Sessions that are open, held or kept.
    var sessions: Set<OpaqueID> {
        state.withLockedValue { $0.login.sessions.union($0.held.keys) }
    }
}
