import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

/// One generation of one user's cache.
///
/// A login or a purge creates it with a store of its own. A purge replaces the object, a logout closes it. Late work
/// still holds the old object: its keys are wiped, its flights have ended, and nothing in it leads to the new one (I3).
///
/// The methods stand in the order in which a GET meets them: memory, disk, then ``RequestCoordinator``, which decides,
/// and its effects. Safe from any thread. The lock is never held across a system call or a callback.
public final class UserCache: Sendable {
    typealias Route = RequestCoordinator.Route

    public let owner: Owner
    /// The uid's epoch when this generation was opened.
    public let epoch: UInt64
    let generationStore: any GenerationStore
    let services: CacheServices
    let state: NIOLockedValueBox<State>

    init(
        owner: Owner, epoch: UInt64, generationStore: any GenerationStore, credentials: Credentials,
        services: CacheServices
    ) {
        self.owner = owner
        self.epoch = epoch
        self.generationStore = generationStore
        self.services = services
        let coordinator = RequestCoordinator(
            negativeCache: Self.negativeCache(owner, services), tokenFamily: credentials.family)
        let warming = WarmingList(memory: services.budget.lease(for: owner.uid))
        self.state = NIOLockedValueBox(State(credentials: credentials, coordinator: coordinator, warming: warming))
    }

    private static func negativeCache(_ owner: Owner, _ services: CacheServices) -> NegativeCache {
        NegativeCache(limit: services.settings().negativeEntries, memory: services.budget.lease(for: owner.uid))
    }

    struct State {
        /// Why the cache accepts no new work; nil while it is open.
        var closeReason: CacheFailure?
        var credentials: Credentials
        var memory = MemoryTable()
        var memoryHits = 0
        var coordinator: RequestCoordinator
        /// Incremented when a stored image changes. A ``DiskLookup`` with an older value is void.
        private(set) var imageChanges: UInt64 = 0
        /// Profiles whose entries are being removed. They count as missing, so that a purge takes effect at once.
        var beingRemoved: Set<OpaqueID> = []
        /// Number of profiles whose removal has begun.
        var removals: UInt64 = 0
        var warming: WarmingList
        /// Results decided under the lock that are being delivered outside it. An invalidation waits for them:
        /// otherwise an image could arrive after the receipt (I3). Deliveries never block.
        private(set) var deliveries = DrainGroup()

        init(credentials: Credentials, coordinator: RequestCoordinator, warming: WarmingList) {
            (self.credentials, self.coordinator, self.warming) = (credentials, coordinator, warming)
        }

        var isOpen: Bool { closeReason == nil }

        mutating func invalidateLookups() { imageChanges += 1 }

        /// Counts a delivery until `leave()` is called on the result.
        mutating func beginDelivery() -> DrainGroup {
            // Never closed: draining replaces it first.
            _ = deliveries.enter()
            return deliveries
        }

        /// Returns the deliveries in progress, to wait for.
        mutating func replaceDeliveries() -> DrainGroup {
            defer { deliveries = DrainGroup() }
            return deliveries
        }
    }

    /// The origin that a login named, and the tokens for it.
    struct Credentials: Sendable {
        /// Nil for the default origin.
        var origin: String?
        /// The tokens of the login. With a refresh token, ``service`` has the current ones.
        var tokens = LoginTokens()
        /// Refreshes the access token, if possible; a purge hands it on to the next cache.
        var service: AccessTokenService?

        /// See ``LoginTokens/family``.
        var family: UInt32 { (service?.tokens ?? tokens).family }
    }

    var credentials: Credentials { state.withLockedValue { $0.credentials } }
    var isOpen: Bool { state.withLockedValue { $0.isOpen } }
    var memoryHits: Int { state.withLockedValue { $0.memoryHits } }

    /// The account that the owner's uid counts towards.
    var quotaAccount: UInt32 { services.budget.account(of: owner.uid) }

    var origin: Origin? { origin(of: credentials) }

    func origin(of credentials: Credentials) -> Origin? {
        services.settings().origins[credentials.origin ?? "default"]
    }

    public func isOf(user name: UnsafeRawBufferPointer) -> Bool {
        owner.user.withBytes { own in
            guard own.count == name.count, let one = own.baseAddress, let two = name.baseAddress else { return false }
            return memcmp(one, two, own.count) == 0
        }
    }

    /// The images on disk; nil until they are counted after a start.
    public var usage: Usage? { generationStore.usage }

    /// Sets the origin and tokens. Other tokens void the negative entries.
    func update(_ credentials: Credentials) {
        let none = Self.negativeCache(owner, services)
        // The old negative cache is released after the lock.
        _ = state.withLockedValue { state -> NegativeCache? in
            state.credentials = credentials
            // Read under the lock: of two concurrent calls, the last one sets both credentials and family.
            let family = credentials.family
            guard state.coordinator.tokenFamily != family else { return nil }
            defer { state.coordinator.negativeCache = none }
            state.coordinator.tokenFamily = family
            return state.coordinator.negativeCache
        }
    }

    // MARK: GET from memory

    /// Returns the fresh image in memory; with `url`, only an image downloaded from it. Costs one lock and one lookup.
    public func hit(_ imageKey: ImageKey, url: String? = nil) -> ServedImage? {
        let now = services.time.now
        return state.withLockedValue { $0.freshEntry(imageKey, url: url, now: now)?.served }
    }

    /// The framed reply of ``hit(_:url:)``, without a copy of the image's record.
    public func readyReply(_ imageKey: ImageKey) -> ByteBuffer? {
        let now = services.time.now
        return state.withLockedValue { $0.freshEntry(imageKey, url: nil, now: now)?.served.image.bytes.framed }
    }

    // MARK: GET from the page cache

    /// Reads from disk without blocking, if the kernel has the entry in memory. Call it after ``hit(_:url:)``; if it
    /// returns no image, pass its result to ``get(_:after:resolve:)``.
    ///
    /// A purge, PUT or download that changes an image meanwhile voids the lookup (I3, I7).
    public func lookUpOnDisk(_ query: ImageQuery) -> DiskLookup {
        let imageKey = query.imageKey
        let now = services.time.now
        let before = state.withLockedValue { $0.mayReadFromDisk(imageKey, now: now) ? $0.imageChanges : nil }
        guard let before else { return DiskLookup(image: nil, cache: self, imageChanges: nil) }
        switch generationStore.readCached(imageKey, framing: services.framing) {
        case .nothing: return DiskLookup(image: nil, cache: self, imageChanges: before)
        case .image(let found):
            let found = found.record.sourceDigest == nil ? found : withCurrentSource(found, in: imageKey)
            guard let found, query.accepts(found), found.record.freshness.state(at: now) == .fresh else { break }
            return DiskLookup(image: serve(found, from: imageKey, before, now: now), cache: self, imageChanges: nil)
        case .unknown: break
        }
        return DiskLookup(image: nil, cache: self, imageChanges: nil)
    }

    /// Puts the image into memory; nil if a stored image has changed since the lookup.
    private func serve(_ image: Image, from imageKey: ImageKey, _ before: UInt64, now: Int64) -> ServedImage? {
        let kept = services.memory.admits(image) ? imageKey.detached() : nil
        let change = state.withLockedValue { state -> MemoryChange? in
            guard state.isOpen, state.imageChanges == before, state.coordinator.suitsTokens(image) else { return nil }
            return kept.map { remember(image, in: $0, &state) } ?? MemoryChange()
        }
        guard let change else { return nil }
        if kept != nil { apply(change) }
        services.counters.count(.diskHits)
        return ServedImage(image, from: .disk, at: now)
    }

    // MARK: GET that waits

    /// Milliseconds that a request waits by default.
    public var defaultWait: Int64 { origin?.timeout ?? 4_000 }

    /// Checks a URL that a client named.
    public func target(of imageKey: ImageKey, url: String) throws(CacheFailure) -> DownloadTarget {
        guard let origin else {
            throw .denied("URL needs an origin, and none is configured for this user")
        }
        return try services.fetcher.target(origin: origin, user: owner.user, imageKey: imageKey, url: url)
    }

    /// Resolves a GET from memory or negative entries, or else lets it join flights.
    ///
    /// The first is a `.read` flight, skipped if `lookup` proves that nothing is stored; a `.download` flight follows
    /// if needed. A rendition waits for a `.source` flight instead, then for a `.render` flight.
    ///
    /// Calls `resolve` exactly once, on any thread, maybe before this returns; after ``leave(_:)`` only if the result
    /// was being delivered already. `resolve` must not block: invalidations wait for it.
    /// - Parameter lookup: the result of ``lookUpOnDisk(_:)``.
    @discardableResult
    public func get(
        _ query: ImageQuery, after lookup: DiskLookup? = nil,
        resolve: @escaping @Sendable (Result<ServedImage?, CacheFailure>) -> Void
    ) -> WaiterID {
        // The image key's bytes belong to the request.
        let query = query.detached()
        // The route depends on the image held and is computed without the lock; the change below decides.
        let (id, held) = state.withLockedValue { state in
            let id = WaiterID(number: state.coordinator.flights.nextNumber())
            let held = state.coordinator.storing(query.imageKey) ?? state.memory[query.imageKey]?.served
            return (id, held.flatMap { state.coordinator.suitsTokens($0.image) ? $0 : nil })
        }
        let waiter = Waiter(id: id, query: query, resolve: resolve)
        let route = self.route(for: query.imageKey, held: held?.image)
        let now = services.time.now
        change { state in
            if let closeReason = state.closeReason {
                return Consequences(effects: [.resolve(waiter, .failure(closeReason))])
            }
            let memory = state.memory[query.imageKey]?.served
            let effects = state.coordinator.get(
                waiter, memory: memory, diskIsEmpty: isStillEmpty(lookup, state), route: route, now: now)
            return Consequences(effects: effects)
        }
        return id
    }

    private func isStillEmpty(_ lookup: DiskLookup?, _ state: State) -> Bool {
        guard let lookup, lookup.cache === self else { return false }
        return lookup.imageChanges == state.imageChanges
    }

    /// Removes a waiter. A download without waiters continues for a grace period of 5 s.
    public func leave(_ waiter: WaiterID) {
        change { Consequences(effects: $0.coordinator.leave(waiter)) }
    }

    /// Ends a waiter that timed out: it gets the stale image or the source of its rendition, else TIMEOUT.
    public func expire(_ waiter: WaiterID) {
        change { Consequences(effects: $0.coordinator.expire(waiter)) }
    }

    // MARK: Where an image comes from

    /// Returns where to request the image of a key.
    /// - Parameter put: the key of an image that a client PUT; renditions are made from it even if the origin has one.
    func route(for imageKey: ImageKey, held: Image?, source put: ImageKey? = nil) -> Route {
        let origin = origin
        let source = put ?? RenditionPolicy.source(of: imageKey, origin)
        guard let origin else { return Route(source: source) { .success(nil) } }
        let fallback = origin.fallback?.image(services.framing, digest: services.store.digest)
        return Route(fallback: fallback, source: source, isSourceOfURLs: put == nil) {
            // Without a PUT source, the origin is asked for the source of the rendition.
            self.target(of: origin, for: put == nil ? source ?? imageKey : imageKey, held: held)
        }
    }

    private func target(
        of origin: Origin, for imageKey: ImageKey, held: Image?
    ) -> Result<DownloadTarget?, CacheFailure> {
        func target(_ url: String?) -> Result<DownloadTarget?, CacheFailure> {
            Result { () throws(CacheFailure) in
                try services.fetcher.target(origin: origin, user: owner.user, imageKey: imageKey, url: url)
            }
        }
        let usual = target(nil)
        // The URL of a rendition is that of its source, which may be another size.
        if held?.record.sourceDigest != nil { return usual }
        guard case .url(let url)? = held?.record.provenance, case .success(let template?) = usual, url != template.url
        else { return usual }
        // The stored image is a stand-in: an earlier upstream had failed. Retry the chain from its beginning.
        if held?.record.isStandIn == true { return usual }
        // The upstream that gave the held image first, then the others.
        if let chain = template.beginning(at: url) { return .success(chain) }
        let other = target(url)
        // On failure, the configuration has changed and no longer allows that URL.
        return if case .success = other { other } else { usual }
    }

    // MARK: Effects

    struct Consequences: Sendable {
        var effects: [RequestCoordinator.Effect] = []
        var memory = MemoryChange()
    }

    struct Change {
        fileprivate let consequences: Consequences
        fileprivate let delivery: DrainGroup
    }

    /// Changes the state under the lock, then performs the consequences without it.
    func change(_ body: (inout State) -> Consequences) { finish(begin(body)) }

    /// Changes the state. Call ``finish(_:)`` once, and soon.
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
            case .resolve(let waiter, let outcome):
                if !waiter.query.isForRendition { count(outcome) }
                waiter.resolve(outcome)
            case .read(let flight):
                services.imagePool.submit(for: owner.uid) { self.read(flight) }
            case .requestSource(let flight, let query):
                requestSource(flight, query)
            case .render(let flight, let source):
                render(flight, source)
            case .download(let flight, let target):
                ImageDownload.start(flight, target, in: self)
            case .cancel(let handle):
                services.counters.count(.downloadsCancelled)
                handle.cancel()
            case .store(let flight):
                storeLater(flight)
            case .drop(let flight):
                services.imagePool.submit(for: owner.uid) { self.drop(flight) }
            case .changed(let imageKey):
                services.events.publish(
                    UserEvent(owner: owner, kind: .update(imageKey.profile.detached()), epoch: epoch))
            case .grace(let flight, let number):
                // Weak: the timer must not keep a closed cache alive.
                _ = services.time.after(milliseconds: Self.grace) { [weak self] in
                    self?.change { Consequences(effects: $0.coordinator.graceEnded(flight, number)) }
                }
            }
        }
    }

    /// Milliseconds that a download continues without waiters.
    private static var grace: Int64 { 5_000 }

    private func count(_ outcome: Result<ServedImage?, CacheFailure>) {
        guard case .success(let served?) = outcome else { return }
        switch served.source {
        case .memory, .disk:
            if served.isStale { services.counters.count(.staleServed) }
            if served.source == .disk { services.counters.count(.diskHits) }
        case .fallback: services.counters.count(.fallbacksServed)
        case .origin, .revalidated, .put:
            // Just received or confirmed, hence not counted as stale.
            break
        }
    }

    // MARK: Reading from disk

    /// Performs and ends a `.read` flight. Blocks on the disk.
    private func read(_ flight: FlightID) {
        let imageKey = flight.imageKey
        var image: Image?
        do {
            let isRemoved = state.withLockedValue { $0.beingRemoved.contains(imageKey.profile) }
            let read = isRemoved ? nil : try generationStore.read(imageKey, framing: services.framing)
            image = read.flatMap { image in state.withLockedValue { $0.coordinator.suitsTokens(image) } ? image : nil }
        } catch {
            // The store was closed; the invalidation has resolved the waiters.
        }
        let now = services.time.now
        let source = putSource(of: imageKey, held: image, now: now)
        let route = self.route(for: imageKey, held: image, source: source)
        if route.source == nil, image?.record.sourceDigest != nil { image = nil }
        change { [image] state in
            guard let effects = state.coordinator.readEnded(flight, image: image, route: route, now: now) else {
                return Consequences()
            }
            // A rendition goes into memory only once its source is known to be the same.
            guard let image, image.record.sourceDigest == nil else { return Consequences(effects: effects) }
            return Consequences(effects: effects, memory: remember(image, in: imageKey, &state))
        }
    }

    // MARK: Writing to disk

    /// Queues the write of a downloaded image: `WriteBehind` calls ``store(_:)``, which calls `GenerationStore.write`.
    /// Meanwhile the coordinator holds the image, not `WriteBehind`, so that an invalidation frees it (I11).
    private func storeLater(_ flight: FlightID) {
        guard let image = imageToStore(flight) else { return }
        guard !services.writes.add(account: quotaAccount, bytes: image.bytes.storage, { self.store(flight) }) else {
            return
        }
        services.counters.count(.storesSkipped)
        storeFailed(flight)
    }

    private func imageToStore(_ flight: FlightID) -> Image? {
        state.withLockedValue { state in
            state.coordinator.mayStore(flight) ? state.coordinator.storing(flight.imageKey)?.image : nil
        }
    }

    /// Writes a downloaded image. Its waiters already have it, so a failure costs only a later download. Blocks.
    private func store(_ flight: FlightID) {
        guard let image = imageToStore(flight) else { return }
        do {
            let isWritten = try generationStore.write(
                flight.imageKey, image,
                isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayStore(flight) } },
                committed: {})
            state.withLockedValue { $0.coordinator.stored(flight) }
            guard isWritten else { return }
            generationStore.makeRoom(keeping: image.record.sourceDigest == nil ? flight.imageKey : nil)
            guard image.record.sourceDigest != nil else { return }
            // Trimming runs on the image pool, so that it does not delay other writes.
            services.imagePool.submit(for: owner.uid) { self.trimRenditions(keeping: flight.imageKey) }
        } catch StoreError.closed {
            // Purged or logged out meanwhile.
        } catch {
            services.counters.count(.storeFailures)
            storeFailed(flight)
        }
    }

    private func storeFailed(_ flight: FlightID) {
        change { Consequences(effects: $0.coordinator.storeFailed(flight)) }
    }

    /// Removes an entry that must not be served again. Blocks on the disk.
    private func drop(_ flight: FlightID) {
        do {
            try generationStore.drop(
                flight.imageKey, isCurrent: { state.withLockedValue { $0.isOpen && $0.coordinator.mayDrop(flight) } })
        } catch StoreError.closed {
            // The whole generation is being removed.
        } catch {
            services.counters.count(.storeFailures)
        }
        state.withLockedValue { $0.coordinator.dropped(flight) }
    }

    // MARK: Memory

    // The cache finds entries under its own lock; the memory tier decides only which to evict. It calls back under its
    // own lock, so changes are passed to it after the cache's lock is released.

    struct MemoryChange: Sendable {
        var added: MemoryEntry?
        var removed: [MemoryEntry] = []
    }

    func remember(_ image: Image, in imageKey: ImageKey, _ state: inout State) -> MemoryChange {
        var change = forget(imageKey, &state)
        if image.record.sourceDigest == nil {
            // Renditions that are still good are found on disk again.
            change.removed += state.memory.removeRenditions(of: imageKey.profile, but: image)
        }
        guard services.memory.admits(image) else { return change }
        let entry = MemoryEntry(
            served: ServedImage(image, from: .memory, at: services.time.now), imageKey: imageKey, account: quotaAccount,
            onEvict: { [weak self] entry in self?.evicted(entry) })
        state.memory.insert(entry)
        change.added = entry
        return change
    }

    func forget(_ imageKey: ImageKey, _ state: inout State) -> MemoryChange {
        MemoryChange(removed: state.memory.remove(imageKey).map { [$0] } ?? [])
    }

    /// Call it without the cache's lock.
    func apply(_ change: MemoryChange) {
        services.memory.remove(change.removed)
        if let added = change.added { services.memory.admit(added) }
    }

    private func evicted(_ entry: MemoryEntry) {
        state.withLockedValue { state in
            if state.memory[entry.imageKey] === entry { _ = state.memory.remove(entry.imageKey) }
        }
    }
}

extension UserCache.State {
    /// The memory entry of an image key, if it is fresh, suits the tokens and came from the URL, if one is named. Marks
    /// it as used.
    fileprivate mutating func freshEntry(_ imageKey: ImageKey, url: String?, now: Int64) -> MemoryEntry? {
        guard let entry = memory[imageKey], entry.freshness.state(at: now) == .fresh else { return nil }
        if let family = entry.tokenFamily, family != coordinator.tokenFamily { return nil }
        if let url, entry.served.image.record.provenance != .url(url) { return nil }
        entry.markUsed()
        memoryHits += 1
        return entry
    }

    /// Whether the entry on disk may be served: nothing is in progress for the image key, and the origin is not known
    /// to have no image. An entry that could not be removed may still be on disk.
    func mayReadFromDisk(_ imageKey: ImageKey, now: Int64) -> Bool {
        isOpen && memory[imageKey] == nil && coordinator.flights[imageKey] == nil
            && !beingRemoved.contains(imageKey.profile)
            && !coordinator.negativeCache.hasMissing(imageKey, at: now)
    }
}

/// The result of ``UserCache/lookUpOnDisk(_:)``. If it found no image, it can save the read that blocks.
public struct DiskLookup: Sendable {
    /// The image, if it may be served.
    public let image: ServedImage?
    fileprivate let cache: UserCache
    /// If the disk held nothing: ``UserCache/State/imageChanges`` before the read. Otherwise nil.
    fileprivate let imageChanges: UInt64?
}
