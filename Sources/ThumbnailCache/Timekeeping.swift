/// Time as the domain needs it, handed in so that tests decide what time it is.
public protocol Timekeeping: Sendable {
    /// The wall clock: seconds since 1970. Cheap enough for every request.
    var now: Int64 { get }

    /// Runs `work` once, so many milliseconds from now by a clock that nobody sets, unless cancelled before.
    func after(milliseconds: Int64, _ work: @escaping @Sendable () -> Void) -> any Timer
}

/// Work that waits for its moment.
public protocol Timer: Sendable {
    /// Idempotent; without effect once the work has begun.
    func cancel()
}
