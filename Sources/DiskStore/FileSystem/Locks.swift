import NIOConcurrencyHelpers

/// A fixed number of locks for any number of keys. Different keys may share a lock, so no thread holds two at a time.
struct StripedLocks: Sendable {
    private let locks: [NIOLock]

    init(count: Int) { locks = (0..<count).map { _ in NIOLock() } }

    func withLock<Result>(for thing: some Hashable, _ body: () throws -> Result) rethrows -> Result {
        try locks[Int(UInt(bitPattern: thing.hashValue) % UInt(locks.count))].withLock(body)
    }
}

/// Protects the directories of a uid from removal between their creation and their first entry.
final class DirectoryClaims: Sendable {
    /// Number of operations in progress, by uid.
    private let claims = NIOLockedValueBox<[UInt32: Int]>([:])

    func claiming<Result>(_ uid: UInt32, _ body: () throws -> Result) rethrows -> Result {
        claims.withLockedValue { $0[uid, default: 0] += 1 }
        defer {
            claims.withLockedValue { claims in
                claims[uid, default: 1] -= 1
                if claims[uid] == 0 { claims[uid] = nil }
            }
        }
        return try body()
    }

    /// Runs `body` if no operation on the uid is in progress, and blocks new ones meanwhile.
    func ifUnclaimed(_ uid: UInt32, _ body: () throws -> Void) rethrows {
        try claims.withLockedValue { claims in
            if claims[uid] == nil { try body() }
        }
    }
}
