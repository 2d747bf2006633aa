/// What LOGOUT and PURGE answer. Whoever holds one has the promise: no byte stored or downloaded by work that began
/// earlier is ever served again (I3), also after a kill or a power cut (I4).
public struct Receipt: Sendable, Equatable {
    /// Caches ended or emptied.
    public var users = 0
    /// What was held; nil where it was not yet counted after a start.
    public var usage: Usage? = Usage()
    /// Downloads stopped.
    public var cancelled = 0
    /// Sessions that remain.
    public var sessions = 0
    public var epoch: UInt64 = 0

    public init() {}

    init(users: Int, usage: Usage?, cancelled: Int, sessions: Int, epoch: UInt64) {
        self.users = users
        self.usage = usage
        self.cancelled = cancelled
        self.sessions = sessions
        self.epoch = epoch
    }

    /// Adds what another user of the same uid had.
    mutating func add(_ other: Receipt) {
        users += other.users
        usage = usage.flatMap { usage in other.usage.map { usage + $0 } }
        cancelled += other.cancelled
        sessions += other.sessions
        epoch = max(epoch, other.epoch)
    }
}
