import DequeModule

/// The images that an origin said it does not have, each remembered for a while, in bounded number.
///
/// A value. What is asked for and what is forgotten is found by its profile, and the oldest goes first where the limit is
/// reached, so that nothing here costs more the more is remembered.
struct Absences: Sendable {
    private struct Place: Hashable, Sendable {
        let size: UInt16
        let url: String
    }

    private struct Absence: Sendable {
        /// Seconds since 1970. A moment before `since` means that the clock was set back: then it is not believed (F14).
        let since: Int64
        let until: Int64
        let leavesSlotEmpty: Bool
        /// Tells it from one that was remembered later in its place.
        let number: UInt64

        func holds(at now: Int64) -> Bool { since <= now && now < until }
    }

    private var profiles: [OpaqueID: [Place: Absence]] = [:]
    /// All that was remembered and not yet taken out by the limit or by time, in the order it came.
    private var order: Deque<(profile: OpaqueID, place: Place, absence: Absence)> = []
    private var lastNumber: UInt64 = 0
    private let limit: Int

    /// - Parameter limit: how many are remembered at most.
    init(limit: Int) {
        self.limit = limit
    }

    /// Whether the origin said, not too long ago, that there is nothing under this URL.
    func contains(_ slot: Slot, url: String, at now: Int64) -> Bool {
        absence(slot, url).map { $0.holds(at: now) } ?? false
    }

    /// The same, and the slot was left with nothing from elsewhere either: nobody need look on disk.
    func leavesEmpty(_ slot: Slot, url: String, at now: Int64) -> Bool {
        absence(slot, url).map { $0.holds(at: now) && $0.leavesSlotEmpty } ?? false
    }

    /// Whether anything is known to be missing in a slot, under whatever URL. Where a profile has many, this says yes without looking
    /// through them: whoever takes the longer way for it finds what is true.
    func holdsAny(_ slot: Slot, at now: Int64) -> Bool {
        guard !profiles.isEmpty, let places = profiles[slot.profile] else { return false }
        return places.count > Self.mostLookedThrough
            || places.contains { $0.key.size == slot.size && $0.value.holds(at: now) }
    }

    private static let mostLookedThrough = 8

    private func absence(_ slot: Slot, _ url: String) -> Absence? {
        profiles.isEmpty ? nil : profiles[slot.profile]?[Place(size: slot.size, url: url)]
    }

    mutating func remember(_ slot: Slot, url: String, until: Int64, leavesSlotEmpty: Bool, now: Int64) {
        guard until > now, limit > 0 else { return }
        while let oldest = order.first, order.count >= limit || oldest.absence.until <= now {
            order.removeFirst()
            if profiles[oldest.profile]?[oldest.place]?.number == oldest.absence.number {
                profiles[oldest.profile]?[oldest.place] = nil
                tidy(oldest.profile)
            }
        }
        lastNumber += 1
        let absence = Absence(since: now, until: until, leavesSlotEmpty: leavesSlotEmpty, number: lastNumber)
        let place = Place(size: slot.size, url: url)
        profiles[slot.profile, default: [:]][place] = absence
        order.append((slot.profile, place, absence))
    }

    /// Forgets what is missing in a slot, since something is there now.
    mutating func forget(_ slot: Slot) {
        guard let places = profiles[slot.profile] else { return }
        profiles[slot.profile] = places.filter { $0.key.size != slot.size }
        tidy(slot.profile)
    }

    mutating func forget(profile: OpaqueID) {
        profiles[profile] = nil
    }

    mutating func forgetAll() {
        profiles = [:]
        order = []
    }

    private mutating func tidy(_ profile: OpaqueID) {
        if profiles[profile]?.isEmpty == true { profiles[profile] = nil }
    }
}
