import NIOConcurrencyHelpers

/// Keeps the directories of a uid in place while somebody is about to make something in them: they go when they are empty,
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
