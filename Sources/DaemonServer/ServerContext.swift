import CacheCore
import Logging
import SocketLoops
import ThumbcacheProtocol

/// The dependencies of every connection.
public final class ServerContext: Sendable {
    let services: CacheServices
    public let sessions: UserSessions
    public let invalidationService: InvalidationService
    /// nil without a directory for pending-logout files.
    let pendingLogouts: PendingLogouts?
    let info: ServerInfo
    let metrics: ServerMetrics
    let latencies: Latencies
    let registry: PeerRegistry
    let loops: SocketLoopGroup
    /// Called for each connection, since a reload may change the limits.
    let limits: @Sendable () -> ServerLimits
    let log: Logger
    let commands = CommandTable()

    public init(
        services: CacheServices, sessions: UserSessions, invalidationService: InvalidationService,
        pendingLogouts: PendingLogouts? = nil, info: ServerInfo, metrics: ServerMetrics,
        latencies: Latencies, registry: PeerRegistry, loops: SocketLoopGroup,
        limits: @escaping @Sendable () -> ServerLimits, log: Logger
    ) {
        self.services = services
        self.sessions = sessions
        self.invalidationService = invalidationService
        self.pendingLogouts = pendingLogouts
        self.info = info
        self.metrics = metrics
        self.latencies = latencies
        self.registry = registry
        self.loops = loops
        self.limits = limits
        self.log = log
    }
}
