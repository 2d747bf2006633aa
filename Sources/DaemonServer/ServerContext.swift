import Logging
import NIOCore
import RESP
import SocketLoops
import ThumbcacheProtocol
import ThumbnailCache

/// What every connection works with. Made once, where all is wired.
public struct ServerContext: Sendable {
    public let sessions: UserSessions
    public let logout: EndingService
    /// nil where no hook leaves markers.
    public let pendingLogouts: PendingLogouts?
    /// Where PUTs write.
    public let disk: any BlockingPool
    /// Where tasks run.
    public let tasks: any TaskExecutor
    public let time: any Timekeeping
    public let info: ServerInfo
    public let registry: PeerRegistry
    /// What connections hold counts here.
    public let budget: MemoryBudget
    public let version: String
    /// Looked at anew for each connection, since a reload may change them.
    public let limits: @Sendable () -> ServerLimits
    public let log: Logger
    let commands = CommandTable()
    /// Those that connections live on.
    var loops: [SocketLoop] = []

    public init(
        sessions: UserSessions, logout: EndingService, pendingLogouts: PendingLogouts? = nil,
        disk: any BlockingPool, tasks: any TaskExecutor, time: any Timekeeping, info: ServerInfo,
        registry: PeerRegistry, budget: MemoryBudget, version: String,
        limits: @escaping @Sendable () -> ServerLimits, log: Logger
    ) {
        self.sessions = sessions
        self.logout = logout
        self.pendingLogouts = pendingLogouts
        self.disk = disk
        self.tasks = tasks
        self.time = time
        self.info = info
        self.registry = registry
        self.budget = budget
        self.version = version
        self.limits = limits
        self.log = log
    }

    // The commands that change who is logged in. Each runs to its end before the next command of its connection starts.

    func logIn(_ owner: Owner, _ request: LoginRequest) async throws(CommandError) {
        do {
            // A log-out that the uid is owed comes first, lest it end this log-in.
            try await pendingLogouts?.honour(uid: owner.uid)
            try await sessions.logIn(owner, request)
        } catch {
            throw CommandError(error)
        }
    }

    func logOut(_ command: LogoutCommand, peer: Peer) async throws(CommandError) -> Receipt {
        let uid = try self.uid(command.uid, for: peer)
        let session = command.session.map { OpaqueID($0) }
        do {
            switch command.target {
            case .all: return try await logout.logOutAll(uid: uid, session: session)
            case .user(let user):
                return try await logout.logOut(Owner(uid: uid, user: OpaqueID(user)), session: session)
            }
        } catch {
            throw CommandError(error)
        }
    }

    func purge(_ command: PurgeCommand, peer: Peer) async throws(CommandError) -> Receipt {
        let uid = try self.uid(command.uid, for: peer)
        let profiles = command.profiles.map { OpaqueID($0) }
        do {
            switch command.target {
            case .all: return try await logout.purgeAll(uid: uid, profiles: profiles)
            case .user(let user):
                return try await logout.purge(Owner(uid: uid, user: OpaqueID(user)), profiles: profiles)
            }
        } catch {
            throw CommandError(error)
        }
    }

    /// Returns when every event loop has done what it had before it. What a cache of another loop had answered when it ended has been
    /// handed to its connection by then, and not behind the receipt (I3).
    func settleLoops() async throws {
        guard loops.count > 1 else { return }
        for loop in loops { try await loop.submit {}.get() }
    }

    /// Whom a command is about: the caller, or for admins whoever it names.
    private func uid(_ named: UInt32?, for peer: Peer) throws(CommandError) -> UInt32 {
        guard let named, named != peer.uid else { return peer.uid }
        guard peer.isAdmin else {
            throw CommandError(
                .denied, "UID \(named): you are uid \(peer.uid), and only admins may name another (access.admins)")
        }
        return named
    }
}

extension LoginRequest {
    /// Copies all it takes of the command, so that what that came in can be wiped.
    /// - Parameter connection: the one that a session with HOLD ends with.
    init(_ command: LoginCommand, connection: UInt64) {
        self.init(
            session: command.session.map { OpaqueID($0).detached() } ?? OpaqueID("default"),
            heldBy: command.hold ? connection : nil, origin: command.origin,
            token: command.token.map { Secret($0.readableBytesView) },
            refresh: command.refresh.map { Secret($0.readableBytesView) })
    }
}
