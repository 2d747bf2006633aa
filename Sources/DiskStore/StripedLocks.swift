import NIOConcurrencyHelpers

/// A fixed number of locks that stand for any number of things: two things may share one, one thing always has the same.
/// Nobody takes two at a time.
struct StripedLocks: Sendable {
    private let locks: [NIOLock]

    init(count: Int) {
        locks = (0..<count).map { _ in NIOLock() }
    }

    func withLock<Result>(for thing: some Hashable, _ body: () throws -> Result) rethrows -> Result {
        try locks[Int(UInt(bitPattern: thing.hashValue) % UInt(locks.count))].withLock(body)
    }
}
