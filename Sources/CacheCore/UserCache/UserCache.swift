import Glibc
import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

/// One generation of one user's cache: the scope itself.
///
/// It is made by a log-in or a purge, is handed to whoever works for that user, and is the only thing that knows the
/// generation's store. A purge replaces the object, a log-out closes it. Late work still holds the old one: its keys
/// are wiped, its flights are gone, and nothing in it leads to the new one. That is I3 by construction.
///
/// Safe from any thread. The lock is never held across a system call or a callback.
public final class UserCache: Sendable {
    struct State {
        /// Why there is no new work any more; nil while the cache is open.
        var invalidation: CacheFailure?
        /// What the user logged in with; may change while the cache is open.
        var account: Account
        var memory = MemoryTable()
        var memoryHits = 0
        var coordinator: RequestCoordinator
        /// Answers that were decided under the lock and are on their way to whoever asked, outside it. An ending that
        /// did not wait for them could be overtaken: the image would arrive behind the receipt (I3). They never block.
        private(set) var deliveries = DrainGroup()

        /// Counts an answer among those on their way, until `leave()` is called for it.
        mutating func beginDelivery() -> DrainGroup {
            // Never closed: who drains it has replaced it before.
            _ = deliveries.enter()
            return deliveries
        }

        /// The answers on their way, for an ending to wait for; those decided later hold up nobody.
        mutating func replaceDeliveries() -> DrainGroup {
            defer { deliveries = DrainGroup() }
            return deliveries
        }

        /// Grows when an image that was read from disk before may no longer be the one to serve.
        private(set) var invalidations: UInt64 = 0
        var largerLookups = LargerLookups()
        /// Profiles whose entries are being removed. What of them is still on disk is gone: so a purge happens for all
        /// at once, and whoever finds nothing may have it downloaded anew.
        var beingRemoved: Set<OpaqueID> = []
        var warming: WarmingList

        /// An image of a profile has come, or has gone.
        mutating func invalidateLookups(of profile: OpaqueID) {
            invalidations += 1
            largerLookups.invalidate(profile)
        }

        var isOpen: Bool { invalidation == nil }

        /// The entry of an image key if it is fresh and came from the URL, if one is named; marks it as used.
        fileprivate mutating func useFresh(_ imageKey: ImageKey, url: String?, now: Int64) -> MemoryEntry? {
            guard let entry = memory[imageKey], entry.freshness.state(at: now) == .fresh else { return nil }
            if let family = entry.tokenFamily, family != coordinator.tokenFamily { return nil }
            if let url, entry.served.image.record.provenance != .url(url) { return nil }
            entry.markUsed()
            memoryHits += 1
            return entry
        }
    }

    /// Where a user's images come from.
    struct Account: Sendable {
        /// Nil for the default origin.
        var origin: String?
        /// What the log-in brought. With a refresh token ``service`` has what is shown now.
        var tokens = LoginTokens()
        /// Renews the access token, where it can be; shared with the user's next cache, should this one be purged.
        var service: AccessTokenService?

        /// See ``LoginTokens/family``.
        var family: UInt32 { (service?.tokens ?? tokens).family }
    }

    public let owner: Owner
    /// Grows with every log-in and purge of the uid.
    public let epoch: UInt64
    let generationStore: any GenerationStore
    let services: CacheServices
    let state: NIOLockedValueBox<State>

    init(owner: Owner, epoch: UInt64, generationStore: any GenerationStore, account: Account, services: CacheServices) {
        self.owner = owner
        self.epoch = epoch
        self.generationStore = generationStore
        self.services = services
        let coordinator = RequestCoordinator(
            negativeCache: Self.negativeCache(owner, services), tokenFamily: account.family)
        let warming = WarmingList(memory: services.budget.lease(for: owner.uid))
        self.state = NIOLockedValueBox(State(account: account, coordinator: coordinator, warming: warming))
    }

    /// The account that what is shared out is shared out to: of all the uids that it may use (F80).
    var quotaAccount: UInt32 { services.budget.account(of: owner.uid) }

    /// Whether this is the cache of a user of that name.
    public func isOf(user name: UnsafeRawBufferPointer) -> Bool {
        owner.user.withBytes { own in
            guard own.count == name.count, let one = own.baseAddress, let two = name.baseAddress else { return false }
            return memcmp(one, two, own.count) == 0
        }
    }

    // MARK: GET

    /// The image in memory, when it is fresh and the one asked for: the whole of a hit. Costs one lock and one look-up.
    public func hit(_ imageKey: ImageKey, url: String? = nil) -> ServedImage? {
        let now = services.time.now
        return state.withLockedValue { $0.useFresh(imageKey, url: url, now: now)?.served }
    }

    /// The reply, ready to be sent, with the image in memory when that is fresh: ``hit(_:url:)`` for whoever wants
    /// nothing but the image, without a copy of all that is known of it.
    public func readyReply(_ imageKey: ImageKey) -> ByteBuffer? {
        let now = services.time.now
        return state.withLockedValue { $0.useFresh(imageKey, url: nil, now: now)?.served.image.bytes.framed }
    }

    /// Answers a GET that ``hit(_:url:)`` did not: from disk, from a download under way, or from one of its own.
    ///
    /// `resolve` is called exactly once, on any thread, maybe before this returns; after ``leave(_:)`` only if the
    /// answer was on its way already. It must not block: an ending waits for it.
    /// - Parameter lookup: what ``lookAtDisk(_:)`` has just seen.
    /// - Returns: the name under which the request waits.
    @discardableResult
    public func get(
        _ query: ImageQuery, after lookup: DiskLookup? = nil, resolve: @escaping @Sendable (GetOutcome) -> Void
    ) -> WaiterID {
        // The image key's bytes live as long as the caller's request; what waits keeps its own.
        let query = query.detached()
        let (id, held) = state.withLockedValue { state in
            let id = WaiterID(number: state.coordinator.nextNumber())
            let held = state.coordinator.storing(query.imageKey) ?? state.memory[query.imageKey]?.served
            return (id, held.flatMap { state.coordinator.suits($0.image) ? $0 : nil })
        }
        let waiter = Waiter(id: id, query: query, resolve: resolve)
        let route = self.route(for: query.imageKey, held: held?.image)
        let now = services.time.now
        change { state in
            if let invalidation = state.invalidation {
                return Consequences(effects: [.answer(waiter, .failure(invalidation))])
            }
            let memory = state.memory[query.imageKey]?.served
            // What was seen before something changed is worth nothing (I3, I7).
            let effects = state.coordinator.get(
                waiter, memory: memory, diskIsEmpty: isStillEmpty(lookup, state), route: route, now: now)
            return Consequences(effects: effects)
        }
        return id
    }

    /// The waiter is gone. The last one out leaves the download a grace of 5 s for those who come back.
    public func leave(_ waiter: WaiterID) {
        change { Consequences(effects: $0.coordinator.leave(waiter)) }
    }

    /// The waiter has waited as long as it wanted to: it is answered now, with TIMEOUT or what is held.
    public func expire(_ waiter: WaiterID) {
        change { Consequences(effects: $0.coordinator.expire(waiter)) }
    }

    /// Milliseconds that a request waits when it does not say how long.
    public var defaultWait: Int64 { origin?.timeout ?? 4_000 }

    /// Judges a URL that a client named.
    public func target(of imageKey: ImageKey, url: String) throws(CacheFailure) -> DownloadTarget {
        guard let origin else {
            throw .denied("no origin is configured for this user, so no URL may be named")
        }
        return try services.fetcher.target(origin: origin, user: owner.user, imageKey: imageKey, url: url)
    }

    // MARK: What is held

    /// The images held on disk; nil while they are not yet counted after a start.
    public var usage: Usage? { generationStore.usage }

    var isOpen: Bool { state.withLockedValue { $0.isOpen } }

    var memoryHits: Int { state.withLockedValue { $0.memoryHits } }

    private static func negativeCache(_ owner: Owner, _ services: CacheServices) -> NegativeCache {
        NegativeCache(limit: services.settings().negativeEntries, memory: services.budget.lease(for: owner.uid))
    }

    /// Other tokens may be shown from now on. What is known to be missing was missing for those that were shown before.
    func update(_ account: Account) {
        let none = Self.negativeCache(owner, services)
        // What is forgotten is given up when the lock is let go.
        _ = state.withLockedValue { state -> NegativeCache? in
            state.account = account
            // Read here, so that of two that come at once neither leaves what the tokens no longer are.
            let family = account.family
            guard state.coordinator.tokenFamily != family else { return nil }
            defer { state.coordinator.negativeCache = none }
            state.coordinator.tokenFamily = family
            return state.coordinator.negativeCache
        }
    }

    var account: Account { state.withLockedValue { $0.account } }

    /// The user's origin as it is configured now.
    var origin: Origin? { origin(of: account) }

    func origin(of account: Account) -> Origin? {
        services.settings().origins[account.origin ?? "default"]
    }
}

// MARK: - In memory

// Entries are found here, under the cache's own lock; the tier only decides which go. It is told of changes after the
// lock is let go, since it calls back with its own.
extension UserCache {
    /// What the tier is to be told.
    struct MemoryChange: Sendable {
        var added: MemoryEntry?
        var removed: [MemoryEntry] = []
    }

    /// Puts an image into memory instead of what the image key held.
    func remember(_ image: Image, in imageKey: ImageKey, _ state: inout State) -> MemoryChange {
        var change = forget(imageKey, &state)
        if image.record.rendered == nil {
            // Whatever they were made from, they are found again on disk if they are still good.
            change.removed += state.memory.removeRenditions(of: imageKey.profile, but: image)
        }
        guard services.memory.admits(image) else { return change }
        let entry = MemoryEntry(
            served: ServedImage(image, from: .memory, at: services.time.now), imageKey: imageKey, uid: quotaAccount,
            onEvict: { [weak self] entry in self?.evicted(entry) })
        state.memory.insert(entry)
        change.added = entry
        return change
    }

    func forget(_ imageKey: ImageKey, _ state: inout State) -> MemoryChange {
        MemoryChange(removed: state.memory.remove(imageKey).map { [$0] } ?? [])
    }

    /// Tells the tier. Never with the cache's lock held.
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

/// What a look at the disk that did not wait has seen. Where it showed no image it may save the look that waits.
public struct DiskLookup: Sendable {
    /// The image, if that is the answer.
    public let image: ServedImage?
    fileprivate let cache: UserCache
    /// How many invalidations there had been when there was no image; nil if it is not known whether there is one.
    fileprivate let invalidations: UInt64?
}

extension UserCache {
    /// Answers a GET from disk on the caller's thread, without waiting for anything, where all it takes is in the
    /// kernel's memory. Anything but an image is for ``get(_:after:resolve:)`` to go on with.
    ///
    /// Whatever changes an image key while it is being looked at counts an invalidation, and the look is worth nothing then.
    /// So a purge, a PUT or a download has its effect here as it has on a look that waits (I3, I7).
    public func lookAtDisk(_ query: ImageQuery) -> DiskLookup {
        let imageKey = query.imageKey
        let now = services.time.now
        let before = state.withLockedValue { $0.mayLookAtDisk(imageKey, now: now) ? $0.invalidations : nil }
        var image: ServedImage?
        var isEmpty = false
        if let before {
            switch generationStore.readCached(imageKey, framing: services.framing) {
            case .nothing: isEmpty = true
            case .image(let found):
                let found = found.record.rendered == nil ? found : withSource(found, in: imageKey)
                if let found, query.accepts(found), found.record.freshness.state(at: now) == .fresh {
                    image = serve(found, from: imageKey, before, now: now)
                }
            case .unknown: break
            }
        }
        return DiskLookup(image: image, cache: self, invalidations: isEmpty ? before : nil)
    }

    /// Whether the look has shown that there is no image, and nothing has changed since. What was seen in a cache that
    /// has ended says nothing of the next.
    func isStillEmpty(_ lookup: DiskLookup?, _ state: State) -> Bool {
        guard let lookup, lookup.cache === self else { return false }
        return lookup.invalidations == state.invalidations
    }

    /// Nil when the look was overtaken.
    private func serve(_ image: Image, from imageKey: ImageKey, _ before: UInt64, now: Int64) -> ServedImage? {
        let kept = services.memory.admits(image) ? imageKey.detached() : nil
        let change = state.withLockedValue { state -> MemoryChange? in
            guard state.isOpen, state.invalidations == before, state.coordinator.suits(image) else { return nil }
            return kept.map { remember(image, in: $0, &state) } ?? MemoryChange()
        }
        guard let change else { return nil }
        if kept != nil { apply(change) }
        services.counters.count(.diskHits)
        return ServedImage(image, from: .disk, at: now)
    }
}

extension UserCache.State {
    /// Whether what is on disk is the answer: nothing is going on in the image key, and the origin has not said that there
    /// is nothing. What it no longer has may still be on disk where it could not be removed.
    func mayLookAtDisk(_ imageKey: ImageKey, now: Int64) -> Bool {
        isOpen && memory[imageKey] == nil && coordinator.activity[imageKey] == nil
            && !beingRemoved.contains(imageKey.profile)
            && !coordinator.negativeCache.hasMissing(imageKey, at: now)
    }
}
