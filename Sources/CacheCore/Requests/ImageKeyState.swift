/// Everything in progress for one image key.
struct ImageKeyState: Sendable {
    var flights: [FlightID.Work: Flight] = [:]
    /// An image that its waiters already have and that is being written to disk. GET is answered from here meanwhile.
    var storing: Storing?
    /// The download that ended with "no image" or an image that must not be stored, while the entry is being removed.
    var dropping: FlightID?
    var puts = PendingPuts()
    /// The image key of the source, while a rendition is requested or made.
    var source: ImageKey?

    struct Storing: Sendable {
        let flight: FlightID
        let served: ServedImage
        /// Whether the disk has these bytes already, with older freshness data.
        let isOnDisk: Bool
    }

    var isIdle: Bool { flights.isEmpty && storing == nil && dropping == nil && puts.count == 0 }
}

/// The PUTs in progress for one image key, numbered in the order of arrival: memory and disk end up with the same PUT,
/// and none that a purge overtook commits.
struct PendingPuts: Sendable {
    var count = 0
    /// Number of the newest PUT whose entry is on disk.
    var committed: UInt64 = 0
    /// Number of the newest purge. PUTs that began before it must not commit.
    var purged: UInt64 = 0

    enum Verdict: Sendable {
        case commit
        /// A newer PUT is on disk; this one counts as stored and replaced.
        case superseded
        /// A purge overtook the PUT.
        case cancelled
    }

    func verdict(on sequence: UInt64) -> Verdict {
        if sequence < purged { return .cancelled }
        return sequence < committed ? .superseded : .commit
    }
}
