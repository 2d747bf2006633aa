/// What an origin did not give, remembered for a while, in bounded number: the images that it said it does not have, and the stale
/// ones that it was asked about in vain, which are not asked about again for a moment.
///
/// The fetcher does not ask a host that fails. The pauses here are for what says nothing against the host, a page to log in on or an
/// image that is too large: every GET of a stale image would else begin another download of it.
struct NegativeCache: Sendable {
    private struct Note: Sendable {
        /// Seconds since 1970. A moment before `since` means that the clock was set back: then it is not believed (F14).
        let since: Int64
        let until: Int64
        /// In a row; 0 where the origin said that there is none.
        var failures = 0
        var leavesSlotEmpty = false
        /// Nor is there a larger image that could stand in.
        var leavesNoneLarger = false

        func isMissing(at now: Int64) -> Bool { failures == 0 && holds(at: now) }
        func holds(at now: Int64) -> Bool { since <= now && now < until }
    }

    /// Seconds between attempts to refresh a stale image that fail.
    private static let backoff = Backoff(base: 1, most: 60)

    private var notes: ExpiringSlotMap<Note>

    /// - Parameters:
    ///   - limit: how many are remembered at most.
    ///   - memory: what they count against.
    init(limit: Int, memory: MemoryLease) {
        notes = ExpiringSlotMap(limit: limit, memory: memory)
    }

    // MARK: Missing images

    /// Whether the origin said, not too long ago, that there is nothing under this URL.
    func isMissing(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url]?.isMissing(at: now) == true
    }

    /// The same, and the slot was left with nothing from elsewhere either: nobody need look on disk.
    func leavesEmpty(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.isMissing(at: now) && $0.leavesSlotEmpty } ?? false
    }

    /// Whether it is known that no larger image could stand in for what is missing under this URL.
    func leavesNoneLarger(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.isMissing(at: now) && $0.leavesNoneLarger } ?? false
    }

    /// Whether the origin's word has emptied a slot. What was held there may still be on disk where it could not be removed.
    func leavesEmpty(_ slot: Slot, at now: Int64) -> Bool {
        notes.contains(slot) { $0.isMissing(at: now) && $0.leavesSlotEmpty }
    }

    /// Whether anything is known to be missing in a slot, under whatever URL.
    func hasMissing(_ slot: Slot, at now: Int64) -> Bool {
        notes.contains(slot) { $0.isMissing(at: now) }
    }

    mutating func missing(_ slot: Slot, url: String, until: Int64, leavesSlotEmpty: Bool, now: Int64) {
        let note = Note(since: now, until: until, leavesSlotEmpty: leavesSlotEmpty)
        notes.remember(slot, url: url, note, until: until, now: now)
    }

    /// No larger image was found that could stand in for what is missing in a slot.
    mutating func noneLarger(than slot: Slot) {
        notes.change(slot.profile) { size, note in
            if size == slot.size { note.leavesNoneLarger = true }
        }
    }

    // MARK: Refreshes in vain

    /// Whether it is too early to ask about a stale image again.
    func hasJustFailed(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.failures > 0 && $0.holds(at: now) } ?? false
    }

    /// Asking about a stale image came to nothing.
    mutating func failed(_ slot: Slot, url: String, at now: Int64) {
        // Remembered longer than it holds: what fails until then is the next in a row.
        let last = notes[slot, url].flatMap { $0.since <= now && now < $0.until + Self.backoff.most ? $0 : nil }
        let failures = 1 + (last?.failures ?? 0)
        let until = now + Self.backoff.ceiling(attempt: failures)
        let note = Note(since: now, until: until, failures: failures)
        notes.remember(slot, url: url, note, until: until + Self.backoff.most, now: now)
    }

    // MARK: Forgetting

    /// The slot holds something new, which may stand in for what is missing in others.
    mutating func forget(_ slot: Slot) {
        notes.forget(slot)
        notes.change(slot.profile) { $1.leavesNoneLarger = false }
    }

    mutating func forget(profile: OpaqueID) {
        notes.forget(profile: profile)
    }

    mutating func forgetAll() {
        notes.forgetAll()
    }
}
