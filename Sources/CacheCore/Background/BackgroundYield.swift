import Synchronization

/// Yields the processor. Called after each step of background work, without locks that a request may need.
public typealias YieldToOthers = @Sendable () -> Void

/// Yields the processor after steps of background work, but keeps a guaranteed share of it. Safe from any thread.
///
/// Since Linux 6.6, a running thread usually keeps the processor for its time slice of some milliseconds, even when an
/// event loop wakes up that should run there. Next to programs that compute, each yield lasts as long as their time
/// slices, and a scan of 50,000 names would take ten minutes. So calls after a long yield return at once for a quarter
/// of its duration.
public final class BackgroundYield: Sendable {
    /// Nanoseconds from which a yield is long: another program computes. An event loop serves a hit in 20,000.
    static let long: Int64 = 1_000_000
    /// A long yield's duration divided by this is the time without yields. Two yielding threads use only a fraction.
    static let share: Int64 = 4
    /// The longest time without yields, in nanoseconds.
    static let longestShare: Int64 = 2_000_000

    private let now: @Sendable () -> Int64
    private let giveWay: @Sendable () -> Void
    private let undisturbedUntil = Atomic<Int64>(.min)

    /// - Parameter now: nanoseconds of a monotonic clock.
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
