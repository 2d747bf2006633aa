import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

// What the coordinator of a cache asks to be done, done: outside its lock, on the disk's pool or by the fetcher.

extension UserCache {
    typealias Route = RequestCoordinator.Route

    /// How long a download that nobody waits for any more lives on.
    private static var grace: Int64 { 5_000 }

    /// What follows from a change of the state, to be done outside the lock.
    struct Consequences: Sendable {
        var effects: [RequestCoordinator.Effect] = []
        var memory = MemoryChange()
    }

    /// A change of the state of which what follows is still to be done. An ending waits for it.
    struct Change {
        fileprivate let consequences: Consequences
        fileprivate let delivery: DrainGroup
    }

    /// Changes the state under the lock, lets go of it, and does what follows. An ending that comes in between waits
    /// until the answers are with whoever asked.
    func change(_ body: (inout State) -> Consequences) { finish(begin(body)) }

    /// For ``finish(_:)``, once and soon.
    func begin(_ body: (inout State) -> Consequences) -> Change {
        state.withLockedValue { Change(consequences: body(&$0), delivery: $0.beginDelivery()) }
    }

    func finish(_ change: Change) {
        apply(change.consequences.memory)
        perform(change.consequences.effects)
        change.delivery.leave()
    }

    func perform(_ effects: [RequestCoordinator.Effect]) {
        for effect in effects {
            switch effect {
            case .answer(let waiter, let outcome):
                if !waiter.query.isForRendition { count(outcome) }
                waiter.resolve(outcome)
            case .read(let flight):
                services.disk.submit(for: owner.uid) { self.read(flight) }
            case .findLarger(let flight):
                services.disk.submit(for: owner.uid) { self.findLarger(flight) }
            case .findSource(let flight, let query):
                findSource(flight, query)
            case .render(let flight, let source):
                render(flight, source)
            case .download(let flight, let target):
                download(flight, target)
            case .cancel(let handle):
                services.counters.count(.downloadsCancelled)
                handle.cancel()
            case .store(let flight):
                storeLater(flight)
            case .drop(let flight):
                services.disk.submit(for: owner.uid) { self.drop(flight) }
            case .changed(let imageKey):
                services.events.publish(
                    UserEvent(owner: owner, kind: .update(imageKey.profile.detached()), epoch: epoch))
            case .grace(let flight, let number):
                // Weak: a cache that has ended does not live on for it.
                _ = services.time.after(milliseconds: Self.grace) { [weak self] in
                    self?.change { Consequences(effects: $0.coordinator.graceEnded(flight, number)) }
                }
            }
        }
    }

    private func count(_ outcome: GetOutcome) {
        guard case .success(let served?) = outcome else { return }
        switch served.source {
        case .memory, .disk:
            if served.isStale { services.counters.count(.staleServed) }
            if served.source == .disk { services.counters.count(.diskHits) }
        case .fallback: services.counters.count(.fallbacksServed)
        case .origin, .revalidated, .put:
            // Just asked about, though it may not be used again without asking.
            break
        }
    }

    // MARK: From disk

    /// Looks on disk; on the pool.
    private func read(_ flight: FlightID) {
        let imageKey = flight.imageKey
        var image: Image?
        do {
            let read =
                try isBeingRemoved(imageKey.profile) ? nil : generationStore.read(imageKey, framing: services.framing)
            image = read.flatMap { image in state.withLockedValue { $0.coordinator.suits(image) } ? image : nil }
        } catch {
            // Closed under our feet: whoever waited has been answered by what closed it.
        }
        let now = services.time.now
        let source = putSource(of: imageKey, held: image, now: now)
        let route = self.route(for: imageKey, held: image, source: source)
        if route.source == nil, image?.record.rendered != nil { image = nil }
        change { [image] state in
            guard let effects = state.coordinator.readEnded(flight, image: image, route: route, now: now) else {
                return Consequences()
            }
            // Of a rendition nobody knows yet whether its source is still the same.
            let isGood = image?.record.rendered == nil
            let memory = isGood ? image.map { remember($0, in: imageKey, &state) } : nil
            return Consequences(effects: effects, memory: memory ?? MemoryChange())
        }
    }

    /// Asked before a look at the disk. One that began earlier has been overtaken by the purge.
    func isBeingRemoved(_ profile: OpaqueID) -> Bool {
        state.withLockedValue { $0.beingRemoved.contains(profile) }
    }

    /// Where to ask for what an image key is to hold: where the held image came from, else where the template says.
    /// - Parameter put: what a client has put, from which the image key's image is made, whatever the origin has.
    func route(for imageKey: ImageKey, held: Image?, source put: ImageKey? = nil) -> Route {
        let origin = origin
        let source = put ?? self.source(of: imageKey, origin)
        guard let origin else { return Route(source: source) { .success(nil) } }
        let fallback = origin.fallback?.image(services.framing, digest: services.store.digest)
        return Route(fallback: fallback, source: source, isSourceOfURLs: put == nil) {
            self.target(of: origin, for: put == nil ? source ?? imageKey : imageKey, held: held)
        }
    }

    private func target(of origin: Origin, for imageKey: ImageKey, held: Image?) -> Route.Target {
        func target(_ url: String?) -> Route.Target {
            Result { () throws(CacheFailure) in
                try services.fetcher.target(origin: origin, user: owner.user, imageKey: imageKey, url: url)
            }
        }
        let usual = target(nil)
        guard case .url(let url)? = held?.record.provenance, case .success(let template?) = usual, url != template.url
        else { return usual }
        // Somebody is to be asked before the one that it came from.
        if held?.record.isStandIn == true { return usual }
        // First who gave it, then the others from the beginning.
        if let links = template.beginning(at: url) { return .success(links) }
        let other = target(url)
        // Where it fails the configuration has changed since: that URL may not be asked any more.
        return if case .success = other { other } else { usual }
    }

    // MARK: To disk, behind the back of those who have the image already

    /// Has a downloaded image written. While it waits only the coordinator holds it: it goes with an ending (I11).
    private func storeLater(_ flight: FlightID) {
        guard let image = toStore(flight) else { return }
        guard !services.writes.add(uid: quotaAccount, bytes: image.bytes.storage, { self.store(flight) }) else {
            return
        }
        services.counters.count(.storesSkipped)
        notStored(flight)
    }

    private func toStore(_ flight: FlightID) -> Image? {
        state.withLockedValue { state in
            state.coordinator.mayStore(flight) ? state.coordinator.storing(flight.imageKey)?.image : nil
        }
    }

    /// Writes a downloaded image; its waiters already have it, so a failure costs only a later download.
    private func store(_ flight: FlightID) {
        guard let image = toStore(flight) else { return }
        do {
            let isWritten = try generationStore.write(
                flight.imageKey, image,
                isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayStore(flight) } },
                committed: {})
            state.withLockedValue { $0.coordinator.stored(flight) }
            guard isWritten else { return }
            generationStore.makeRoom(keeping: image.record.rendered == nil ? flight.imageKey : nil)
            // Not here: there is one thread that writes for all.
            guard image.record.rendered != nil else { return }
            services.disk.submit(for: owner.uid) { self.trimRenditions(keeping: flight.imageKey) }
        } catch StoreError.closed {
            // Purged or logged out meanwhile: nothing is to be kept.
        } catch {
            services.counters.count(.storeFailures)
            notStored(flight)
        }
    }

    /// A newer image was served and is not on disk: what it replaced there must not come back.
    private func notStored(_ flight: FlightID) {
        change { Consequences(effects: $0.coordinator.notStored(flight)) }
    }

    /// What is held is not to be served again: it goes. Blocks on the disk.
    private func drop(_ flight: FlightID) {
        do {
            try generationStore.drop(
                flight.imageKey, isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayDrop(flight) } })
        } catch StoreError.closed {
            // All of it is going.
        } catch {
            services.counters.count(.storeFailures)
        }
        state.withLockedValue { $0.coordinator.dropped(flight) }
    }
}

extension UserCache {
    /// Ends the generation: no new work, waiters answered, downloads cancelled, memory forgotten, then answers on their
    /// way and what the disk is doing drained, and the keys wiped. Blocks until then. Idempotent.
    /// - Parameter wipesBehind: the images that were in memory are left to the caller to wipe.
    /// - Returns: how many downloads were stopped, and what wipes those images, on a pool.
    func close(
        _ failure: CacheFailure = .cancelled, wipesBehind: Bool = false
    ) -> (cancelled: Int, wipe: (@Sendable () -> Void)?) {
        let (ended, memory, earlier) = state.withLockedValue { state in
            state.invalidation = state.invalidation ?? failure
            let ended = state.coordinator.end(failure)
            let memory = NIOLockedValueBox(state.memory)
            state.memory = MemoryTable()
            services.counters.count(.memoryHits, state.memoryHits)
            state.memoryHits = 0
            state.account = Account(origin: state.account.origin)
            state.warming = WarmingList(memory: services.budget.lease(for: owner.uid))
            return (ended, memory, state.replaceDeliveries())
        }
        if !wipesBehind { Self.wipe(memory, of: services.memory, yield: {}) }
        perform(ended.effects)
        earlier.drain()
        generationStore.close()
        services.renderer?.forget(owner.uid)
        guard wipesBehind else { return (ended.cancelled, nil) }
        let (tier, yield) = (services.memory, services.yield)
        return (ended.cancelled, { Self.wipe(memory, of: tier, yield: yield) })
    }

    /// Takes entries that nothing leads to out of the tier and wipes them: 100 ms for a hundred thousand.
    private static func wipe(_ memory: NIOLockedValueBox<MemoryTable>, of tier: MemoryTier, yield: YieldToOthers) {
        var entries = takeOut(memory, yield: yield)
        tier.giveUp(&entries, yield: yield)
    }

    /// Out of the box and the dictionary, so that each goes with the last reference when the tier gives it up, and not
    /// all at the end. To look at a hundred thousand takes milliseconds, in which the receipt of a purge is on its way.
    private static func takeOut(_ memory: NIOLockedValueBox<MemoryTable>, yield: YieldToOthers) -> [MemoryEntry] {
        let held = memory.withLockedValue { memory in
            defer { memory = MemoryTable() }
            return memory.entries
        }
        var entries: [MemoryEntry] = []
        entries.reserveCapacity(held.count)
        for entry in held.values {
            entries.append(entry)
            if entries.count.isMultiple(of: 256) { yield() }
        }
        return entries
    }

    /// Returns when all answers that were decided before are with whoever asked. Blocks: call it on a pool.
    func drainDeliveries() { state.withLockedValue { $0.replaceDeliveries() }.drain() }

    /// Removes the images of some profiles, in every size. Blocks on the disk: call it on a pool.
    ///
    /// No write that began earlier can appear afterwards: the fence is set with the profile's commit lock held (I3).
    /// - Throws: ``CacheFailure/inputOutput(_:)`` when an entry could not be removed.
    func purge(_ profiles: [OpaqueID]) throws(CacheFailure) -> (usage: Usage, cancelled: Int) {
        var cancelled = 0
        var entries: [MemoryEntry] = []
        defer {
            services.memory.remove(entries)
            drainDeliveries()
            services.renderer?.forget(owner.uid)
        }
        do {
            let usage = try generationStore.remove(
                profiles,
                fence: { profile in
                    let ended = state.withLockedValue { state in
                        state.beingRemoved.insert(profile)
                        state.invalidateLookups(of: profile)
                        state.warming.remove(profile)
                        entries += state.memory.removeAll(of: profile)
                        return state.coordinator.purge(profile: profile)
                    }
                    cancelled += ended.cancelled
                    // Answers and cancels: nobody who waited waits for the disk.
                    perform(ended.effects)
                },
                removed: { profile in state.withLockedValue { _ = $0.beingRemoved.remove(profile) } })
            return (usage, cancelled)
        } catch {
            throw CacheFailure(error)
        }
    }
}
