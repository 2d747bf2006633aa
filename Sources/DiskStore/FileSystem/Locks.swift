import NIOConcurrencyHelpers

/// A fixed number of locks that stand for any number of things: two things may share one, one thing always has the
/// same. Nobody takes two at a time.
struct StripedLocks: Sendable {
    private let locks: [NIOLock]

    init(count: Int) { locks = (0..<count).map { _ in NIOLock() } }

    func withLock<Result>(for thing: some Hashable, _ body: () throws -> Result) rethrows -> Result {
        try locks[Int(UInt(bitPattern: thing.hashValue) % UInt(locks.count))].withLock(body)
    }
}

/// Keeps the directories of a uid while somebody is about to make something in them: they go when they are empty,
/// and between making one and filling it it is.
final class DirectoryClaims: Sendable {
    /// How many are at it, by uid.
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

    /// Runs `body` if nobody is at it, and nobody can begin meanwhile: for two or three system calls.
    func ifUnclaimed(_ uid: UInt32, _ body: () throws -> Void) rethrows {
        try claims.withLockedValue { claims in
            if claims[uid] == nil { try body() }
        }
    }
}
