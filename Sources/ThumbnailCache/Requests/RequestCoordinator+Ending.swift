import DequeModule

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
        guard let place = places.removeValue(forKey: id) else { return (nil, nil, []) }
        guard let url = place.url else {
            let waiter = activity[place.slot]?.read?.remove(id) ?? activity[place.slot]?.larger?.remove(id)
            return (waiter, nil, [])
        }
        let waiter = activity[place.slot]?.downloads[url]?.remove(id)
        guard let flight = activity[place.slot]?.downloads[url] else { return (waiter, nil, []) }
        guard waiter != nil, flight.isAbandoned else { return (waiter, flight.held, []) }
        let grace = nextNumber()
        activity[place.slot]?.downloads[url]?.grace = grace
        return (waiter, flight.held, [.grace(place.slot, url: url, number: grace)])
    }

    /// The grace of a flight without waiters is over, unless somebody has joined and left since: then another began.
    mutating func graceEnded(_ slot: Slot, url: String, _ number: UInt64) -> [Effect] {
        guard let flight = activity[slot]?.downloads[url], flight.grace == number, flight.isAbandoned else {
            return []
        }
        activity[slot]?.downloads[url] = nil
        tidy(slot)
        return flight.handle.map { [.cancel($0)] } ?? []
    }

    // MARK: PUT

    mutating func putBegan(_ slot: Slot) -> UInt64 {
        activity[slot, default: SlotActivity()].puts.count += 1
        return nextNumber()
    }

    func putVerdict(_ slot: Slot, ticket: UInt64) -> PendingPuts.Verdict {
        activity[slot]?.puts.verdict(on: ticket) ?? .cancelled
    }

    /// The PUT's entry is in place: it wins over every download of the slot, and their waiters get its image (I7).
    mutating func putCommitted(_ slot: Slot, ticket: UInt64, _ image: Image, now: Int64) -> [Effect] {
        activity[slot]?.puts.committed = ticket
        negativeCache.forget(slot)
        backoff.forget(slot)
        let served = ServedImage(image, from: .put, at: now)
        return end(slot, .success(served)).effects
    }

    mutating func putEnded(_ slot: Slot) {
        activity[slot]?.puts.count -= 1
        tidy(slot)
    }

    // MARK: Ending

    /// Ends all that goes on for a profile, in every size: waiters get CANCELLED, PUTs under way will not commit.
    /// Returns how many downloads were stopped.
    mutating func purge(profile: OpaqueID) -> (cancelled: Int, effects: [Effect]) {
        let ticket = nextNumber()
        negativeCache.forget(profile: profile)
        backoff.forget(profile: profile)
        var cancelled = 0
        var effects: [Effect] = []
        for slot in activity.keys where slot.profile == profile {
            activity[slot]?.puts.purged = ticket
            let ended = end(slot, .failure(.cancelled))
            cancelled += ended.cancelled
            effects += ended.effects
            tidy(slot)
        }
        return (cancelled, effects)
    }

    /// Ends everything. Waiters get `failure`, those of a slot in the order they came.
    mutating func end(_ failure: CacheFailure) -> (cancelled: Int, effects: [Effect]) {
        var cancelled = 0
        var effects: [Effect] = []
        for slot in Array(activity.keys) {
            activity[slot]?.puts.purged = .max
            let ended = end(slot, .failure(failure))
            cancelled += ended.cancelled
            effects += ended.effects
            tidy(slot)
        }
        negativeCache.forgetAll()
        backoff.forgetAll()
        return (cancelled, effects)
    }

    /// Ends the flights of a slot, all waiters answered with one outcome in the order they came.
    private mutating func end(_ slot: Slot, _ outcome: GetOutcome) -> (cancelled: Int, effects: [Effect]) {
        guard var current = activity[slot] else { return (0, []) }
        var waiters = current.read?.finish() ?? []
        waiters += current.larger?.finish() ?? []
        var handles: [any DownloadHandle] = []
        for var flight in current.downloads.values {
            waiters += flight.finish()
            if let handle = flight.handle { handles.append(handle) }
        }
        let cancelled = current.downloads.count
        current.read = nil
        current.larger = nil
        current.downloads = [:]
        current.storing = nil
        current.dropping = nil
        activity[slot] = current
        for waiter in waiters { places[waiter.id] = nil }
        let answers = waiters.sorted { $0.id.number < $1.id.number }.map { Effect.answer($0, outcome) }
        return (cancelled, answers + handles.map { .cancel($0) })
    }
}
