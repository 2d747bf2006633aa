import LinuxSupport
import NIOConcurrencyHelpers

/// The state of one user in memory. Changes of durable state require the entry's lock.
final class UserEntry: Sendable {
    let owner: Owner
    let lock = AsyncFIFOLock()
    let state = NIOLockedValueBox(UserState())
    /// The memory that the user occupies while logged in, charged to the account.
    let memory: MemoryLease

    init(owner: Owner, memory: MemoryLease) {
        self.owner = owner
        self.memory = memory
    }

    var phase: UserState.Phase { state.withLockedValue { $0.phase } }

    var cache: UserCache? { state.withLockedValue { $0.cache } }

    var isLoggedIn: Bool { state.withLockedValue { $0.isLoggedIn } }

    /// Whether a purge or logout could not be made durable.
    var isBroken: Bool { if case .broken = phase { true } else { false } }

    var sessions: Int { state.withLockedValue { $0.sessions.count } }

    /// Changes the state and the memory charged for it. Requires the entry's lock.
    @discardableResult
    func change<Result>(_ body: (inout UserState) -> Result) -> Result {
        let (result, bytes) = state.withLockedValue { state in (body(&state), state.bytes(of: owner)) }
        memory.set(to: bytes)
        return result
    }

    /// Reserves memory for the user before a login commits.
    /// - Throws: `busy` if the account has no room.
    func reserveMemory(for login: LoginRecord, _ request: LoginRequest) throws(CacheFailure) {
        let bytes = state.withLockedValue { state in
            var after = state
            after.loggedIn(login, request, service: nil)
            return after.bytes(of: owner, willBeLoggedIn: true)
        }
        guard memory.change(to: bytes) else { throw .busy(memory.refusal) }
    }
}
