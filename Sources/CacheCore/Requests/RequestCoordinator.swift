import DequeModule

/// The coordinator in one user's cache: who waits for what, and what follows when something ends.
///
/// A value without effects. Every method takes what happened and returns what is now to be done, in order; the caller
/// holds its lock around the method and acts after it. So every race is a sequence of calls that a test can write down.
struct RequestCoordinator: Sendable {
    /// What is to be done, outside the lock, in the order given.
    enum Effect: Sendable {
        case answer(Waiter, GetOutcome)
        /// Look on disk, then report with ``readEnded(_:image:route:now:)``.
        case read(FlightID)
        /// Look for a larger image of the image key's profile, then report with
        /// ``largerEnded(_:found:isConclusive:route:now:)``.
        case findLarger(FlightID)
        /// Ask for the source of a rendition, then report with ``sourceEnded(_:_:route:now:)``.
        case findSource(FlightID, ImageQuery)
        /// Have the picture made in the image key's size, then report with ``renderEnded(_:_:now:)``.
        case render(FlightID, Image)
        /// Download, then report with ``downloadEnded(_:_:route:now:)``.
        case download(FlightID, DownloadTarget)
        case cancel(any DownloadHandle)
        /// Write to disk if ``mayStore(_:)`` still says so, then report with ``stored(_:)`` or ``notStored(_:)``.
        case store(FlightID)
        /// What is held in the image key is not to be served again, though nothing replaces it on disk: remove it, if
        /// ``mayDrop(_:)`` still says so, then report with ``dropped(_:)``.
        case drop(FlightID)
        /// What the image key holds is another image now, or none: subscribers are told.
        case changed(ImageKey)
        /// The last waiter has left: after a grace, report with ``graceEnded(_:_:)``.
        case grace(FlightID, number: UInt64)
    }

    /// Where an image is downloaded from when it is not held, for a request that names no URL; nil without an origin.
    /// Found only when somebody wants to know, and once: to fill in a template costs more than a hit.
    final class Route {
        typealias Target = Result<DownloadTarget?, CacheFailure>

        private(set) lazy var target: Target = find()
        private let find: () -> Target
        /// What is served where there is none.
        let fallback: Image?
        /// The image key whose image this rendition is made from; nil where that is asked of the origin.
        let source: ImageKey?
        /// Whether it is for who names a URL as well. Where a client has put the source a download would replace it.
        let isSourceOfURLs: Bool

        init(
            fallback: Image? = nil, source: ImageKey? = nil, isSourceOfURLs: Bool = true, _ find: @escaping () -> Target
        ) {
            (self.fallback, self.source, self.isSourceOfURLs) = (fallback, source, isSourceOfURLs)
            self.find = find
        }

        static func success(_ target: DownloadTarget?) -> Route { Route { .success(target) } }
    }

    // Touched by this type alone; `RequestCoordinator+Invalidation.swift` is a part of it.
    var activity: [ImageKey: ImageKeyState] = [:]
    /// What each waits for. The flight may have another number by now.
    var waits: [WaiterID: FlightID] = [:]
    var negativeCache: NegativeCache
    var renditions = RenditionsUnderWay()
    /// The tokens that are shown now: see ``LoginTokens/family``.
    var tokenFamily: UInt32 = 0
    private(set) var lastNumber: UInt64 = 0

    /// Whether an image is for the tokens that are shown now (RFC 9111 section 4.1): else it is as good as missing.
    func suits(_ image: Image) -> Bool { (image.record.tokenFamily ?? tokenFamily) == tokenFamily }

    /// The same of what an origin said.
    func suits(_ result: DownloadResult) -> Bool {
        switch result {
        case .image(let image, _), .confirmed(let image, _): suits(image)
        case .missing(_, let family), .unusable(_, _, let family): family == tokenFamily
        case .failed: true
        }
    }

    /// A number larger than any given before: names flights, waiters, graces and PUTs.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    // MARK: Asking

    /// A GET that memory alone does not answer. `memory` is what memory holds in the image key, in whatever state; with
    /// `diskIsEmpty` it is known that a look on disk would find nothing.
    mutating func get(
        _ waiter: Waiter, memory: ServedImage?, diskIsEmpty: Bool = false, route: Route, now: Int64
    ) -> [Effect] {
        let imageKey = waiter.query.imageKey
        let held = storing(imageKey) ?? memory
        // What is being removed is as good as gone.
        if held != nil || activity[imageKey]?.dropping != nil {
            return answerOrDownload(waiter, held: held, route: route, now: now)
        }
        if isKnownEmpty(waiter.query, route, now) { return answerNone(waiter, route, now) }
        if diskIsEmpty, activity[imageKey]?.flights[.read] == nil {
            return answerOrDownload(waiter, held: nil, route: route, now: now)
        }
        return wait(waiter, for: .read).map { [.read($0)] } ?? []
    }

    /// Answers a waiter with what is held, as far as that will do, else makes it wait for a download.
    private mutating func answerOrDownload(_ waiter: Waiter, held: ServedImage?, route: Route, now: Int64) -> [Effect] {
        let query = waiter.query
        let held = held.flatMap { suits($0.image) ? $0 : nil }
        if let source = route.source, query.named == nil || route.isSourceOfURLs,
            let effects = answerRendition(waiter, of: source, held: held, now)
        {
            return effects
        }
        var fallback: ServedImage?
        if let held, query.accepts(held.image) {
            let served = ServedImage(held.image, from: held.source, at: now)
            let answer = [Effect.answer(waiter, .success(served))]
            switch held.image.record.freshness.state(at: now) {
            case .fresh: return answer
            case _ where query.download == .never: return answer
            case .staleServable where query.download != .renewed:
                return answer + refresh(query, held: served, served, route, now)
            case .staleServable, .staleOnError: fallback = served
            case .expired: break
            }
            if query.download == .behind { return answer + refresh(query, held: served, fallback, route, now) }
        }
        if query.download == .never, !query.largerWillDo, route.fallback == nil {
            return [.answer(waiter, .success(nil))]
        }
        switch target(of: query, route) {
        case .success(nil): return answerNone(waiter, route, now)
        case .success where isAbsent(query, route, now): return answerNone(waiter, route, now)
        case _ where query.download == .never: return [.answer(waiter, .success(nil))]
        case _ where query.download == .behind:
            return [.answer(waiter, .success(nil))] + refresh(query, held: held, nil, route, now)
        case .failure(let failure): return [answer(waiter, failedBy: failure, fallback: fallback)]
        case .success(let target?):
            if let failure = unusable(query, target, now) {
                return [answer(waiter, failedBy: failure, fallback: fallback)]
            }
            let begin = beginning(query, at: target, held: held, fallback, now)
            let flight = wait(waiter, for: .init(target), begin: begin)
            return flight.map { [.download($0, target)] } ?? []
        }
    }

    /// Downloads behind the back of whoever was answered with what is held, unless that has just failed.
    private mutating func refresh(
        _ query: ImageQuery, held: ServedImage?, _ fallback: ServedImage?, _ route: Route, _ now: Int64
    ) -> [Effect] {
        guard case .success(let target?) = target(of: query, route), !isAbsent(query, route, now),
            unusable(query, target, now) == nil,
            !negativeCache.hasJustFailed(query.imageKey, url: target.nameOfFailures, at: now)
        else { return [] }
        let begin = beginning(query, at: target, held: held, fallback, now)
        let flight = start(query.imageKey, .init(target), begin: begin) { $0.isBackground = true }
        return flight.map { [.download($0, target)] } ?? []
    }

    /// How a download begins.
    /// - Parameters:
    ///   - held: what is in the image key, whether or not it is what was asked for.
    ///   - fallback: what may be served should the download fail.
    private func beginning(
        _ query: ImageQuery, at target: DownloadTarget, held: ServedImage?, _ fallback: ServedImage?, _ now: Int64
    ) -> (inout Flight) -> Void {
        let ownsImageKey = held.map { query.accepts($0.image) } ?? true
        let basis = basis(in: held?.image, at: target, now)
        let heldURL: String? = if case .url(let url)? = held?.image.record.provenance { url } else { nil }
        return { flight in
            (flight.held, flight.basis, flight.ownsImageKey) = (fallback, basis, ownsImageKey)
            (flight.target, flight.heldURL) = (target, heldURL)
        }
    }

    /// What a download can be conditional on: the image held, if it came from there and there is something to ask with.
    private func basis(in held: Image?, at target: DownloadTarget, _ now: Int64) -> Image? {
        guard let held, held.record.fields.hasValidator(now: now),
            target.contains({ held.record.provenance == .url($0.url) })
        else { return nil }
        return held
    }

    /// Makes a waiter wait for some work in the image key that it asks for. Returns the flight if that is to be begun.
    mutating func wait(
        _ waiter: Waiter, for work: FlightID.Work, begin: (inout Flight) -> Void = { _ in }
    ) -> FlightID? {
        let imageKey = waiter.query.imageKey
        let started = start(imageKey, work, begin: begin) { $0.waiters.append(waiter) }
        waits[waiter.id] = activity[imageKey]?.flights[work]?.id
        return started
    }

    /// Has `join` change the flight of that work, after `begin` where there was none: then it is returned.
    mutating func start(
        _ imageKey: ImageKey, _ work: FlightID.Work, begin: (inout Flight) -> Void, join: (inout Flight) -> Void
    ) -> FlightID? {
        // Taken out, lest the waiters be copied for one more.
        let underWay = activity[imageKey]?.flights.removeValue(forKey: work)
        var flight = underWay ?? Flight(id: FlightID(imageKey: imageKey, work: work, number: nextNumber()))
        if underWay == nil { begin(&flight) }
        join(&flight)
        activity[imageKey, default: ImageKeyState()].flights[work] = flight
        return underWay == nil ? flight.id : nil
    }

    func target(of query: ImageQuery, _ route: Route) -> Route.Target {
        query.named.map { .success($0) } ?? route.target
    }

    // MARK: What ends

    /// Whether a flight is the current one of its kind, and has not ended. Asked right before a download starts.
    func isUnderWay(_ id: FlightID) -> Bool { activity[id.imageKey]?.flights[id.work]?.id.number == id.number }

    func flight(_ id: FlightID) -> Flight? { isUnderWay(id) ? activity[id.imageKey]?.flights[id.work] : nil }

    /// Takes a flight out with all who wait for it, in the order they came; nil when it is no longer the current one.
    mutating func finish(_ id: FlightID) -> Flight? {
        guard let flight = flight(id) else { return nil }
        activity[id.imageKey]?.flights[id.work] = nil
        for waiter in flight.waiters { waits[waiter.id] = nil }
        return flight
    }

    /// The look on disk has ended. Nil when that look is no longer the one that counts.
    mutating func readEnded(_ id: FlightID, image: Image?, route: Route, now: Int64) -> [Effect]? {
        guard let read = finish(id) else { return nil }
        let held = image.map { ServedImage($0, from: .disk, at: now) }
        var effects: [Effect] = []
        for waiter in read.waiters { effects += answerOrDownload(waiter, held: held, route: route, now: now) }
        tidy(id.imageKey)
        return effects
    }

    /// What a download is to be conditional on.
    func basis(_ id: FlightID) -> Image? { flight(id)?.basis }

    /// A download has started and can be stopped by `handle`.
    mutating func downloadStarted(_ id: FlightID, handle: any DownloadHandle) -> [Effect] {
        guard isUnderWay(id) else { return [.cancel(handle)] }
        activity[id.imageKey]?.flights[id.work]?.handle = handle
        return []
    }

    /// The origin said that something is unchanged which is not what is held: it is asked again, for an image whatever
    /// is held. Under a new number, since what is still to be heard of the old request is not about this one.
    mutating func askAgain(_ id: FlightID, _ target: DownloadTarget) -> [Effect] {
        guard var flight = flight(id) else { return [] }
        flight.id = FlightID(imageKey: id.imageKey, work: id.work, number: nextNumber())
        flight.handle = nil
        flight.basis = nil
        activity[id.imageKey]?.flights[id.work] = flight
        return [.download(flight.id, target)]
    }

    /// A download has ended. Nil when it is no longer the current one: then its outcome reaches nobody.
    /// - Parameters:
    ///   - answers: what each link said that gave no image, by its URL.
    ///   - route: for an image key that holds nothing.
    mutating func downloadEnded(
        _ id: FlightID, _ result: DownloadResult, answers: [String: NegativeAnswer] = [:], route: Route, now: Int64
    ) -> [Effect]? {
        guard let flight = finish(id), let target = flight.target else { return nil }
        let imageKey = id.imageKey
        let answers = answers.isEmpty ? result.negativeAnswer.map { [target.url: $0] } ?? [:] : answers
        var effects: [Effect] = []
        switch result {
        case .image(let image, let storable), .confirmed(let image, let storable):
            let served = ServedImage(image, from: result.source, at: now, isKept: storable)
            effects += flight.waiters.map { .answer($0, .success(served)) }
            effects += take(served, storable: storable, of: id, route: route, now: now)
            if flight.isChange(to: image, isHeld: storable) { effects.append(.changed(imageKey)) }
        case .missing:
            note(answers, imageKey, leavesEmpty: flight.ownsImageKey, now)
            for waiter in flight.waiters { effects += answerNone(waiter, route, now) }
            effects += emptyImageKey(of: flight, route, now)
        case .failed(let failure), .unusable(let failure, _, _):
            // Who gave what is held has it no more, though nobody knows what the others have.
            let isGone = flight.heldURL.flatMap { answers[$0] }.map { $0.reason == nil } ?? false
            note(answers, imageKey, leavesEmpty: flight.ownsImageKey && isGone, now)
            if flight.isBackground, negativeCache.unusable(imageKey, url: target.nameOfFailures, at: now) == nil {
                negativeCache.failed(imageKey, url: target.nameOfFailures, at: now)
            }
            effects += flight.waiters.map { answer($0, failedBy: failure, fallback: isGone ? nil : flight.held) }
            if isGone { effects += emptyImageKey(of: flight, route, now) }
        }
        tidy(imageKey)
        return effects
    }

    private mutating func note(
        _ answers: [String: NegativeAnswer], _ imageKey: ImageKey, leavesEmpty: Bool, _ now: Int64
    ) {
        for (url, answer) in answers {
            if let reason = answer.reason {
                negativeCache.unusable(imageKey, url: url, reason, until: answer.until, now: now)
            } else {
                negativeCache.missing(imageKey, url: url, until: answer.until, leavesKeyAbsent: leavesEmpty, now: now)
            }
        }
    }

    /// What the image key held is not to be served again.
    private mutating func emptyImageKey(of flight: Flight, _ route: Route, _ now: Int64) -> [Effect] {
        guard flight.ownsImageKey else { return [] }
        let imageKey = flight.id.imageKey
        let effects =
            sourceChanged(imageKey, to: nil) + overtakeRead(of: imageKey, by: nil, route: route, now: now)
            + drop(flight.id)
        return flight.known == nil ? effects : effects + [.changed(imageKey)]
    }

    /// A newer image has come for an image key: nothing older in it is served from here on.
    private mutating func take(
        _ served: ServedImage, storable: Bool, of id: FlightID, route: Route, now: Int64
    ) -> [Effect] {
        let imageKey = id.imageKey
        forgetAbsence(imageKey)
        for work in activity[imageKey]?.flights.keys.map({ $0 }) ?? [] {
            activity[imageKey]?.flights[work]?.ownsImageKey = false
        }
        let overtaken =
            sourceChanged(imageKey, to: served) + overtakeRead(of: imageKey, by: served, route: route, now: now)
        guard storable else { return overtaken + drop(id) }
        activity[imageKey, default: ImageKeyState()].dropping = nil
        let inMemory = ServedImage(served.image, from: .memory, at: now)
        // A confirmed image that has never reached the disk has it no more than one that came just now.
        let isOnDisk = served.source == .revalidated && activity[imageKey]?.storing?.isConfirmed != false
        activity[imageKey]?.storing = ImageKeyState.Storing(flight: id, served: inMemory, isConfirmed: isOnDisk)
        return overtaken + [.store(id)]
    }

    mutating func drop(_ id: FlightID) -> [Effect] {
        activity[id.imageKey, default: ImageKeyState()].storing = nil
        activity[id.imageKey]?.dropping = id
        return [.drop(id)]
    }

    /// A look on disk that began before a newer answer came would bring back what that replaced: its waiters get the
    /// newer image, or find the image key empty.
    private mutating func overtakeRead(of imageKey: ImageKey, by served: ServedImage?, route: Route, now: Int64)
        -> [Effect]
    {
        guard let id = activity[imageKey]?.flights[.read]?.id, let read = finish(id) else { return [] }
        var effects: [Effect] = []
        for waiter in read.waiters {
            // Whoever named no URL takes the newer image, whatever its freshness; it came just now.
            if let served, waiter.query.accepts(served.image) {
                effects.append(.answer(waiter, .success(served)))
            } else {
                effects += answerOrDownload(waiter, held: served, route: route, now: now)
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
        return target.allSatisfy { negativeCache.isMissing(query.imageKey, url: $0.url, at: now) }
    }

    /// The failure that a download would end with, as the last response showed. Of a chain its download finds that out:
    /// another link may have the image.
    private func unusable(_ query: ImageQuery, _ target: DownloadTarget, _ now: Int64) -> CacheFailure? {
        guard target.others.isEmpty else { return nil }
        return negativeCache.unusable(query.imageKey, url: target.url, at: now)
    }

    /// Whether it is known without a look on disk that there is nothing to be had. A request that names no URL takes
    /// what is held from anywhere: for that the image key must be empty.
    private func isKnownEmpty(_ query: ImageQuery, _ route: Route, _ now: Int64) -> Bool {
        guard isAbsent(query, route, now) else { return false }
        guard query.named == nil, case .success(let target?) = route.target else { return query.named != nil }
        return target.contains { negativeCache.leavesEmpty(query.imageKey, url: $0.url, at: now) }
    }

    /// The image key holds something new. What other sizes were missing may be made of that which has none.
    mutating func forgetAbsence(_ imageKey: ImageKey) {
        if imageKey.code == 0 {
            negativeCache.forget(profile: imageKey.profile)
        } else {
            negativeCache.forget(imageKey)
        }
    }

    mutating func tidy(_ imageKey: ImageKey) {
        guard activity[imageKey]?.isIdle == true else { return }
        if let source = activity[imageKey]?.source { renditions.remove(imageKey, of: source) }
        activity[imageKey] = nil
    }
}
