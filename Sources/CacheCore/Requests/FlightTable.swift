import DequeModule

/// The work in progress in one user's cache, and the requests that wait for it: single flight (I6).
///
/// Requests that need the same work join one flight. Its result answers all of them, in the order in which they came.
/// A result counts only for the flight that is current: a flight that was cancelled or replaced can neither end nor
/// overwrite a newer one. ``RequestCoordinator`` decides which flights there are.
struct FlightTable: Sendable {
    private var states: [ImageKey: ImageKeyState] = [:]
    /// The flight that each waiter joined. The flight may have been renumbered since.
    private var waits: [WaiterID: FlightID] = [:]
    private var lastNumber: UInt64 = 0

    var isEmpty: Bool { states.isEmpty && waits.isEmpty }

    var imageKeys: [ImageKey] { Array(states.keys) }

    /// The work in progress for an image key; nil without any.
    subscript(imageKey: ImageKey) -> ImageKeyState? {
        _read { yield states[imageKey] }
        _modify { yield &states[imageKey] }
    }

    subscript(imageKey: ImageKey, default state: @autoclosure () -> ImageKeyState) -> ImageKeyState {
        _read { yield states[imageKey, default: state()] }
        _modify { yield &states[imageKey, default: state()] }
    }

    subscript(id: FlightID) -> Flight? { isCurrent(id) ? states[id.imageKey]?.flights[id.work] : nil }

    func isCurrent(_ id: FlightID) -> Bool { states[id.imageKey]?.flights[id.work]?.id.number == id.number }

    /// A number larger than every earlier one, for flights, waiters, grace periods and PUTs.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Adds a waiter to the flight for that work, set up by `begin` if there was none.
    /// - Returns: the flight if it is new and must be started.
    mutating func join(
        _ waiter: Waiter, _ work: FlightID.Work, begin: (inout Flight) -> Void = { _ in }
    ) -> FlightID? {
        let imageKey = waiter.query.imageKey
        let started = join(imageKey, work, begin: begin) { $0.waiters.append(waiter) }
        waits[waiter.id] = states[imageKey]?.flights[work]?.id
        return started
    }

    /// Adds a background flight, or makes the one in progress a background flight.
    mutating func joinInBackground(
        _ imageKey: ImageKey, _ work: FlightID.Work, begin: (inout Flight) -> Void
    ) -> FlightID? {
        join(imageKey, work, begin: begin) { $0.isBackground = true }
    }

    private mutating func join(
        _ imageKey: ImageKey, _ work: FlightID.Work, begin: (inout Flight) -> Void, change: (inout Flight) -> Void
    ) -> FlightID? {
        // Removed before the change, so that appending a waiter does not copy the others.
        let current = states[imageKey]?.flights.removeValue(forKey: work)
        var flight = current ?? Flight(id: FlightID(imageKey: imageKey, work: work, number: nextNumber()))
        if current == nil { begin(&flight) }
        change(&flight)
        states[imageKey, default: ImageKeyState()].flights[work] = flight
        return current == nil ? flight.id : nil
    }

    /// Renumbers a flight, so that results of its first attempt no longer count. Returns nil if it is not current.
    mutating func renumber(_ id: FlightID, _ change: (inout Flight) -> Void) -> Flight? {
        guard var flight = self[id] else { return nil }
        flight.id = FlightID(imageKey: id.imageKey, work: id.work, number: nextNumber())
        change(&flight)
        states[id.imageKey]?.flights[id.work] = flight
        return flight
    }

    /// Removes a flight with its waiters; nil if it is not current.
    mutating func finish(_ id: FlightID) -> Flight? {
        guard let flight = self[id] else { return nil }
        states[id.imageKey]?.flights[id.work] = nil
        for waiter in flight.waiters { waits[waiter.id] = nil }
        return flight
    }

    /// Removes every flight of an image key with its waiters.
    mutating func finishAll(of imageKey: ImageKey) -> [Flight] {
        guard let flights = states[imageKey]?.flights.values else { return [] }
        states[imageKey]?.flights = [:]
        for waiter in flights.flatMap(\.waiters) { waits[waiter.id] = nil }
        return Array(flights)
    }

    /// Removes a waiter from its flight, which stays. Returns nil if it no longer waits.
    mutating func remove(_ id: WaiterID) -> (flight: FlightID, waiter: Waiter?)? {
        guard let flight = waits.removeValue(forKey: id) else { return nil }
        return (flight, states[flight.imageKey]?.flights[flight.work]?.remove(id))
    }

    func flight(of waiter: WaiterID) -> Flight? {
        waits[waiter].flatMap { states[$0.imageKey]?.flights[$0.work] }
    }
}

/// A request that waits for an image. For a GET of a client, `resolve` is the closure that `Connection` passes.
struct Waiter: Sendable {
    let id: WaiterID
    let query: ImageQuery
    let resolve: @Sendable (Result<ServedImage?, CacheFailure>) -> Void
}

/// Identifies one piece of work. The number distinguishes it from earlier and later work of the same kind.
struct FlightID: Hashable, Sendable {
    enum Work: Hashable, Sendable {
        /// The read from disk that precedes any download.
        case read
        /// The download of one URL: GETs with different URLs each get their own image.
        case download(String)
        /// The download from a chain of upstreams (``UpstreamChain``).
        case chain
        /// The request for the source of a rendition.
        case source(SourceKey)
        /// Rendering from the source with that digest.
        case render(ImageDigest)

        init(_ target: DownloadTarget) { self = target.others.isEmpty ? .download(target.url) : .chain }

        var isDownload: Bool {
            switch self {
            case .download, .chain: true
            case .read, .source, .render: false
            }
        }
    }

    /// How the source of a rendition is requested. Equal requests share a flight.
    struct SourceKey: Hashable, Sendable {
        let imageKey: ImageKey
        /// The URL that the client named.
        let named: String?
        let download: ImageQuery.Download
    }

    let imageKey: ImageKey
    let work: Work
    let number: UInt64
}

/// One piece of work in progress, with the requests that wait for it.
struct Flight: Sendable {
    var id: FlightID
    var waiters: Deque<Waiter> = []
    /// Cancels a download; nil until it has started. Reads are not cancelled; their results are ignored.
    var handle: (any DownloadHandle)?
    /// A download: the stale image to serve if the origin fails or a waiter times out. A rendering: its source.
    var held: ServedImage?
    /// A download: the image to revalidate, kept here so that a 304 finds its bytes even after an eviction; nil for an
    /// unconditional request. The request for a source: the stored rendition, which may be that of an older source.
    var basis: Image?
    /// The waiter for the source, on behalf of this flight.
    var inner: WaiterID?
    /// Number of the request for the source: only later changes of the source outdate its result.
    var requested: UInt64 = 0
    var target: DownloadTarget?
    /// URL of the stored image.
    var heldURL: String?
    /// Whether a response without an image removes the stored image: false if that came from another URL or is newer.
    var ownsImageKey = false
    /// Number of the grace period that began when the last waiter left.
    var grace: UInt64?
    /// Whether the flight continues without waiters.
    var isBackground = false

    var isAbandoned: Bool { waiters.isEmpty && !isBackground }

    /// The stored image when the flight began; nil if the disk was not read.
    private var known: Image? { held?.image ?? basis }
    var knowsImage: Bool { known != nil }

    /// Whether a downloaded image differs from the earlier one. An image that is not stored where none was stored is no
    /// change: a subscriber that requests it after each event would cause endless downloads.
    func isChange(to image: Image, isStored: Bool) -> Bool {
        guard let known else { return isStored }
        return !isStored || known.record.digest != image.record.digest
    }

    mutating func remove(_ id: WaiterID) -> Waiter? {
        waiters.firstIndex { $0.id == id }.map { waiters.remove(at: $0) }
    }
}

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
