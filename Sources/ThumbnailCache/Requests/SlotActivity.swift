/// All that goes on in one slot of a user's cache at this moment.
struct SlotActivity: Sendable {
    /// The look on disk that comes before any download.
    var read: Flight?
    /// The look for a larger image, where there is none of this size.
    var larger: Flight?
    /// Downloads by URL: two GETs with different URLs each get their own image.
    var downloads: [String: Flight] = [:]
    /// A downloaded image that its waiters already have and that is on its way to the disk. Whoever asks meanwhile
    /// gets it from here, which is from memory.
    var storing: Storing?
    /// The download that said that what is held is not to be served again, while that is being removed.
    var dropping: UInt64?
    var puts = PendingPuts()

    struct Storing: Sendable {
        let flight: UInt64
        let served: ServedImage
        /// Whether the disk has these bytes already, with older dates.
        let isConfirmed: Bool
    }

    var isIdle: Bool {
        read == nil && larger == nil && downloads.isEmpty && storing == nil && dropping == nil && puts.count == 0
    }
}

/// PUTs of one slot between their first byte and their last. Tickets are given in the order of arrival, so that
/// what memory and disk hold in the end is one and the same PUT, and none that a purge overtook.
struct PendingPuts: Sendable {
    var count = 0
    /// Ticket of the newest PUT whose entry is in place.
    var committed: UInt64 = 0
    /// Ticket of the newest purge: what began before it must not appear any more.
    var purged: UInt64 = 0

    enum Verdict: Sendable {
        case commit
        /// A newer PUT is already in place; this one counts as put and replaced.
        case superseded
        /// A purge came in between.
        case cancelled
    }

    func verdict(on ticket: UInt64) -> Verdict {
        if ticket < purged { return .cancelled }
        return ticket < committed ? .superseded : .commit
    }
}
