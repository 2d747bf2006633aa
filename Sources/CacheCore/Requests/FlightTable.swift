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

    /// The work in progress for one image key.
    func excerpt(_ imageKey: ImageKey) -> FlightTable {
        var excerpt = FlightTable()
        excerpt.states[imageKey] = states[imageKey]
        excerpt.lastNumber = lastNumber
        return excerpt
    }

    func flight(of waiter: WaiterID) -> Flight? {
        waits[waiter].flatMap { states[$0.imageKey]?.flights[$0.work] }
    }
}
