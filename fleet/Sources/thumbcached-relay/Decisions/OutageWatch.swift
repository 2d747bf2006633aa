/// Measures how long the stream has been unreachable. Each outage triggers one action; entries published meanwhile are
/// read when it ends.
struct OutageWatch: Sendable {
    /// Milliseconds.
    let grace: Int64
    private var lastContact: Int64
    private var isHandled = false

    /// - Parameter now: milliseconds, on a monotonic clock.
    init(grace: Int64, now: Int64) { (self.grace, lastContact) = (grace, now) }

    mutating func contact(at now: Int64) { (lastContact, isHandled) = (now, false) }

    /// Whether the stream was reached at or after `moment`.
    func hasContact(since moment: Int64) -> Bool { lastContact >= moment }

    /// Whether the grace period is over and the outage not yet handled.
    func isDue(at now: Int64) -> Bool { !isHandled && now - lastContact >= grace }

    /// Records that the daemon has confirmed the action.
    mutating func handled() { isHandled = true }
}
