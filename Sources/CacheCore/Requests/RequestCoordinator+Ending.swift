// How what goes on in a cache ends otherwise than by itself: waiters leave, a PUT wins, a purge or log-out ends it.

extension RequestCoordinator {
    // MARK: Leaving

    /// The waiter is gone; nobody is to be answered.
    mutating func leave(_ id: WaiterID) -> [Effect] {
        depart(id).effects
    }

    /// The waiter's time is up: it gets the stale image if one is held, else TIMEOUT.
    mutating func expire(_ id: WaiterID) -> [Effect] {
        let (waiter, held, effects) = depart(id)
        guard let waiter else { return effects }
        let failure = CacheFailure.timedOut("no answer from the origin within the time this request waits")
        return [answer(waiter, failedBy: failure, fallback: held)] + effects
    }

    private mutating func depart(_ id: WaiterID) -> (waiter: Waiter?, held: ServedImage?, effects: [Effect]) {
        guard let wait = waits.removeValue(forKey: id) else { return (nil, nil, []) }
        let waiter = activity[wait.imageKey]?.flights[wait.work]?.remove(id)
        switch wait.work {
        case .source: return departFromSource(wait, waiter)
        case .render: return departFromRender(wait, waiter)
        case .read, .larger, .download, .chain: break
        }
        guard wait.work.isDownload, let flight = activity[wait.imageKey]?.flights[wait.work] else {
            return (waiter, nil, [])
        }
        guard waiter != nil, flight.isAbandoned else { return (waiter, flight.held, []) }
        let grace = nextNumber()
        activity[wait.imageKey]?.flights[wait.work]?.grace = grace
        return (waiter, flight.held, [.grace(flight.id, number: grace)])
    }

    /// The grace of a flight without waiters is over, unless somebody has joined and left since: then another began.
    mutating func graceEnded(_ id: FlightID, _ grace: UInt64) -> [Effect] {
        guard let flight = activity[id.imageKey]?.flights[id.work], flight.grace == grace, flight.isAbandoned else {
            return []
        }
        activity[id.imageKey]?.flights[id.work] = nil
        tidy(id.imageKey)
        return flight.handle.map { [.cancel($0)] } ?? []
    }

    // MARK: PUT

    mutating func putBegan(_ imageKey: ImageKey) -> UInt64 {
        activity[imageKey, default: ImageKeyState()].puts.count += 1
        return nextNumber()
    }

    func putVerdict(_ imageKey: ImageKey, sequence: UInt64) -> PendingPuts.Verdict {
        activity[imageKey]?.puts.verdict(on: sequence) ?? .cancelled
    }

    /// The PUT's entry is on disk: it wins over every download of the image key, and their waiters get its image (I7).
    mutating func putCommitted(_ imageKey: ImageKey, sequence: UInt64, _ image: Image, now: Int64) -> [Effect] {
        activity[imageKey]?.puts.committed = sequence
        forgetAbsence(imageKey)
        let served = ServedImage(image, from: .put, at: now)
        return sourceChanged(imageKey, to: served) + end(imageKey, .success(served)).effects + [.changed(imageKey)]
    }

    mutating func putEnded(_ imageKey: ImageKey) {
        activity[imageKey]?.puts.count -= 1
        tidy(imageKey)
    }

    // MARK: Ending

    /// Ends all that goes on for a profile, in every size: waiters get CANCELLED, PUTs under way will not commit.
    /// Returns how many downloads were stopped.
    mutating func purge(profile: OpaqueID) -> (cancelled: Int, effects: [Effect]) {
        negativeCache.forget(profile: profile)
        return end(activity.keys.filter { $0.profile == profile }, .cancelled, purged: nextNumber())
    }

    /// Ends everything. Waiters get `failure`, those of an image key in the order they came.
    mutating func end(_ failure: CacheFailure) -> (cancelled: Int, effects: [Effect]) {
        negativeCache.forgetAll()
        return end(Array(activity.keys), failure, purged: .max)
    }

    private mutating func end(
        _ imageKeys: [ImageKey], _ failure: CacheFailure, purged sequence: UInt64
    ) -> (cancelled: Int, effects: [Effect]) {
        imageKeys.reduce(into: (0, [])) { total, imageKey in
            activity[imageKey]?.puts.purged = sequence
            let ended = end(imageKey, .failure(failure))
            total.0 += ended.cancelled
            total.1 += ended.effects
            tidy(imageKey)
        }
    }

    /// Ends the flights of an image key, all waiters answered with one outcome in the order they came.
    private mutating func end(_ imageKey: ImageKey, _ outcome: GetOutcome) -> (cancelled: Int, effects: [Effect]) {
        guard let flights = activity[imageKey]?.flights else { return (0, []) }
        activity[imageKey]?.flights = [:]
        activity[imageKey]?.storing = nil
        activity[imageKey]?.dropping = nil
        let waiters = flights.values.flatMap(\.waiters).sorted { $0.id.number < $1.id.number }
        for waiter in waiters { waits[waiter.id] = nil }
        let cancelled = flights.keys.count { $0.isDownload }
        let handles = flights.values.compactMap(\.handle)
        return (cancelled, waiters.map { .answer($0, outcome) } + handles.map { .cancel($0) })
    }

    // MARK: On the way to the disk

    /// Asked right before a downloaded image appears on disk.
    func mayStore(_ id: FlightID) -> Bool { activity[id.imageKey]?.storing?.flight.number == id.number }

    /// The downloaded image that is on its way to the disk.
    func storing(_ imageKey: ImageKey) -> ServedImage? { activity[imageKey]?.storing?.served }

    /// The write of a downloaded image has ended, well or not.
    mutating func stored(_ id: FlightID) {
        guard mayStore(id) else { return }
        activity[id.imageKey]?.storing = nil
        tidy(id.imageKey)
    }

    /// A downloaded image could not be written, or too much waits for that: whoever waited has it, but nothing older
    /// may come back. One that was only confirmed stays: its bytes are right, and it is asked about again.
    mutating func notStored(_ id: FlightID) -> [Effect] {
        guard mayStore(id) else { return [] }
        guard activity[id.imageKey]?.storing?.isConfirmed == false else {
            stored(id)
            return []
        }
        return drop(id)
    }

    /// Asked right before an image that the origin no longer has is removed: not if another has come since.
    func mayDrop(_ id: FlightID) -> Bool { activity[id.imageKey]?.dropping?.number == id.number }

    mutating func dropped(_ id: FlightID) {
        guard mayDrop(id) else { return }
        activity[id.imageKey]?.dropping = nil
        tidy(id.imageKey)
    }
}
