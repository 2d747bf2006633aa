import NIOConcurrencyHelpers
import NIOCore

/// The users of one uid: those who were named since the start, and all who are logged in.
///
/// Who is logged in is read from disk when it is first asked for, which costs a read for each user; log-ins and
/// log-outs keep it right from then on. Safe from any thread, and no uid waits for the lock of another.
final class UsersOfUID: Sendable {
    private enum Listing {
        case unread
        /// Being read, with what has changed since that began: who logged in, and who logged out.
        case reading([OpaqueID: Bool])
        case read(Set<OpaqueID>)
    }

    private struct State {
        /// Those who were named, each with how many work with it: it stays until nobody does.
        var entries: [OpaqueID: (entry: UserEntry, workers: Int)] = [:]
        var listing = Listing.unread { didSet { list = nil } }
        /// What ``listing`` has, once somebody asked.
        var list: UserList?
        /// Who waits for the listing, or reads it.
        var readers = 0
    }

    private let reading = AsyncFIFOLock()
    private let state = NIOLockedValueBox(State())

    // MARK: Those who were named

    func entry(_ user: OpaqueID) -> UserEntry? {
        state.withLockedValue { $0.entries[user]?.entry }
    }

    var entries: [UserEntry] { state.withLockedValue { $0.entries.values.map(\.entry) } }

    /// The user's entry, made if there is none, for somebody who works with it from now on.
    func enter(_ owner: Owner, _ lease: () -> MemoryLease) -> UserEntry {
        state.withLockedValue { state in
            let entry = state.entries[owner.user]?.entry ?? UserEntry(owner: owner, memory: lease())
            state.entries[owner.user, default: (entry, 0)].workers += 1
            return entry
        }
    }

    /// Forgets an entry that says nothing once nobody works with it, so that asking for strangers fills no memory.
    func leave(_ entry: UserEntry) {
        state.withLockedValue { state in
            state.entries[entry.owner.user]?.workers -= 1
            guard state.entries[entry.owner.user]?.workers == 0, !entry.isLoggedIn else { return }
            state.entries[entry.owner.user] = nil
        }
    }

    /// Whether nothing would be lost with all of it.
    var isIdle: Bool {
        state.withLockedValue { state in
            guard state.entries.isEmpty, state.readers == 0 else { return false }
            return if case .read(let users) = state.listing { users.isEmpty } else { true }
        }
    }

    // MARK: Those who are logged in

    /// Everybody who is logged in, also who is owed a log-out; nil while that is not known.
    var loggedIn: Set<OpaqueID>? {
        state.withLockedValue { if case .read(let users) = $0.listing { users } else { nil } }
    }

    /// The same as one object until it changes.
    func list(_ lease: () -> MemoryLease) -> UserList? {
        state.withLockedValue { state in
            if let list = state.list { return list }
            guard case .read(let users) = state.listing else { return nil }
            let list = UserList(Array(users), lease())
            state.list = list
            return list
        }
    }

    /// Everybody who is logged in, read by `read` if it is not known. Whoever comes while it is read shares the result.
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
                forgetListing()
                throw error
            }
        }
    }

    private func readingEnded(_ stored: [OpaqueID]) -> Set<OpaqueID> {
        state.withLockedValue { state in
            var users = Set(stored)
            // Who is open here, being ended, or owed a log-out is logged in: LOGOUT of all must not pass over it.
            for (entry, _) in state.entries.values where entry.isLoggedIn { users.insert(entry.owner.user) }
            // Else a log-in failed meanwhile, and whether that one is on disk was not to be known.
            guard case .reading(let changes) = state.listing else { return users }
            for (user, isLoggedIn) in changes {
                if isLoggedIn { users.insert(user) } else { users.remove(user) }
            }
            state.listing = .read(users)
            return users
        }
    }

    /// A log-in, or a log-out, is durable.
    func changed(_ user: OpaqueID, isLoggedIn: Bool) {
        state.withLockedValue { state in
            switch state.listing {
            case .unread: break
            case .reading(var changes):
                changes[user] = isLoggedIn
                state.listing = .reading(changes)
            case .read(var users):
                // Taken out, lest the set be copied for the change.
                state.listing = .unread
                if isLoggedIn { users.insert(user) } else { users.remove(user) }
                state.listing = .read(users)
            }
        }
    }

    /// A log-in failed half-way: only the disk knows what came of it.
    func forgetListing() {
        state.withLockedValue { $0.listing = .unread }
    }
}

/// The users of a uid that were logged in at one moment, and the reply that says so.
public final class UserList: Sendable {
    public let users: [OpaqueID]
    private let memory: MemoryLease
    private let kept = NIOLockedValueBox<ByteBuffer?>(nil)

    /// - Parameter memory: what is kept counts there.
    init(_ users: [OpaqueID], _ memory: MemoryLease) {
        self.users = users
        self.memory = memory
    }

    /// What `render` made of the users when this was first asked for: it costs microseconds for each ten of them, and
    /// one uid can have ten thousand, and ask again and again. Kept if the uid has room for it.
    public func reply(_ render: ([OpaqueID]) -> ByteBuffer) -> ByteBuffer {
        kept.withLockedValue { kept in
            if let kept { return kept }
            let reply = render(users)
            if memory.take(reply.storageCapacity) { kept = reply }
            return reply
        }
    }
}
