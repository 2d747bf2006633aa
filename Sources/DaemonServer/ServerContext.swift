import CacheCore
import Logging
import SocketLoops
import ThumbcacheProtocol

/// What every connection works with. Made once, where all is wired.
public final class ServerContext: Sendable {
    let services: CacheServices
    public let sessions: UserSessions
    public let invalidationService: InvalidationService
    /// nil where no hook leaves markers.
    let pendingLogouts: PendingLogouts?
    let info: ServerInfo
    let metrics: ServerMetrics
    let latencies: Latencies
    let registry: PeerRegistry
    /// Those that connections live on.
    let loops: SocketLoopGroup
    /// Looked at anew for each connection, since a reload may change them.
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
