import NIOConcurrencyHelpers

/// What LOGOUT and PURGE answer. Whoever holds one has the promise: no byte stored or downloaded by work that began
/// earlier is ever served again (I3), also after a kill or a power cut (I4).
public struct Receipt: Sendable, Equatable {
    /// Caches ended or emptied.
    public internal(set) var users = 0
    /// What was held; nil where it was not yet counted after a start.
    public internal(set) var usage: Usage? = Usage()
    /// Downloads stopped.
    public internal(set) var cancelled = 0
    /// Sessions that remain.
    public internal(set) var sessions = 0
    public internal(set) var epoch: UInt64 = 0

    /// Adds what another user had. Of several uids the epoch is the greatest.
    mutating func add(_ other: Receipt) {
        users += other.users
        usage = usage.flatMap { usage in other.usage.map { usage + $0 } }
        cancelled += other.cancelled
        sessions += other.sessions
        epoch = max(epoch, other.epoch)
    }
}

/// The numbers that grow with every LOGIN, LOGOUT and PURGE of a uid, also across restarts.
///
/// An epoch is the store's base, which is as a rule the number of this start, made durable before anybody is served,
/// times 2^32, plus a count of the uid's own. So no epoch costs a write, none goes back after a crash, and nobody can
/// tell from it what others do. It stays below 2^53 for the first two million starts.
public final class Epochs: Sendable {
    private let base: UInt64
    private let counts = NIOLockedValueBox<[UInt32: UInt64]>([:])

    /// - Parameter base: as ``ImageStore/epochBase``.
    public init(base: UInt64) {
        self.base = base
    }

    /// The next epoch of a uid.
    public func next(of uid: UInt32) -> UInt64 {
        base
            + counts.withLockedValue { counts in
                counts[uid, default: 0] += 1
                return counts[uid, default: 0]
            }
    }

    /// The newest epoch of a uid that this start knows.
    public func current(of uid: UInt32) -> UInt64 {
        base + counts.withLockedValue { $0[uid, default: 0] }
    }
}
