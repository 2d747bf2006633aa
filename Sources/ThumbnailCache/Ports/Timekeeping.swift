/// Time as the domain needs it, handed in so that tests decide what time it is.
public protocol Timekeeping: Sendable {
    /// Seconds since 1970: the wall clock as it stood at the start, and from then on a clock that nobody sets and that
    /// does not stop while the machine sleeps. So whoever sets the machine's clock makes nothing expire and nothing immortal (F14).
    /// Cheap enough for every request.
    var now: Int64 { get }

    /// The wall clock at this moment: seconds since 1970. To compare with what other machines say of the time, and for nothing else.
    var wallClock: Int64 { get }

    /// Runs `work` once, so many milliseconds from now by a clock that nobody sets, unless cancelled before.
    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any Timer
}

/// Work that waits for its moment.
public protocol Timer: Sendable {
    /// Idempotent; without effect once the work has begun.
    func cancel()
}
