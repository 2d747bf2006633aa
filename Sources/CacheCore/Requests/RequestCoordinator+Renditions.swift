import DequeModule

// An image key whose image is made from another's, its source. A waiter first waits for the source, in whatever way the source
// is had, and then for the making. What was made is good for as long as the source's image key holds the same picture (I7).

extension RequestCoordinator {
    /// What follows, and the rendition that memory is to hold.
    struct RenditionOutcome {
        var effects: [Effect] = []
        var kept: Image?
    }

    /// Answers a waiter with a rendition that is known to be the source's, else makes it wait for the source. Nil where
    /// the image key holds an image that somebody put there: that goes before any that is made.
    /// - Parameter held: from memory, where nothing outlives its source, or from disk.
    mutating func answerRendition(_ waiter: Waiter, of source: ImageKey, held: ServedImage?, _ now: Int64) -> [Effect]?
    {
        let (query, imageKey) = (waiter.query, waiter.query.imageKey)
        if let held, query.accepts(held.image), held.image.record.freshness.isFresh(at: now) {
            if held.image.record.rendered == nil, held.image.record.provenance == .put { return nil }
            if held.image.record.rendered != nil, held.source == .memory { return [.answer(waiter, .success(held))] }
        }
        return lookForSource(
            waiter, source, rendition: held?.image.record.rendered == nil ? nil : held?.image, imageKey)
    }

    private mutating func lookForSource(
        _ waiter: Waiter, _ source: ImageKey, rendition: Image?, _ imageKey: ImageKey
    ) -> [Effect] {
        let query = waiter.query
        let wish = FlightID.SourceKey(imageKey: source, named: query.named?.url, download: query.download)
        let number = nextNumber()
        let flight = wait(waiter, for: .source(wish)) { ($0.basis, $0.asked) = (rendition, number) }
        activity[imageKey]?.source = source
        renditions.add(imageKey, of: source)
        return flight.map { [.findSource($0, Self.query(source, query))] } ?? []
    }

    private static func query(_ source: ImageKey, _ query: ImageQuery) -> ImageQuery {
        var inner = ImageQuery(imageKey: source, named: query.named, download: query.download)
        inner.isForRendition = true
        return inner
    }

    /// The source has been asked for, and it is waited for under that name. False when nobody wants it any more.
    mutating func sourceAsked(_ id: FlightID, by inner: WaiterID) -> Bool {
        guard isUnderWay(id) else { return false }
        activity[id.imageKey]?.flights[id.work]?.inner = inner
        return true
    }

    /// The source is here, or there is none. Nothing follows when nobody waits for it any more.
    mutating func sourceEnded(_ id: FlightID, _ outcome: GetOutcome, route: Route, now: Int64) -> RenditionOutcome {
        guard case .source(let wish) = id.work, let flight = flight(id) else { return RenditionOutcome() }
        if case .success(let served) = outcome, let waiter = flight.waiters.first, isOutdated(served, wish, flight) {
            return RenditionOutcome(effects: askSourceAgain(id, Self.query(wish.imageKey, waiter.query)))
        }
        _ = finish(id)
        var end = RenditionOutcome()
        switch outcome {
        case .failure(let failure):
            end.effects = flight.waiters.map { .answer($0, .failure(failure)) }
        case .success(nil):
            noteAbsence(of: wish.imageKey, in: id.imageKey, route, now)
            for waiter in flight.waiters { end.effects += answerNone(waiter, source: wish.imageKey, route, now) }
        case .success(let source?):
            if source.source == .fallback { noteAbsence(of: wish.imageKey, in: id.imageKey, route, now) }
            end = answer(flight, from: source, in: wish.imageKey, now)
        }
        tidy(id.imageKey)
        return end
    }

    /// Whether the source's image key has something else by now, or other tokens are shown than those that it was for.
    /// Each is a change since it was asked for: so it is not asked for again and again.
    private func isOutdated(_ served: ServedImage?, _ wish: FlightID.SourceKey, _ flight: Flight) -> Bool {
        if let served, served.source == .fallback { return false }
        if let served, !suits(served.image) { return true }
        return renditions.isOutdated(
            served?.image.record.digest, of: wish.imageKey, from: wish.named, since: flight.asked)
    }

    /// The answer to who asked for what there is none of. Nobody has said so where the origin was not to be asked.
    private mutating func answerNone(_ waiter: Waiter, source: ImageKey, _ route: Route, _ now: Int64) -> [Effect] {
        let isAwaited = waiter.query.download == .awaited || waiter.query.download == .renewed
        guard !isAwaited, case .success(let target?) = target(of: waiter.query, route),
            !target.allSatisfy({ negativeCache.isMissing(source, url: $0.url, at: now) })
        else { return answerNone(waiter, route, now) }
        return [.answer(waiter, .success(nil))]
    }

    /// Under a new number: what is still to be heard of the old request is outdated.
    private mutating func askSourceAgain(_ id: FlightID, _ query: ImageQuery) -> [Effect] {
        guard var flight = flight(id) else { return [] }
        flight.id = FlightID(imageKey: id.imageKey, work: id.work, number: nextNumber())
        (flight.inner, flight.asked) = (nil, flight.id.number)
        activity[id.imageKey]?.flights[id.work] = flight
        return [.findSource(flight.id, query)]
    }

    private mutating func answer(
        _ flight: Flight, from source: ServedImage, in imageKey: ImageKey, _ now: Int64
    ) -> RenditionOutcome {
        let digest = source.image.record.digest
        if source.source != .fallback, let held = flight.basis, held.record.rendered == digest {
            let image = source.image.rendition(held.bytes, shape: held.record.shape, digest: held.record.digest)
            let served = ServedImage(image, from: .disk, at: now)
            return RenditionOutcome(
                effects: flight.waiters.map { .answer($0, .success(served)) },
                kept: mayKeep(source, in: imageKey) ? image : nil)
        }
        var end = RenditionOutcome()
        for waiter in flight.waiters {
            if !waiter.query.rendersMissing {
                end.effects.append(.answer(waiter, .success(nil)))
            } else if source.source == .fallback || hasJustFailed(flight.id.imageKey, digest, now) {
                end.effects.append(.answer(waiter, .success(source)))
            } else if let render = wait(waiter, for: .render(digest), begin: { $0.held = source }) {
                end.effects.append(.render(render, source.image))
            }
        }
        return end
    }

    /// Whether what is made of it may be kept: while the image key holds it, and it was not made itself, of a picture whose
    /// end nobody would tell here.
    private func mayKeep(_ source: ServedImage, in imageKey: ImageKey) -> Bool {
        source.isKept && source.image.record.rendered == nil
            && renditions.isHeld(source.image.record.digest, in: imageKey)
    }

    /// What is believed of the source is believed of what would be made of it.
    private mutating func noteAbsence(of source: ImageKey, in imageKey: ImageKey, _ route: Route, _ now: Int64) {
        guard case .success(let target?) = route.target else { return }
        for link in [DownloadTarget](target) {
            guard let until = negativeCache.missingUntil(source, url: link.url, at: now) else { continue }
            negativeCache.missing(imageKey, url: link.url, until: until, leavesKeyAbsent: true, now: now)
        }
    }

    /// It has been made, or cannot be: then its source is the answer, which is too large and better than none. Nil when
    /// nobody wants it any more.
    mutating func renderEnded(
        _ id: FlightID, _ result: Result<Image, RenditionFailure>, now: Int64
    ) -> RenditionOutcome? {
        guard let flight = finish(id), let source = flight.held else { return nil }
        defer { tidy(id.imageKey) }
        let imageKey = activity[id.imageKey]?.source ?? ImageKey(profile: id.imageKey.profile)
        guard suits(source.image) else {
            var end = RenditionOutcome()
            for waiter in flight.waiters { end.effects += lookForSource(waiter, imageKey, rendition: nil, id.imageKey) }
            return end
        }
        let image: Image
        switch result {
        case .success(let made): image = made
        case .failure(let failure):
            noteFailure(failure, id.imageKey, source.image.record.digest, now)
            var end = RenditionOutcome(effects: flight.waiters.map { .answer($0, .success(source)) })
            // Where nothing is ever made the picture itself is what the image key has, for as long as it is the source.
            if failure == .notMade, mayKeep(source, in: imageKey) { end.kept = source.image.asItsOwnRendition }
            return end
        }
        let served = ServedImage(image, from: source.source, at: now)
        var end = RenditionOutcome(effects: flight.waiters.map { .answer($0, .success(served)) })
        guard mayKeep(source, in: imageKey) else { return end }
        let inMemory = ServedImage(image, from: .memory, at: now)
        activity[id.imageKey, default: ImageKeyState()].dropping = nil
        activity[id.imageKey, default: ImageKeyState()].storing = ImageKeyState.Storing(
            flight: id, served: inMemory, isConfirmed: false)
        end.effects.append(.store(id))
        end.kept = image
        return end
    }

    /// Whether a picture is still to be made. From here on it is, though all who wait may leave.
    mutating func beginRender(_ id: FlightID) -> Bool {
        guard isUnderWay(id) else { return false }
        activity[id.imageKey]?.flights[id.work]?.isBackground = true
        return true
    }

    // MARK: The source changes

    /// What an image key holds is another image now, or none: what is being made of the older one is not wanted any more, and
    /// who waits for that waits for what is made of the newer one.
    mutating func sourceChanged(_ source: ImageKey, to served: ServedImage?) -> [Effect] {
        let imageKeys = renditions.imageKeys(of: source)
        guard !imageKeys.isEmpty else { return [] }
        let digest = served?.image.record.digest
        renditions.changed(source, to: served, number: nextNumber())
        var effects: [Effect] = []
        for imageKey in imageKeys {
            if let storing = activity[imageKey]?.storing?.served.image.record.rendered, storing != digest {
                activity[imageKey]?.storing = nil
            }
            for flight in (activity[imageKey]?.flights ?? [:]).values {
                guard case .render(let made) = flight.id.work, made != digest else { continue }
                effects += restart(flight, made, source, served)
            }
            tidy(imageKey)
        }
        return effects
    }

    /// Has those wait for the newer one whom what is being made would be of an older one.
    private mutating func restart(
        _ flight: Flight, _ made: ImageDigest, _ source: ImageKey, _ newer: ServedImage?
    ) -> [Effect] {
        let imageKey = flight.id.imageKey
        let late = flight.waiters.filter {
            renditions.isOutdated(made, of: source, from: $0.query.named?.url, since: 0)
        }
        if late.count == flight.waiters.count { _ = finish(flight.id) }
        var effects: [Effect] = []
        for waiter in late {
            _ = activity[imageKey]?.flights[flight.id.work]?.remove(waiter.id)
            waits[waiter.id] = nil
            if let newer, suits(newer.image) {
                let digest = newer.image.record.digest
                let render = wait(waiter, for: .render(digest)) { $0.held = newer }
                effects += render.map { [.render($0, newer.image)] } ?? []
            } else {
                effects += lookForSource(waiter, source, rendition: nil, imageKey)
            }
        }
        return effects
    }

    // MARK: Leaving

    /// - Parameter waiter: taken out already.
    /// - Returns: with it the source. What nobody waits for is not begun any more.
    mutating func departFromRender(
        _ id: FlightID, _ waiter: Waiter?
    ) -> (waiter: Waiter?, held: ServedImage?, effects: [Effect]) {
        guard let flight = activity[id.imageKey]?.flights[id.work] else { return (waiter, nil, []) }
        if flight.isAbandoned {
            activity[id.imageKey]?.flights[id.work] = nil
            tidy(id.imageKey)
        }
        return (waiter, flight.held, [])
    }

    /// - Parameter waiter: taken out already.
    /// - Returns: with it the stale image that is held, and what follows where it was the last.
    mutating func departFromSource(
        _ id: FlightID, _ waiter: Waiter?
    ) -> (waiter: Waiter?, held: ServedImage?, effects: [Effect]) {
        guard let flight = activity[id.imageKey]?.flights[id.work] else { return (waiter, nil, []) }
        let held = flight.inner.flatMap { waits[$0] }.flatMap { activity[$0.imageKey]?.flights[$0.work]?.held }
        guard flight.waiters.isEmpty else { return (waiter, held, []) }
        activity[id.imageKey]?.flights[id.work] = nil
        tidy(id.imageKey)
        return (waiter, held, flight.inner.map { leave($0) } ?? [])
    }

    // MARK: Failures

    private func hasJustFailed(_ imageKey: ImageKey, _ source: ImageDigest, _ now: Int64) -> Bool {
        negativeCache.hasJustFailed(imageKey, url: Self.name(of: source), at: now)
    }

    private mutating func noteFailure(
        _ failure: RenditionFailure, _ imageKey: ImageKey, _ source: ImageDigest, _ now: Int64
    ) {
        guard failure != .notMade else { return }
        let pause: Int64 = failure == .badPicture ? Self.badPicturePause : 0
        negativeCache.failed(imageKey, url: Self.name(of: source), at: now, forAtLeast: pause)
    }

    /// Seconds for which it is believed of a picture that it cannot be made in a size.
    private static var badPicturePause: Int64 { 300 }

    /// No URL begins so.
    private static func name(of source: ImageDigest) -> String { "rendition of \(source.hex)" }
}

extension Image {
    /// A picture that was made from this one.
    func rendition(_ bytes: ImageBytes, shape: ImageShape, digest: ImageDigest) -> Image {
        var record = self.record
        (record.shape, record.digest, record.rendered) = (shape, digest, self.record.digest)
        return Image(record: record, bytes: bytes)
    }

    /// The picture in the place of what would be made of it: it goes from there when its source does.
    var asItsOwnRendition: Image { rendition(bytes, shape: record.shape, digest: record.digest) }
}

extension ImageRecord {
    /// The digest of the picture that this one was made from; nil where it is that picture.
    public var madeFrom: ImageDigest? { rendered == digest ? nil : rendered }
}
