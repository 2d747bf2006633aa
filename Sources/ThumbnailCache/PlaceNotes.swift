import DequeModule

/// What is known of slots and the URLs asked for them, remembered for a while and in bounded number.
///
/// A value. What is asked for and what is forgotten is found by its profile, and the oldest goes first where the limit is
/// reached, so that nothing here costs more the more is remembered.
struct PlaceNotes<Note: Sendable>: Sendable {
    private struct Place: Hashable, Sendable {
        let size: UInt16
        let url: String
    }

    private struct Entry: Sendable {
        var note: Note
        /// Seconds since 1970, after which nobody wants it.
        let until: Int64
        /// Tells it from one that was remembered later in its place.
        let number: UInt64
    }

    private var profiles: [OpaqueID: [Place: Entry]] = [:]
    /// All that was remembered and not yet taken out by the limit or by time, in the order it came.
    private var order: Deque<(profile: OpaqueID, place: Place, entry: Entry)> = []
    private var lastNumber: UInt64 = 0
    private let limit: Int

    /// - Parameter limit: how many are remembered at most.
    init(limit: Int) {
        self.limit = limit
    }

    /// What was remembered of that place last and not forgotten since, maybe longer than anybody wants it.
    subscript(slot: Slot, url: String) -> Note? {
        profiles.isEmpty ? nil : profiles[slot.profile]?[Place(size: slot.size, url: url)]?.note
    }

    /// Whether that is so of any note of a slot, under whatever URL. Where a profile has many, this says yes without looking
    /// through them.
    func mayContain(_ slot: Slot, where isWanted: (Note) -> Bool) -> Bool {
        guard !profiles.isEmpty, let places = profiles[slot.profile] else { return false }
        return places.count > Self.mostLookedThrough
            || places.contains { $0.key.size == slot.size && isWanted($0.value.note) }
    }

    private static var mostLookedThrough: Int { 8 }

    mutating func remember(_ slot: Slot, url: String, _ note: Note, until: Int64, now: Int64) {
        guard until > now, limit > 0 else { return }
        while let oldest = order.first, order.count >= limit || oldest.entry.until <= now {
            order.removeFirst()
            if profiles[oldest.profile]?[oldest.place]?.number == oldest.entry.number {
                profiles[oldest.profile]?[oldest.place] = nil
                tidy(oldest.profile)
            }
        }
        lastNumber += 1
        let entry = Entry(note: note, until: until, number: lastNumber)
        let place = Place(size: slot.size, url: url)
        profiles[slot.profile, default: [:]][place] = entry
        order.append((slot.profile, place, entry))
    }

    /// Changes all notes of a profile, each of which is handed with its size.
    mutating func change(_ profile: OpaqueID, _ body: (UInt16, inout Note) -> Void) {
        guard let places = profiles[profile]?.keys else { return }
        for place in places {
            guard var entry = profiles[profile]?[place] else { continue }
            body(place.size, &entry.note)
            profiles[profile]?[place] = entry
        }
    }

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
