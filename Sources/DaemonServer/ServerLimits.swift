import ThumbcacheProtocol

/// What one connection, one uid and all of them together may take up.
public struct ServerLimits: Sendable, Equatable {
    /// In total, the admins' reserve included.
    public var connections: Int
    public var connectionsPerUID: Int
    /// Of ``connections``: kept free for admins, so that a log-out hook always gets in.
    public var adminConnections: Int
    /// Bytes of input of one connection that are not yet worked on.
    public var input: Int
    /// Bytes of output of one connection that its peer has not yet read.
    public var output: Int
    /// Milliseconds after which a peer is disconnected that reads nothing, or leaves a frame unfinished.
    public var stall: Int64
    /// Milliseconds for which a peer that was sent the end is read on, unless it closes before. Whoever asks and reads
    /// in turns sees the end long before. No setting: a stop takes as long, if any peer is idle.
    var linger: Int64 = 1_000
    /// Milliseconds that a peer has to read why it is refused, or closed in favour of another. No setting either.
    var farewell: Int64 = 100
    /// Requests of one uid that may wait for a download.
    public var queuePerUID: Int
    /// Users that a connection may follow.
    public var subscriptions: Int
    public var arguments: Int
    public var command: CommandLimits

    public init(
        connections: Int = 1024, connectionsPerUID: Int = 256, adminConnections: Int = 16, input: Int = 16 << 20,
        output: Int = 16 << 20, stall: Int64 = 30_000, queuePerUID: Int = 1024,
        subscriptions: Int = 1024, arguments: Int = 1024, command: CommandLimits = CommandLimits()
    ) {
        self.connections = connections
        self.connectionsPerUID = connectionsPerUID
        self.adminConnections = adminConnections
        self.input = input
        self.output = output
        self.stall = stall
        self.queuePerUID = queuePerUID
        self.subscriptions = subscriptions
        self.arguments = arguments
        self.command = command
    }

    var request: RequestLimits {
        let longest = max(command.image, command.token, command.id, CommandLimits.url)
        return RequestLimits(arguments: arguments, argumentBytes: longest, frameBytes: input)
    }
}
