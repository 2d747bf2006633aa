/// The stale images that are not asked about behind for a moment, since the last time it failed; in bounded number.
///
/// The fetcher does not ask a host that fails. This is for what says nothing against the host, a page to log in on or an image
/// that is too large: every GET of a stale image would else begin another download of it.
struct RevalidationBackoff: Sendable {
    /// Seconds.
    private static let backoff = Backoff(base: 1, most: 60)

    private struct Pause: Sendable {
        /// Seconds since 1970. A moment before that means that the clock was set back: then it does not count (F14).
        let since: Int64
        /// In a row.
        let failures: Int

        private var length: Int64 { backoff.ceiling(attempt: failures) }
        /// Until when a failure is the next in a row.
        var end: Int64 { since + length + backoff.most }
        func holds(at now: Int64) -> Bool { since <= now && now < since + length }
        func counts(at now: Int64) -> Bool { since <= now && now < end }
    }

    private var notes: ExpiringSlotMap<Pause>

    /// - Parameters:
    ///   - limit: how many are remembered at most.
    ///   - memory: what they count against.
    init(limit: Int, memory: MemoryLease) {
        notes = ExpiringSlotMap(limit: limit, memory: memory)
    }

    /// Whether it is too early to ask again.
    func holds(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.holds(at: now) } ?? false
    }

    /// Asking came to nothing.
    mutating func failed(_ slot: Slot, url: String, at now: Int64) {
        let last = notes[slot, url].flatMap { $0.counts(at: now) ? $0 : nil }
        let pause = Pause(since: now, failures: 1 + (last?.failures ?? 0))
        notes.remember(slot, url: url, pause, until: pause.end, now: now)
    }

    /// The slot holds something new, or nothing.
    mutating func forget(_ slot: Slot) {
        notes.forget(slot)
    }

    mutating func forget(profile: OpaqueID) {
        notes.forget(profile: profile)
    }

    mutating func forgetAll() {
        notes.forgetAll()
    }
}
