/// The images that an origin said it does not have, each remembered for a while, in bounded number.
struct NegativeCache: Sendable {
    private struct Absence: Sendable {
        /// Seconds since 1970. A moment before `since` means that the clock was set back: then it is not believed (F14).
        let since: Int64
        let until: Int64
        let leavesSlotEmpty: Bool
        /// Nor is there a larger image that could stand in.
        var leavesNoneLarger = false

        func holds(at now: Int64) -> Bool { since <= now && now < until }
    }

    private var notes: ExpiringSlotMap<Absence>

    /// - Parameters:
    ///   - limit: how many are remembered at most.
    ///   - memory: what they count against.
    init(limit: Int, memory: MemoryLease) {
        notes = ExpiringSlotMap(limit: limit, memory: memory)
    }

    /// Whether the origin said, not too long ago, that there is nothing under this URL.
    func contains(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.holds(at: now) } ?? false
    }

    /// The same, and the slot was left with nothing from elsewhere either: nobody need look on disk.
    func leavesEmpty(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.holds(at: now) && $0.leavesSlotEmpty } ?? false
    }

    /// Whether it is known that no larger image could stand in for what is missing under this URL.
    func leavesNoneLarger(_ slot: Slot, url: String, at now: Int64) -> Bool {
        notes[slot, url].map { $0.holds(at: now) && $0.leavesNoneLarger } ?? false
    }

    /// Whether the origin's word has emptied a slot. What was held there may still be on disk where it could not be removed.
    func leaveEmpty(_ slot: Slot, at now: Int64) -> Bool {
        notes.contains(slot) { $0.holds(at: now) && $0.leavesSlotEmpty }
    }

    /// No larger image was found that could stand in for what is missing in a slot.
    mutating func noneLarger(than slot: Slot) {
        notes.change(slot.profile) { size, absence in
            if size == slot.size { absence.leavesNoneLarger = true }
        }
    }

    /// Whether anything is known to be missing in a slot, under whatever URL.
    func holdsAny(_ slot: Slot, at now: Int64) -> Bool {
        notes.contains(slot) { $0.holds(at: now) }
    }

    mutating func remember(_ slot: Slot, url: String, until: Int64, leavesSlotEmpty: Bool, now: Int64) {
        let absence = Absence(since: now, until: until, leavesSlotEmpty: leavesSlotEmpty)
        notes.remember(slot, url: url, absence, until: until, now: now)
    }

    /// Forgets what is missing in a slot, since something is there now, which may stand in for what is missing in others.
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
