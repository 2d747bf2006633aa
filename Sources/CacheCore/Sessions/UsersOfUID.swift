import NIOConcurrencyHelpers
import NIOCore

/// The users of one uid: the entries in memory, and the list of all logged-in users. A subordinate uid has users of its
/// own, although it counts towards another uid's account.
///
/// The list is read from disk when it is first needed, which costs a read for each user; logins and logouts keep it
/// up to date. Safe from any thread. Each uid has a lock of its own.
final class UsersOfUID: Sendable {
    private enum Listing {
        case unread
        /// Being read, with the logins (true) and logouts (false) since the reading began.
        case reading([OpaqueID: Bool])
        case read(Set<OpaqueID>)
    }

    private struct State {
        /// The entries in memory, each with the number of tasks that use it.
        var entries: [OpaqueID: (entry: UserEntry, workers: Int)] = [:]
        var listing = Listing.unread { didSet { list = nil } }
        /// ``listing`` as an object, made on demand.
        var list: UserList?
        var readers = 0
        /// An upper bound of the number of users who are logged in or have a reservation; nil until they are counted.
        var mostUsers: Int?
        /// For logins in progress.
        var reservations = 0
        /// The number of reservations since the start.
        var reservationsMade = 0

        mutating func reserve(_ limit: Int) -> Bool {
            let most: Int? = if case .read(let users) = listing { users.count + reservations } else { mostUsers }
            guard let most, most < limit else { return false }
            mostUsers? += 1
            reservations += 1
            reservationsMade += 1
            return true
        }

        mutating func changed(_ user: OpaqueID, isLoggedIn: Bool) {
            switch listing {
            case .unread: break
            case .reading(var changes):
                changes[user] = isLoggedIn
                listing = .reading(changes)
            case .read(var users):
                // Releases the enum's reference first: otherwise the change would copy the set.
                listing = .unread
                if isLoggedIn { users.insert(user) } else { users.remove(user) }
                listing = .read(users)
            }
        }
    }

    private let reading = AsyncFIFOLock()
    private let state = NIOLockedValueBox(State())

    func entry(_ user: OpaqueID) -> UserEntry? {
        state.withLockedValue { $0.entries[user]?.entry }
    }

    var entries: [UserEntry] { state.withLockedValue { $0.entries.values.map(\.entry) } }

    /// Returns the user's entry, created if necessary, which stays in memory until ``leave(_:)``.
    func enter(_ owner: Owner, _ lease: () -> MemoryLease) -> UserEntry {
        state.withLockedValue { state in
            let entry = state.entries[owner.user]?.entry ?? UserEntry(owner: owner, memory: lease())
            state.entries[owner.user, default: (entry, 0)].workers += 1
            return entry
        }
    }

    /// Releases an entry. The entry of a user who is not logged in is removed with its last task, so that requests for
    /// unknown users do not fill the memory.
    func leave(_ entry: UserEntry) {
        state.withLockedValue { state in
            state.entries[entry.owner.user]?.workers -= 1
            guard state.entries[entry.owner.user]?.workers == 0, !entry.isLoggedIn else { return }
            state.entries[entry.owner.user] = nil
        }
    }

    /// Whether there is neither an entry nor a non-empty listing.
    var isIdle: Bool {
        state.withLockedValue { state in
            guard state.entries.isEmpty, state.readers == 0 else { return false }
            return if case .read(let users) = state.listing { users.isEmpty } else { true }
        }
    }

    /// All logged-in users, including those whose logout is not durable yet; nil while the list is not read.
    var loggedIn: Set<OpaqueID>? {
        state.withLockedValue { if case .read(let users) = $0.listing { users } else { nil } }
    }

    func list(_ lease: () -> MemoryLease) -> UserList? {
        state.withLockedValue { state in
            if let list = state.list { return list }
            guard case .read(let users) = state.listing else { return nil }
            let list = UserList(Array(users), lease())
            state.list = list
            return list
        }
    }

    /// Makes a reservation for a login, if fewer than `limit` users are logged in or have one. ``loggedIn(_:)`` or
    /// ``loginFailed()`` ends it.
    ///
    /// Without a list, `count` counts the users on disk before the first login and at the limit; logins in between are
    /// added to the last count.
    func reserve(limit: Int, count: () throws -> Int) throws -> Bool {
        let isReserved: Bool? = state.withLockedValue { state in
            if state.reserve(limit) { return true }
            return if case .read = state.listing { false } else { nil }
        }
        if let isReserved { return isReserved }
        let (inProgress, madeBefore) = state.withLockedValue { ($0.reservations, $0.reservationsMade) }
        let counted = try count()
        return state.withLockedValue { state in
            // The count may miss logins that were in progress when it began, logins that began during it, and users
            // whose logout is not durable.
            let begun = state.reservationsMade - madeBefore
            let broken = state.entries.values.count { $0.entry.isBroken }
            let most = counted + inProgress + begun + broken
            state.mostUsers = min(most, state.mostUsers ?? most)
            return state.reserve(limit)
        }
    }

    /// All logged-in users, read by `read` if necessary. Callers that come during the reading share its result.
    func loggedIn(read: () async throws(CacheFailure) -> [OpaqueID]) async throws(CacheFailure) -> Set<OpaqueID> {
        if let known = loggedIn { return known }
        state.withLockedValue { $0.readers += 1 }
        defer { state.withLockedValue { $0.readers -= 1 } }
        return try await reading.withLock { () async throws(CacheFailure) in
            if let known = loggedIn { return known }
            state.withLockedValue { $0.listing = .reading([:]) }
            do throws(CacheFailure) {
                return readingEnded(try await read())
            } catch {
                state.withLockedValue { $0.listing = .unread }
                throw error
            }
        }
    }

    private func readingEnded(_ stored: [OpaqueID]) -> Set<OpaqueID> {
        state.withLockedValue { state in
            var users = Set(stored)
            // Users with an open cache, or whose purge or logout is not durable yet, count as logged in: LOGOUT of all
            // must include them.
            for (entry, _) in state.entries.values where entry.isLoggedIn { users.insert(entry.owner.user) }
            // If a login failed meanwhile, its state on disk is unknown, so the list is not kept.
            guard case .reading(let changes) = state.listing else { return users }
            for (user, isLoggedIn) in changes {
                if isLoggedIn { users.insert(user) } else { users.remove(user) }
            }
            state.listing = .read(users)
            return users
        }
    }

    /// Records a durable login, and ends its reservation.
    func loggedIn(_ user: OpaqueID) {
        state.withLockedValue { state in
            state.changed(user, isLoggedIn: true)
            state.reservations -= 1
        }
    }

    /// Records a durable logout.
    func loggedOut(_ user: OpaqueID) {
        state.withLockedValue { $0.changed(user, isLoggedIn: false) }
    }

    /// Ends the reservation of a login that failed, perhaps after its commit: the list must be read again.
    func loginFailed() {
        state.withLockedValue { state in
            state.listing = .unread
            state.reservations -= 1
        }
    }
}

/// The users of a uid that were logged in at one moment, with the encoded reply.
public final class UserList: Sendable {
    public let users: [OpaqueID]
    private let memory: MemoryLease
    private let kept = NIOLockedValueBox<ByteBuffer?>(nil)

    /// - Parameter memory: charged for the kept reply.
    init(_ users: [OpaqueID], _ memory: MemoryLease) {
        self.users = users
        self.memory = memory
    }

    /// The reply that `render` returns, kept if the account has room: rendering costs a microsecond for every few
    /// users, and a uid with ten thousand users may request the list repeatedly.
    public func reply(_ render: ([OpaqueID]) -> ByteBuffer) -> ByteBuffer {
        kept.withLockedValue { kept in
            if let kept { return kept }
            let reply = render(users)
            if memory.reserve(reply.storageCapacity) { kept = reply }
            return reply
        }
    }
}
