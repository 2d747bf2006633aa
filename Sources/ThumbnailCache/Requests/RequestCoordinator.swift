import DequeModule

/// The coordinator in one user's cache: who waits for what, and what follows when something ends.
///
/// A value without effects. Every method takes what happened and returns what is now to be done, in order; the
/// caller holds its lock around the method and acts after letting go of it. So every race is a sequence of calls that a
/// table test can write down.
struct RequestCoordinator: Sendable {
    /// What is to be done, outside the lock, in the order given.
    enum Effect: Sendable {
        case answer(Waiter, GetOutcome)
        /// Look on disk, then report with ``readEnded(_:_:image:route:now:)``.
        case read(Slot, flight: UInt64)
        /// Look for a larger image of the slot's profile, then report with
        /// ``largerEnded(_:_:found:isConclusive:now:)``.
        case findLarger(Slot, flight: UInt64)
        /// Download, then report with ``downloadEnded(_:_:url:_:route:now:)``.
        case download(Slot, DownloadTarget, flight: UInt64)
        case cancel(any DownloadHandle)
        /// Write to disk if ``mayStore(_:_:)`` still says so, then report with ``stored(_:_:)`` or ``notStored(_:_:)``.
        case store(Slot, flight: UInt64)
        /// What is held in the slot is not to be served again, though nothing takes its place on disk: remove it, if
        /// ``mayDrop(_:_:)`` still says so, then report with ``dropped(_:_:)``.
        case drop(Slot, flight: UInt64)
        /// The last waiter has left: after a grace, report with ``graceEnded(_:url:_:)``.
        case grace(Slot, url: String, number: UInt64)
    }

    /// Where an image is downloaded from when it is not held, for a request that names no URL; nil without an origin.
    /// Found only when somebody wants to know, and once: to fill in a template costs more than a hit.
    final class Route {
        typealias Target = Result<DownloadTarget?, CacheFailure>

        private(set) lazy var target: Target = find()
        private let find: () -> Target

        init(_ find: @escaping () -> Target) {
            self.find = find
        }

        static func success(_ target: DownloadTarget?) -> Route { Route { .success(target) } }
        static func failure(_ failure: CacheFailure) -> Route { Route { .failure(failure) } }
    }

    struct Place: Sendable {
        let slot: Slot
        /// The download waited for; nil for the look on disk.
        let url: String?
    }

    // Touched by this type alone; `RequestCoordinator+Ending.swift` is a part of it.
    var activity: [Slot: SlotActivity] = [:]
    var places: [WaiterID: Place] = [:]
    var negativeCache: NegativeCache
    var backoff: RevalidationBackoff
    /// The tokens that are shown now: see ``LoginTokens/family``.
    var tokenFamily: UInt32
    private var lastNumber: UInt64 = 0

    /// - Parameters:
    ///   - absenceLimit: how many missing images are remembered at most, and how many that failed to be refreshed.
    ///   - lease: for what each of these takes.
    init(absenceLimit: Int, tokenFamily: UInt32 = 0, lease: () -> MemoryLease) {
        negativeCache = NegativeCache(limit: absenceLimit, memory: lease())
        backoff = RevalidationBackoff(limit: absenceLimit, memory: lease())
        self.tokenFamily = tokenFamily
    }

    /// Whether an image is for the tokens that are shown now (RFC 9111 section 4.1). One that is not is as good as missing.
    func suits(_ image: Image) -> Bool {
        image.record.tokenFamily.map { $0 == tokenFamily } ?? true
    }

    /// The same of what an origin said.
    func suits(_ result: DownloadResult) -> Bool {
        switch result {
        case .image(let image, _), .confirmed(let image, _): suits(image)
        case .missing(_, let family): family == tokenFamily
        case .failed: true
        }
    }

    /// A number larger than any given before: names flights, waiters, graces and PUTs.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    var isIdle: Bool { activity.isEmpty && places.isEmpty }

    // MARK: Asking

    /// A GET that memory alone does not settle. `memory` is what memory holds in the slot, in whatever state; with `diskIsEmpty` it
    /// is known that a look on disk would find nothing.
    mutating func get(
        _ waiter: Waiter, memory: ServedImage?, diskIsEmpty: Bool = false, route: Route, now: Int64
    ) -> [Effect] {
        let slot = waiter.query.slot
        if let held = storing(slot) ?? memory {
            return settle(waiter, held: held, route: route, now: now)
        }
        // What is being removed is as good as gone.
        if activity[slot]?.dropping != nil { return settle(waiter, held: nil, route: route, now: now) }
        if isKnownEmpty(waiter.query, route, now) { return answerNone(waiter, route, now) }
        if activity[slot]?.read != nil {
            places[waiter.id] = Place(slot: slot, url: nil)
            activity[slot]?.read?.join(waiter)
            return []
        }
        if diskIsEmpty { return settle(waiter, held: nil, route: route, now: now) }
        places[waiter.id] = Place(slot: slot, url: nil)
        var flight = Flight(number: nextNumber())
        flight.join(waiter)
        activity[slot, default: SlotActivity()].read = flight
        return [.read(slot, flight: flight.number)]
    }

    /// Answers a waiter with what is held, as far as that will do, else makes it wait for a download.
    private mutating func settle(_ waiter: Waiter, held: ServedImage?, route: Route, now: Int64) -> [Effect] {
        let query = waiter.query
        let held = held.flatMap { suits($0.image) ? $0 : nil }
        var fallback: ServedImage?
        if let held, query.accepts(held.image) {
            let served = ServedImage(held.image, from: held.source, at: now)
            switch held.image.record.freshness.state(at: now) {
            case .fresh:
                return [.answer(waiter, .success(served))]
            case _ where query.cachedOnly:
                return [.answer(waiter, .success(served))]
            case .staleServable:
                return [.answer(waiter, .success(served))] + refresh(query, held: served, route: route, now: now)
            case .staleOnError:
                fallback = served
            case .expired:
                break
            }
        }
        if query.cachedOnly && !query.largerWillDo { return [.answer(waiter, .success(nil))] }
        switch target(of: query, route) {
        case .success(nil):
            return answerNone(waiter, route, now)
        case .success where isAbsent(query, route, now):
            return answerNone(waiter, route, now)
        case _ where query.cachedOnly:
            return [.answer(waiter, .success(nil))]
        case .failure(let failure):
            return [answer(waiter, failedBy: failure, fallback: fallback)]
        case .success(let target?):
            places[waiter.id] = Place(slot: query.slot, url: target.url)
            let ownsSlot = held.map { query.accepts($0.image) } ?? true
            let basis = basis(in: held?.image, at: target, now)
            return start(query.slot, to: target, held: fallback, basis: basis, ownsSlot: ownsSlot) { $0.join(waiter) }
        }
    }

    /// Downloads anew, behind the back of whoever was served the stale image, unless that has just failed.
    private mutating func refresh(_ query: ImageQuery, held: ServedImage, route: Route, now: Int64) -> [Effect] {
        guard case .success(let target?) = target(of: query, route), !isAbsent(query, route, now),
            !backoff.holds(query.slot, url: target.url, at: now)
        else { return [] }
        let basis = basis(in: held.image, at: target, now)
        return start(query.slot, to: target, held: held, basis: basis, ownsSlot: true) { $0.isBackground = true }
    }

    /// What a download can be conditional on: the image held, if it came from there and there is something to ask with.
    private func basis(in held: Image?, at target: DownloadTarget, _ now: Int64) -> Image? {
        guard let held, held.record.provenance == .url(target.url), held.record.fields.hasValidator(now: now) else {
            return nil
        }
        return held
    }

    /// Joins the download under way for that URL, or starts it.
    private mutating func start(
        _ slot: Slot, to target: DownloadTarget, held: ServedImage?, basis: Image?, ownsSlot: Bool,
        join: (inout Flight) -> Void
    ) -> [Effect] {
        if var flight = activity[slot]?.downloads[target.url] {
            join(&flight)
            activity[slot]?.downloads[target.url] = flight
            return []
        }
        var flight = Flight(number: nextNumber())
        flight.held = held
        flight.basis = basis
        flight.ownsSlot = ownsSlot
        join(&flight)
        activity[slot, default: SlotActivity()].downloads[target.url] = flight
        return [.download(slot, target, flight: flight.number)]
    }

    private func target(of query: ImageQuery, _ route: Route) -> Route.Target {
        query.named.map { .success($0) } ?? route.target
    }

    // MARK: What ends

    /// The look on disk has ended. Nil when that look is no longer the one that counts.
    mutating func readEnded(
        _ slot: Slot, _ number: UInt64, image: Image?, route: Route, now: Int64
    ) -> [Effect]? {
        guard var read = activity[slot]?.read, read.number == number else { return nil }
        activity[slot]?.read = nil
        let held = image.map { ServedImage($0, from: .disk, at: now) }
        var effects: [Effect] = []
        for waiter in read.finish() {
            places[waiter.id] = nil
            effects += settle(waiter, held: held, route: route, now: now)
        }
        tidy(slot)
        return effects
    }

    /// Asked right before a download starts: not if it has ended since it was asked for.
    func isUnderWay(_ slot: Slot, _ number: UInt64, url: String) -> Bool {
        activity[slot]?.downloads[url]?.number == number
    }

    /// What a download is to be conditional on.
    func basis(_ slot: Slot, _ number: UInt64, url: String) -> Image? {
        isUnderWay(slot, number, url: url) ? activity[slot]?.downloads[url]?.basis : nil
    }

    /// A download has started and can be stopped by `handle`.
    mutating func downloadStarted(_ slot: Slot, _ number: UInt64, url: String, handle: any DownloadHandle) -> [Effect] {
        guard isUnderWay(slot, number, url: url) else { return [.cancel(handle)] }
        activity[slot]?.downloads[url]?.handle = handle
        return []
    }

    /// The origin said that something is unchanged which is not what is held: it is asked again, for an image whatever is held.
    /// Under a new number, since what is still to be heard of the old request is not about this one.
    mutating func askAgain(_ slot: Slot, _ number: UInt64, _ target: DownloadTarget) -> [Effect] {
        guard isUnderWay(slot, number, url: target.url) else { return [] }
        let next = nextNumber()
        activity[slot]?.downloads[target.url]?.number = next
        activity[slot]?.downloads[target.url]?.handle = nil
        activity[slot]?.downloads[target.url]?.basis = nil
        return [.download(slot, target, flight: next)]
    }

    /// A download has ended. Nil when it is no longer the current one: then its outcome reaches nobody.
    /// - Parameter route: for a slot that holds nothing.
    mutating func downloadEnded(
        _ slot: Slot, _ number: UInt64, url: String, _ result: DownloadResult, route: Route, now: Int64
    ) -> [Effect]? {
        guard var flight = activity[slot]?.downloads[url], flight.number == number else { return nil }
        activity[slot]?.downloads[url] = nil
        let waiters = flight.finish()
        for waiter in waiters { places[waiter.id] = nil }
        var effects: [Effect] = []
        switch result {
        case .image(let image, let storable), .confirmed(let image, let storable):
            let served = ServedImage(image, from: result.source, at: now)
            effects += waiters.map { .answer($0, .success(served)) }
            effects += take(served, storable: storable, into: slot, flight: number, route: route, now: now)
        case .missing(let until, _):
            negativeCache.remember(slot, url: url, until: until, leavesSlotEmpty: flight.ownsSlot, now: now)
            for waiter in waiters { effects += answerNone(waiter, route, now) }
            if flight.ownsSlot {
                effects += overtakeRead(of: slot, by: nil, route: route, now: now)
                effects += drop(slot, flight: number)
            }
        case .failed(let failure):
            if flight.isBackground { backoff.failed(slot, url: url, at: now) }
            effects += waiters.map { answer($0, failedBy: failure, fallback: flight.held) }
        }
        tidy(slot)
        return effects
    }

    /// A newer image has come for a slot: nothing older in it is served from here on.
    private mutating func take(
        _ served: ServedImage, storable: Bool, into slot: Slot, flight number: UInt64, route: Route, now: Int64
    ) -> [Effect] {
        negativeCache.forget(slot)
        backoff.forget(slot)
        for url in activity[slot]?.downloads.keys.map({ $0 }) ?? [] {
            activity[slot]?.downloads[url]?.ownsSlot = false
        }
        let overtaken = overtakeRead(of: slot, by: served, route: route, now: now)
        guard storable else { return overtaken + drop(slot, flight: number) }
        activity[slot, default: SlotActivity()].dropping = nil
        let inMemory = ServedImage(served.image, from: .memory, at: now)
        // A confirmed image that has never reached the disk has it no more than one that came just now.
        let isOnDisk = served.source == .revalidated && activity[slot]?.storing?.isConfirmed != false
        activity[slot]?.storing = SlotActivity.Storing(flight: number, served: inMemory, isConfirmed: isOnDisk)
        return overtaken + [.store(slot, flight: number)]
    }

    mutating func drop(_ slot: Slot, flight number: UInt64) -> [Effect] {
        activity[slot, default: SlotActivity()].storing = nil
        activity[slot]?.dropping = number
        return [.drop(slot, flight: number)]
    }

    /// A look on disk that began before a newer answer came would bring back what that replaced: its waiters get the
    /// newer image, or find the slot empty.
    private mutating func overtakeRead(
        of slot: Slot, by served: ServedImage?, route: Route, now: Int64
    ) -> [Effect] {
        guard var read = activity[slot]?.read else { return [] }
        activity[slot]?.read = nil
        var effects: [Effect] = []
        for waiter in read.finish() {
            places[waiter.id] = nil
            // Whoever named no URL takes the newer image, whatever its freshness; it came just now.
            if let served, waiter.query.accepts(served.image) {
                effects.append(.answer(waiter, .success(served)))
            } else {
                effects += settle(waiter, held: served, route: route, now: now)
            }
        }
        return effects
    }

    /// - Parameter fallback: the stale image that is held, which is better than some failures.
    func answer(_ waiter: Waiter, failedBy failure: CacheFailure, fallback: ServedImage?) -> Effect {
        guard let fallback, failure.allowsStale, waiter.query.accepts(fallback.image), suits(fallback.image) else {
            return .answer(waiter, .failure(failure))
        }
        return .answer(waiter, .success(fallback))
    }

    // MARK: Absence

    private func isAbsent(_ query: ImageQuery, _ route: Route, _ now: Int64) -> Bool {
        guard case .success(let target?) = target(of: query, route) else { return false }
        return negativeCache.contains(query.slot, url: target.url, at: now)
    }

    /// Whether it is known without a look on disk that there is nothing to be had. A request that names no URL takes
    /// what is held from anywhere: for that the slot must be empty.
    private func isKnownEmpty(_ query: ImageQuery, _ route: Route, _ now: Int64) -> Bool {
        if query.named != nil { return isAbsent(query, route, now) }
        guard case .success(let target?) = route.target else { return false }
        return negativeCache.leavesEmpty(query.slot, url: target.url, at: now)
    }

    mutating func tidy(_ slot: Slot) {
        if activity[slot]?.isIdle == true { activity[slot] = nil }
    }
}
