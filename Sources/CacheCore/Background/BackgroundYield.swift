import Synchronization

/// Lets others have the processor: called after each small step of work that nobody waits for, and never with a lock
/// held that somebody who is waited for may need.
public typealias YieldToOthers = @Sendable () -> Void

/// Yields as ``YieldToOthers`` says, but never for good.
///
/// On Linux from 6.6 on, a thread that has been given a processor mostly keeps it for its slice, some milliseconds,
/// even where an event loop is woken that ought to run there. docs/performance.md has figures, and what else was tried.
///
/// Where programs that compute share the processor, each yield lasts as long as their slices, and 50,000 names would
/// take ten minutes. So one that has lasted is followed by a while, a quarter as long, in which this returns at once.
/// Safe from any thread. Costs a look at the clock or two and, mostly, a system call of less than a microsecond.
public final class BackgroundYield: Sendable {
    /// Nanoseconds after which a yield was for a program that computes; an event loop is done with a hit in 20,000.
    static let long: Int64 = 1_000_000
    /// The part of it that the caller then has for itself. A part, so that two yielding threads do not starve others.
    static let share: Int64 = 4
    /// Nanoseconds that this is at most.
    static let longestShare: Int64 = 2_000_000

    private let now: @Sendable () -> Int64
    private let giveWay: @Sendable () -> Void
    private let undisturbedUntil = Atomic<Int64>(.min)

    /// - Parameters:
    ///   - now: nanoseconds, from a clock that is never set.
    ///   - giveWay: lets any thread run that is ready to.
    public init(now: @escaping @Sendable () -> Int64, giveWay: @escaping @Sendable () -> Void) {
        self.now = now
        self.giveWay = giveWay
    }

    public func yield() {
        let before = now()
        guard before >= undisturbedUntil.load(ordering: .relaxed) else { return }
        giveWay()
        let after = now()
        let taken = after - before
        guard taken >= Self.long else { return }
        undisturbedUntil.store(after + min(taken / Self.share, Self.longestShare), ordering: .relaxed)
    }
}
