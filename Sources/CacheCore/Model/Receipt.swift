import NIOConcurrencyHelpers

/// The reply to LOGOUT and PURGE. No byte that earlier work stored or downloaded is served after it (I3), not even
/// after a crash or a power failure (I4).
public struct Receipt: Sendable, Equatable {
    public internal(set) var users = 0
    /// The images removed; nil if they were not yet counted after a start.
    public internal(set) var usage: Usage? = Usage()
    public internal(set) var cancelled = 0
    public internal(set) var sessions = 0
    public internal(set) var epoch: UInt64 = 0

    /// Adds another user's receipt. The epoch is the greatest of both.
    mutating func add(_ other: Receipt) {
        users += other.users
        usage = usage.flatMap { usage in other.usage.map { usage + $0 } }
        cancelled += other.cancelled
        sessions += other.sessions
        epoch = max(epoch, other.epoch)
    }
}

/// Numbers that increase with every LOGIN, LOGOUT and PURGE of a uid, also across restarts.
///
/// An epoch is the store's base plus a count of the uid. The base is 2^32 times the number of this start, durable
/// before a client is served. An epoch needs no write, never decreases after a crash, and shows nothing of other uids.
public final class Epochs: Sendable {
    private let base: UInt64
    private let counts = NIOLockedValueBox<[UInt32: UInt64]>([:])

    public init(base: UInt64) {
        self.base = base
    }

    public func next(of uid: UInt32) -> UInt64 {
        base
            + counts.withLockedValue { counts in
                counts[uid, default: 0] += 1
                return counts[uid, default: 0]
            }
    }

    /// The newest epoch of a uid in this start.
    public func current(of uid: UInt32) -> UInt64 {
        base + counts.withLockedValue { $0[uid, default: 0] }
    }
}
