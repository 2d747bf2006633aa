import ThumbcacheProtocol

/// Limits of a connection, of one account's connections and of all together.
public struct ServerLimits: Sendable, Equatable {
    public var connections: Int
    public var connectionsPerAccount: Int
    /// Connections that are reserved for admins, so that a logout hook can always connect.
    public var adminConnections: Int
    /// Limits of a request. ``RequestLimits/payloadBytes`` also limits a connection's unprocessed input.
    public var request: RequestLimits
    /// Bytes of output of one connection that its peer has not read.
    public var output: Int
    /// Milliseconds after which a peer that reads nothing, or leaves a frame unfinished, is disconnected.
    public var stall: Int64
    /// Milliseconds for which input of a peer is still read after the end was sent. The daemon's stop takes that long
    /// if a peer is idle.
    var linger: Int64 = 1_000
    /// Milliseconds in which a refused or evicted peer can read the reason.
    var farewell: Int64 = 100
    /// GETs of one account that may wait for the disk, a rendition or a download, in flight included.
    public var queuePerAccount: Int
    /// Users whose events one connection can receive.
    public var subscriptions: Int

    public init(
        connections: Int = 1024, connectionsPerAccount: Int = 256, adminConnections: Int = 16,
        request: RequestLimits = RequestLimits(), output: Int = 16 << 20, stall: Int64 = 30_000,
        queuePerAccount: Int = 1024, subscriptions: Int = 1024
    ) {
        self.connections = connections
        self.connectionsPerAccount = connectionsPerAccount
        self.adminConnections = adminConnections
        self.request = request
        self.output = output
        self.stall = stall
        self.queuePerAccount = queuePerAccount
        self.subscriptions = subscriptions
    }
}
