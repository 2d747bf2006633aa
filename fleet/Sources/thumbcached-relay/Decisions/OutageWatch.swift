/// For how long a relay has not seen the stream, and whether something is to be done about it. Each outage is acted on
/// once: what was published in it is read when it is over.
struct OutageWatch: Sendable {
    /// Milliseconds.
    let grace: Int64
    private var lastContact: Int64
    private var isHandled = false

    /// - Parameter now: milliseconds, by any clock that nobody sets.
    init(grace: Int64, now: Int64) { (self.grace, lastContact) = (grace, now) }

    mutating func contact(at now: Int64) { (lastContact, isHandled) = (now, false) }

    /// Whether the stream was seen at that moment or since.
    func hasContact(since moment: Int64) -> Bool { lastContact >= moment }

    /// Whether the grace is over and nothing was done yet.
    func isDue(at now: Int64) -> Bool { !isHandled && now - lastContact >= grace }

    /// It was done, durably.
    mutating func handled() { isHandled = true }
}
