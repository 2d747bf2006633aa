import NIOConcurrencyHelpers

extension UserCache {
    /// Images that are looked at, at most, to find one that stands in for a size that is missing.
    private static var mostLookedAt: Int { 4 }

    /// Lookups, at most, until one is not invalidated: by a PUT or a download of the profile.
    private static var mostLookups: Int { 4 }

    /// What a lookup of a larger image came to.
    private struct Lookup {
        /// With the image key that it was found in.
        var found: (image: ServedImage, imageKey: ImageKey)?
        /// Whether the disk has said of each image what it is: it may lack descriptors, and not images.
        var isComplete = true
    }

    /// Looks for a larger image; on the pool. Costs a listing of one bucket, and a read of what memory does not hold.
    func findLarger(_ flight: FlightID) {
        let imageKey = flight.imageKey
        defer { state.withLockedValue { $0.largerLookups.end(imageKey.profile) } }
        state.withLockedValue { $0.largerLookups.begin(imageKey.profile) }
        let route = self.route(for: imageKey, held: nil)
        for number in 1...Self.mostLookups {
            let before = state.withLockedValue { $0.largerLookups.invalidations(of: imageKey.profile) }
            let lookup = larger(than: imageKey)
            let now = services.time.now
            var isOver = false
            change { state in
                // Whoever joined behind an image that has come since is not given an older one (I7).
                let isInvalidated = state.largerLookups.invalidations(of: imageKey.profile) != before
                isOver = !isInvalidated || number == Self.mostLookups
                guard isOver else { return Consequences() }
                let effects = state.coordinator.largerEnded(
                    flight, found: isInvalidated ? nil : lookup.found,
                    isConclusive: lookup.isComplete && !isInvalidated, route: route, now: now)
                return Consequences(effects: effects)
            }
            if isOver { return }
        }
    }

    private func larger(than imageKey: ImageKey) -> Lookup {
        var lookup = Lookup()
        do {
            // Before the listing: what is written meanwhile is known from here or from there.
            let onTheirWay = state.withLockedValue { $0.coordinator.largerImageKeys(than: imageKey, onDisk: []) }
            let onDisk = try isBeingRemoved(imageKey.profile) ? [] : generationStore.imageKeys(of: imageKey.profile)
            lookup.isComplete = onDisk != nil
            let now = services.time.now
            let imageKeys = state.withLockedValue {
                $0.coordinator.largerImageKeys(than: imageKey, onDisk: (onDisk ?? []) + onTheirWay)
            }
            for imageKey in imageKeys.prefix(Self.mostLookedAt) {
                let inMemory = state.withLockedValue { $0.coordinator.storing(imageKey) ?? $0.memory[imageKey]?.served }
                let read = inMemory == nil ? try generationStore.read(imageKey, framing: services.framing) : nil
                guard let image = inMemory?.image ?? read else {
                    // It was listed. If it went meanwhile, the next look costs little.
                    lookup.isComplete = false
                    continue
                }
                guard state.withLockedValue({ $0.coordinator.mayStandIn(image, of: imageKey, now: now) }) else {
                    continue
                }
                lookup.found = (ServedImage(image, from: inMemory == nil ? .disk : .memory, at: now), imageKey)
                return lookup
            }
        } catch {
            // Closed under our feet: whoever waited has been answered by what closed it.
        }
        return lookup
    }
}

/// How many looks for larger images are under way, by profile, and how often an image of it came or went meanwhile.
struct LargerLookups: Sendable {
    private var lookups: [OpaqueID: (underWay: Int, invalidations: Int)] = [:]

    mutating func begin(_ profile: OpaqueID) {
        lookups[profile, default: (0, 0)].underWay += 1
    }

    mutating func end(_ profile: OpaqueID) {
        lookups[profile]?.underWay -= 1
        if lookups[profile]?.underWay == 0 { lookups[profile] = nil }
    }

    /// Since the first of those that are under way began.
    func invalidations(of profile: OpaqueID) -> Int { lookups[profile]?.invalidations ?? 0 }

    mutating func invalidate(_ profile: OpaqueID) {
        lookups[profile]?.invalidations += 1
    }
}
