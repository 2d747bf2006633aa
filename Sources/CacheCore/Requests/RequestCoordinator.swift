import DequeModule

/// Decides what follows from each request and each result in one user's cache.
///
/// A value without effects. Every method takes an event and returns the effects to perform, in order. The caller
/// performs them after releasing its lock, so that a test can write any race as a sequence of calls. The methods stand
/// in the order in which a GET that misses memory meets them; renditions are in `RequestCoordinator+Renditions.swift`.
struct RequestCoordinator: Sendable {
    enum Effect: Sendable {
        case resolve(Waiter, Result<ServedImage?, CacheFailure>)
        /// Read from disk, then call ``readEnded(_:image:route:now:)``.
        case read(FlightID)
        /// Request the source of a rendition, then call ``sourceEnded(_:_:route:now:)``.
        case requestSource(FlightID, ImageQuery)
        /// Render the image in the size of the image key, then call ``renderEnded(_:_:now:)``.
        case render(FlightID, Image)
        /// Download, then call ``downloadEnded(_:_:negative:route:now:)``.
        case download(FlightID, DownloadTarget)
        case cancel(any DownloadHandle)
        /// Write to disk if ``mayStore(_:)`` still allows it, then call ``stored(_:)`` or ``storeFailed(_:)``.
        case store(FlightID)
        /// Remove the entry of the image key if ``mayDrop(_:)`` still allows it; then call ``dropped(_:)``.
        case drop(FlightID)
        case changed(ImageKey)
        /// After a grace period, call ``graceEnded(_:_:)``.
        case grace(FlightID, number: UInt64)
    }

    /// Where to get an image that is not stored: the URLs to request, the source to render it from, and the image to
    /// serve if the origin has none.
    final class Route {
        /// Nil without an origin. Computed when needed: filling in a URL template costs more than a hit.
        private(set) lazy var target = makeTarget()
        private let makeTarget: () -> Result<DownloadTarget?, CacheFailure>
        /// Returned if the origin has no image.
        let fallback: Image?
        /// The image key from whose image this key's image is rendered; nil if it is requested from the origin.
        let source: ImageKey?
        /// Whether requests with URL are rendered from ``source`` as well. False if a client PUT the source: they are
        /// then downloaded, and the PUT image is not replaced.
        let isSourceOfURLs: Bool

        init(
            fallback: Image? = nil, source: ImageKey? = nil, isSourceOfURLs: Bool = true,
            _ makeTarget: @escaping () -> Result<DownloadTarget?, CacheFailure>
        ) {
            (self.fallback, self.source, self.isSourceOfURLs) = (fallback, source, isSourceOfURLs)
            self.makeTarget = makeTarget
        }

        func target(of query: ImageQuery) -> Result<DownloadTarget?, CacheFailure> {
            query.named.map { .success($0) } ?? target
        }
    }

    var flights = FlightTable()
    var negativeCache: NegativeCache
    var renditions = RenditionsInProgress()
    /// The family of the current tokens: see ``LoginTokens/family``.
    var tokenFamily: UInt32 = 0

    init(negativeCache: NegativeCache, tokenFamily: UInt32 = 0) {
        self.negativeCache = negativeCache
        self.tokenFamily = tokenFamily
    }

    /// A copy for decisions about one image key that have no effect. Small, so that changes of the original meanwhile do
    /// not copy its tables.
    func excerpt(_ imageKey: ImageKey) -> RequestCoordinator {
        var excerpt = RequestCoordinator(
            negativeCache: negativeCache.excerpt(imageKey.profile), tokenFamily: tokenFamily)
        excerpt.flights = flights.excerpt(imageKey)
        excerpt.renditions = renditions
        return excerpt
    }

    // MARK: GET

    /// Handles a GET that memory alone does not answer.
    /// - Parameter diskIsEmpty: whether a read from disk is known to find nothing.
    mutating func get(
        _ waiter: Waiter, memory: ServedImage?, diskIsEmpty: Bool = false, route: Route, now: Int64
    ) -> [Effect] {
        let imageKey = waiter.query.imageKey
        let held = storing(imageKey) ?? memory
        // An entry that is being dropped must not be read.
        if held != nil || flights[imageKey]?.dropping != nil {
            return resolveOrDownload(waiter, held: held, route: route, now: now)
        }
        if isKnownEmpty(waiter.query, route, now) { return [resolveMissing(waiter, route, now)] }
        if diskIsEmpty, flights[imageKey]?.flights[.read] == nil {
            return resolveOrDownload(waiter, held: nil, route: route, now: now)
        }
        return flights.join(waiter, .read).map { [.read($0)] } ?? []
    }

    /// The downloaded image that is being written to disk.
    func storing(_ imageKey: ImageKey) -> ServedImage? { flights[imageKey]?.storing?.served }

    /// Whether negative entries prove that a read from disk would find no acceptable image. A request without URL
    /// accepts any stored image, so one entry must also prove that none is stored (`leavesEmpty`).
    private func isKnownEmpty(_ query: ImageQuery, _ route: Route, _ now: Int64) -> Bool {
        guard isMissing(query, route, now) else { return false }
        guard query.named == nil, case .success(let target?) = route.target else { return query.named != nil }
        return target.contains { negativeCache.leavesEmpty(query.imageKey, url: $0.url, at: now) }
    }

    private func isMissing(_ query: ImageQuery, _ route: Route, _ now: Int64) -> Bool {
        guard case .success(let target?) = route.target(of: query) else { return false }
        return target.allSatisfy { negativeCache.isMissing(query.imageKey, url: $0.url, at: now) }
    }

    /// Handles the end of a read from disk. Nil if the flight is not current.
    mutating func readEnded(_ id: FlightID, image: Image?, route: Route, now: Int64) -> [Effect]? {
        guard let read = flights.finish(id) else { return nil }
        let held = image.map { ServedImage($0, from: .disk, at: now) }
        var effects: [Effect] = []
        for waiter in read.waiters { effects += resolveOrDownload(waiter, held: held, route: route, now: now) }
        tidy(id.imageKey)
        return effects
    }

    /// Resolves a waiter with the stored image if that is acceptable, else lets it wait for a rendition or a download.
    private mutating func resolveOrDownload(
        _ waiter: Waiter, held: ServedImage?, route: Route, now: Int64
    ) -> [Effect] {
        let query = waiter.query
        let held = held.flatMap { suitsTokens($0.image) ? $0 : nil }
        if let source = route.source, query.named == nil || route.isSourceOfURLs,
            let effects = resolveWithRendition(waiter, of: source, held: held, now)
        {
            return effects
        }
        var fallback: ServedImage?
        if let held, query.accepts(held.image) {
            let served = ServedImage(held.image, from: held.source, at: now)
            let resolved = [Effect.resolve(waiter, .success(served))]
            switch held.image.record.freshness.state(at: now) {
            case .fresh: return resolved
            case _ where query.download == .never: return resolved
            case .staleServable where query.download != .renewed:
                return resolved + refresh(query, held: served, served, route, now)
            case .staleServable, .staleOnError: fallback = served
            case .expired: break
            }
            if query.download == .inBackground { return resolved + refresh(query, held: served, fallback, route, now) }
        }
        if query.download == .never, route.fallback == nil { return [.resolve(waiter, .success(nil))] }
        switch route.target(of: query) {
        case .success(nil): return [resolveMissing(waiter, route, now)]
        case .success where isMissing(query, route, now): return [resolveMissing(waiter, route, now)]
        case _ where query.download == .never: return [.resolve(waiter, .success(nil))]
        case _ where query.download == .inBackground:
            return [.resolve(waiter, .success(nil))] + refresh(query, held: held, nil, route, now)
        case .failure(let failure): return [resolveFailed(waiter, failure, fallback: fallback)]
        case .success(let target?):
            if let failure = knownFailure(query, target, now) {
                return [resolveFailed(waiter, failure, fallback: fallback)]
            }
            let begin = download(query, at: target, held: held, fallback, now)
            return flights.join(waiter, .init(target), begin: begin).map { [.download($0, target)] } ?? []
        }
    }

    /// Whether the current tokens may use an image (RFC 9111 section 4.1). If not, it counts as missing.
    func suitsTokens(_ image: Image) -> Bool { (image.record.tokenFamily ?? tokenFamily) == tokenFamily }

    /// Downloads in the background, unless a refresh has just failed.
    private mutating func refresh(
        _ query: ImageQuery, held: ServedImage?, _ fallback: ServedImage?, _ route: Route, _ now: Int64
    ) -> [Effect] {
        guard case .success(let target?) = route.target(of: query), !isMissing(query, route, now),
            knownFailure(query, target, now) == nil,
            !negativeCache.hasJustFailed(query.imageKey, url: target.refreshKey, at: now)
        else { return [] }
        let begin = download(query, at: target, held: held, fallback, now)
        let flight = flights.joinInBackground(query.imageKey, .init(target), begin: begin)
        return flight.map { [.download($0, target)] } ?? []
    }

    /// The failure that a download would end with, according to the last response. Nil for a chain, in which another
    /// upstream may have the image.
    private func knownFailure(_ query: ImageQuery, _ target: DownloadTarget, _ now: Int64) -> CacheFailure? {
        guard target.others.isEmpty else { return nil }
        return negativeCache.unusable(query.imageKey, url: target.url, at: now)
    }

    /// The initial state of a download.
    /// - Parameter held: the image of the image key, whether or not the query accepts it.
    private func download(
        _ query: ImageQuery, at target: DownloadTarget, held: ServedImage?, _ fallback: ServedImage?, _ now: Int64
    ) -> (inout Flight) -> Void {
        let ownsImageKey = held.map { query.accepts($0.image) } ?? true
        let basis = basis(in: held?.image, at: target, now)
        let storedURL: String? = if case .url(let url)? = held?.image.record.provenance { url } else { nil }
        return { flight in
            (flight.staleImage, flight.basis, flight.ownsImageKey) = (fallback, basis, ownsImageKey)
            (flight.target, flight.storedURL) = (target, storedURL)
        }
    }

    /// The image that a download revalidates: the held one, if it came from this target and has a validator.
    private func basis(in held: Image?, at target: DownloadTarget, _ now: Int64) -> Image? {
        guard let held, held.record.fields.hasValidator(now: now),
            target.contains({ held.record.provenance == .url($0.url) })
        else { return nil }
        return held
    }

    // MARK: A waiter without an image

    /// Resolves with the origin's fallback image, or with nil if none is configured.
    func resolveMissing(_ waiter: Waiter, _ route: Route, _ now: Int64) -> Effect {
        guard let image = route.fallback, case .success(let target?) = route.target(of: waiter.query) else {
            return .resolve(waiter, .success(nil))
        }
        // The fallback image is fresh until the first negative entry expires.
        var until = Int64.max
        for upstream in [DownloadTarget](target) {
            until = min(until, negativeCache.missingUntil(waiter.query.imageKey, url: upstream.url, at: now) ?? now)
        }
        var record = image.record
        record.freshness = Freshness(storedAt: now, lifetime: until - now)
        let served = ServedImage(Image(record: record, bytes: image.bytes), from: .fallback, at: now)
        return .resolve(waiter, .success(served))
    }

    /// Resolves with a failure or, if the failure allows it, with `fallback`.
    func resolveFailed(_ waiter: Waiter, _ failure: CacheFailure, fallback: ServedImage?) -> Effect {
        guard let fallback, failure.allowsStale, waiter.query.accepts(fallback.image), suitsTokens(fallback.image)
        else {
            return .resolve(waiter, .failure(failure))
        }
        return .resolve(waiter, .success(fallback))
    }

    // MARK: A download

    func basis(_ id: FlightID) -> Image? { flights[id]?.basis }

    /// See ``Flight/storedURL``.
    func storedURL(_ id: FlightID) -> String? { flights[id]?.storedURL }

    /// Whether a chain ends with a failure because the upstream gave the stale image. That image is then served.
    func prefersStale(_ id: FlightID, to failure: CacheFailure, of upstream: DownloadTarget) -> Bool {
        guard let flight = flights[id], flight.staleImage != nil else { return false }
        return flight.storedURL == upstream.url && failure.allowsStale
    }

    /// Records the handle that cancels a download.
    mutating func downloadStarted(_ id: FlightID, handle: any DownloadHandle) -> [Effect] {
        guard flights.isCurrent(id) else { return [.cancel(handle)] }
        flights[id.imageKey]?.flights[id.work]?.handle = handle
        return []
    }

    /// Restarts a download, without a condition: the origin confirmed an image that is not the one held, or the tokens
    /// have changed.
    mutating func restartDownload(_ id: FlightID, _ target: DownloadTarget) -> [Effect] {
        let flight = flights.renumber(id) { ($0.handle, $0.basis) = (nil, nil) }
        return flight.map { [.download($0.id, target)] } ?? []
    }

    /// Whether a result is for the current tokens.
    func suitsTokens(_ result: DownloadResult) -> Bool {
        switch result {
        case .image(let image, _), .confirmed(let image, _): suitsTokens(image)
        case .missing(_, let family), .unusable(_, _, let family): family == tokenFamily
        case .failed: true
        }
    }

    /// Completes a download. Returns nil if the flight is not current; its result is then discarded.
    /// - Parameters:
    ///   - negative: responses of upstreams without a usable image, by URL.
    ///   - route: where waiters look next if the download gave no image.
    mutating func downloadEnded(
        _ id: FlightID, _ result: DownloadResult, negative: [String: NegativeResponse] = [:], route: Route, now: Int64
    ) -> [Effect]? {
        guard let flight = flights.finish(id), let target = flight.target else { return nil }
        let imageKey = id.imageKey
        let negative = negative.isEmpty ? result.negativeResponse.map { [target.url: $0] } ?? [:] : negative
        var effects: [Effect] = []
        switch result {
        case .image(let image, let isStorable), .confirmed(let image, let isStorable):
            let served = ServedImage(image, from: result.source, at: now, isStorable: isStorable)
            effects += flight.waiters.map { .resolve($0, .success(served)) }
            effects += replaceImage(with: served, isStorable: isStorable, of: id, route: route, now: now)
            if flight.isChange(to: image, isStored: isStorable) { effects.append(.changed(imageKey)) }
        case .missing:
            remember(negative, imageKey, leavesEmpty: flight.ownsImageKey, now)
            effects += flight.waiters.map { resolveMissing($0, route, now) }
            effects += emptyImageKey(of: flight, route, now)
        case .failed, .unusable:
            guard let failure = result.failure else { break }
            // The stored image's upstream now reports it missing, so it is dropped although another upstream failed.
            let isGone = flight.storedURL.flatMap { negative[$0] }.map { $0.reason == nil } ?? false
            remember(negative, imageKey, leavesEmpty: flight.ownsImageKey && isGone, now)
            if flight.isBackground, negativeCache.unusable(imageKey, url: target.refreshKey, at: now) == nil {
                negativeCache.failed(imageKey, url: target.refreshKey, at: now)
            }
            effects += flight.waiters.map { resolveFailed($0, failure, fallback: isGone ? nil : flight.staleImage) }
            if isGone { effects += emptyImageKey(of: flight, route, now) }
        }
        tidy(imageKey)
        return effects
    }

    /// Replaces the image of an image key: nothing older is served from now on.
    private mutating func replaceImage(
        with served: ServedImage, isStorable: Bool, of id: FlightID, route: Route, now: Int64
    ) -> [Effect] {
        let imageKey = id.imageKey
        forgetNegatives(of: imageKey)
        for work in flights[imageKey]?.flights.keys.map({ $0 }) ?? [] {
            flights[imageKey]?.flights[work]?.ownsImageKey = false
        }
        let overtaken =
            sourceChanged(imageKey, to: served) + overtakeRead(of: imageKey, by: served, route: route, now: now)
        guard isStorable else { return overtaken + drop(id) }
        flights[imageKey, default: ImageKeyState()].dropping = nil
        let inMemory = ServedImage(served.image, from: .memory, at: now)
        // While an earlier write is in progress, its bytes are not on disk, so neither are those of a confirmed image.
        let earlierIsOnDisk = flights[imageKey]?.storing?.isOnDisk ?? true
        flights[imageKey]?.storing = ImageKeyState.Storing(
            flight: id, served: inMemory, isOnDisk: served.source == .revalidated && earlierIsOnDisk)
        return overtaken + [.store(id)]
    }

    /// Negative entries of an image without size also count for sizes that would be rendered from it.
    mutating func forgetNegatives(of imageKey: ImageKey) {
        if imageKey.isUnsized {
            negativeCache.forget(profile: imageKey.profile)
        } else {
            negativeCache.forget(imageKey)
        }
    }

    /// A read that began before a newer result may return what that result replaced: its waiters get the newer image,
    /// or find the image key empty.
    private mutating func overtakeRead(
        of imageKey: ImageKey, by served: ServedImage?, route: Route, now: Int64
    ) -> [Effect] {
        guard let id = flights[imageKey]?.flights[.read]?.id, let read = flights.finish(id) else { return [] }
        var effects: [Effect] = []
        for waiter in read.waiters {
            // Accepted even if it is stale on arrival.
            if let served, waiter.query.accepts(served.image) {
                effects.append(.resolve(waiter, .success(served)))
            } else {
                effects += resolveOrDownload(waiter, held: served, route: route, now: now)
            }
        }
        return effects
    }

    private mutating func remember(
        _ negative: [String: NegativeResponse], _ imageKey: ImageKey, leavesEmpty: Bool, _ now: Int64
    ) {
        for (url, response) in negative {
            if let reason = response.reason {
                negativeCache.unusable(imageKey, url: url, reason, until: response.until, now: now)
            } else {
                negativeCache.missing(imageKey, url: url, until: response.until, leavesEmpty: leavesEmpty, now: now)
            }
        }
    }

    /// Removes the image of an image key, unless it came from another URL.
    private mutating func emptyImageKey(of flight: Flight, _ route: Route, _ now: Int64) -> [Effect] {
        guard flight.ownsImageKey else { return [] }
        let imageKey = flight.id.imageKey
        let effects =
            sourceChanged(imageKey, to: nil) + overtakeRead(of: imageKey, by: nil, route: route, now: now)
            + drop(flight.id)
        return flight.knowsImage ? effects + [.changed(imageKey)] : effects
    }

    private mutating func drop(_ id: FlightID) -> [Effect] {
        flights[id.imageKey, default: ImageKeyState()].storing = nil
        flights[id.imageKey]?.dropping = id
        return [.drop(id)]
    }

    // MARK: Writing to disk

    /// Whether a downloaded image may still be written. Called before each step of the write.
    func mayStore(_ id: FlightID) -> Bool { flights[id.imageKey]?.storing?.flight.number == id.number }

    /// Handles an image that has been written, or need not be.
    mutating func stored(_ id: FlightID) {
        guard mayStore(id) else { return }
        flights[id.imageKey]?.storing = nil
        tidy(id.imageKey)
    }

    /// Handles a failed write. The older entry must not be served again and is dropped; an image that was only
    /// confirmed stays, since its bytes on disk are right.
    mutating func storeFailed(_ id: FlightID) -> [Effect] {
        guard mayStore(id) else { return [] }
        guard flights[id.imageKey]?.storing?.isOnDisk == false else {
            stored(id)
            return []
        }
        return drop(id)
    }

    /// Whether the stored image may still be removed: no newer image has come. Called right before the removal.
    func mayDrop(_ id: FlightID) -> Bool { flights[id.imageKey]?.dropping?.number == id.number }

    mutating func dropped(_ id: FlightID) {
        guard mayDrop(id) else { return }
        flights[id.imageKey]?.dropping = nil
        tidy(id.imageKey)
    }

    // MARK: Waiters that leave

    /// Removes a waiter whose client has gone.
    mutating func leave(_ id: WaiterID) -> [Effect] { remove(id).effects }

    /// Removes a waiter that has timed out: it gets the stale image or the source of its rendition, else TIMEOUT.
    mutating func expire(_ id: WaiterID) -> [Effect] {
        let (waiter, onTimeout, effects) = remove(id)
        guard let waiter else { return effects }
        let failure = CacheFailure.timedOut("the origin did not respond within the request's WAIT")
        return [resolveFailed(waiter, failure, fallback: onTimeout)] + effects
    }

    /// Removes a waiter, and abandons its flight if no waiter remains.
    /// - Returns: `onTimeout` is the image for a waiter that has timed out.
    private mutating func remove(_ id: WaiterID) -> (waiter: Waiter?, onTimeout: ServedImage?, effects: [Effect]) {
        guard let (id, waiter) = flights.remove(id), let flight = flights[id.imageKey]?.flights[id.work] else {
            return (nil, nil, [])
        }
        switch id.work {
        case .read:
            return (waiter, nil, [])
        case .download, .chain:
            guard waiter != nil, flight.isAbandoned else { return (waiter, flight.imageOnTimeout, []) }
            let grace = flights.nextNumber()
            flights[id.imageKey]?.flights[id.work]?.grace = grace
            return (waiter, flight.imageOnTimeout, [.grace(flight.id, number: grace)])
        case .render:
            if flight.isAbandoned { removeFlight(id) }
            return (waiter, flight.imageOnTimeout, [])
        case .source:
            // The flight of the source has the image.
            let onTimeout = flight.sourceWaiter.flatMap { flights.flight(of: $0)?.imageOnTimeout }
            guard flight.waiters.isEmpty else { return (waiter, onTimeout, []) }
            removeFlight(id)
            return (waiter, onTimeout, flight.sourceWaiter.map { leave($0) } ?? [])
        }
    }

    private mutating func removeFlight(_ id: FlightID) {
        flights[id.imageKey]?.flights[id.work] = nil
        tidy(id.imageKey)
    }

    /// Handles the end of a grace period. Ignored if a waiter has joined since, or if a later grace period is running.
    mutating func graceEnded(_ id: FlightID, _ grace: UInt64) -> [Effect] {
        guard let flight = flights[id.imageKey]?.flights[id.work], flight.grace == grace, flight.isAbandoned else {
            return []
        }
        removeFlight(id)
        return flight.handle.map { [.cancel($0)] } ?? []
    }

    // MARK: PUT

    mutating func putBegan(_ imageKey: ImageKey) -> UInt64 {
        flights[imageKey, default: ImageKeyState()].puts.count += 1
        return flights.nextNumber()
    }

    func putVerdict(_ imageKey: ImageKey, sequence: UInt64) -> PendingPuts.Verdict {
        flights[imageKey]?.puts.verdict(on: sequence) ?? .cancelled
    }

    /// Handles a PUT whose image is on disk. It supersedes every download of the image key; their waiters get it (I7).
    mutating func putCommitted(_ imageKey: ImageKey, sequence: UInt64, _ image: Image, now: Int64) -> [Effect] {
        flights[imageKey]?.puts.committed = sequence
        forgetNegatives(of: imageKey)
        let served = ServedImage(image, from: .put, at: now)
        return sourceChanged(imageKey, to: served) + end(imageKey, .success(served)).effects + [.changed(imageKey)]
    }

    mutating func putEnded(_ imageKey: ImageKey) {
        flights[imageKey]?.puts.count -= 1
        tidy(imageKey)
    }

    // MARK: Invalidation

    /// Ends everything in progress for a profile, in every size: waiters get CANCELLED, and no PUT in progress commits.
    mutating func purge(profile: OpaqueID) -> (cancelled: Int, effects: [Effect]) {
        negativeCache.forget(profile: profile)
        return end(flights.imageKeys.filter { $0.profile == profile }, .cancelled, purged: flights.nextNumber())
    }

    /// Ends everything in progress. Waiters get `failure`.
    mutating func end(_ failure: CacheFailure) -> (cancelled: Int, effects: [Effect]) {
        negativeCache.forgetAll()
        return end(flights.imageKeys, failure, purged: .max)
    }

    private mutating func end(
        _ imageKeys: [ImageKey], _ failure: CacheFailure, purged sequence: UInt64
    ) -> (cancelled: Int, effects: [Effect]) {
        imageKeys.reduce(into: (0, [])) { total, imageKey in
            flights[imageKey]?.puts.purged = sequence
            let ended = end(imageKey, .failure(failure))
            total.0 += ended.cancelled
            total.1 += ended.effects
            tidy(imageKey)
        }
    }

    /// Ends the flights of an image key and resolves their waiters in the order in which they came.
    private mutating func end(
        _ imageKey: ImageKey, _ outcome: Result<ServedImage?, CacheFailure>
    ) -> (cancelled: Int, effects: [Effect]) {
        let ended = flights.finishAll(of: imageKey)
        flights[imageKey]?.storing = nil
        flights[imageKey]?.dropping = nil
        let waiters = ended.flatMap(\.waiters).sorted { $0.id.number < $1.id.number }
        let cancelled = ended.count { $0.id.work.isDownload }
        let handles = ended.compactMap(\.handle)
        return (cancelled, waiters.map { .resolve($0, outcome) } + handles.map { .cancel($0) })
    }

    // MARK: Housekeeping

    mutating func tidy(_ imageKey: ImageKey) {
        guard flights[imageKey]?.isIdle == true else { return }
        if let source = flights[imageKey]?.source { renditions.remove(imageKey, of: source) }
        flights[imageKey] = nil
    }
}

extension RequestCoordinator {
    enum DownloadResult: Sendable {
        case image(Image, storable: Bool)
        /// The image that the download revalidated, with new freshness data.
        case confirmed(Image, storable: Bool)
        /// The origin has no image for the tokens of that family. Believed until that moment (seconds since 1970).
        case missing(until: Int64, family: UInt32)
        /// A definite response without a usable image, to the tokens of that family. Believed until that moment.
        case unusable(FetchFailure, until: Int64, family: UInt32)
        case failed(CacheFailure)

        var storable: Image? {
            switch self {
            case .image(let image, storable: true), .confirmed(let image, storable: true): image
            case .image, .confirmed, .missing, .unusable, .failed: nil
            }
        }

        /// The negative entry that a response without an image leaves.
        var negativeResponse: NegativeResponse? {
            switch self {
            case .missing(let until, _): NegativeResponse(until: until)
            case .unusable(let failure, let until, _) where failure.kind.describesResponse:
                NegativeResponse(until: until, reason: failure.kind)
            case .image, .confirmed, .unusable, .failed: nil
            }
        }

        var failure: CacheFailure? {
            switch self {
            case .unusable(let failure, _, _): CacheFailure(failure)
            case .failed(let failure): failure
            case .image, .confirmed, .missing: nil
            }
        }

        var source: ServedImage.Source { if case .confirmed = self { .revalidated } else { .origin } }
    }
}
