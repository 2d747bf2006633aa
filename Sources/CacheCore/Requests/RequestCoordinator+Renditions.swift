import DequeModule

// Renditions: the image of one image key is rendered from that of another, its source. A waiter waits for the source,
// then for the rendering. A rendition is served as long as the source's image key holds the same image (I7).

extension RequestCoordinator {
    /// The effects of a step of a rendition, and the image to keep.
    struct RenditionOutcome {
        var effects: [Effect] = []
        /// The rendition to keep in memory, if any.
        var kept: Image?
    }

    /// Resolves a waiter with a rendition that is known to be current, else lets it wait for the source. Nil if the
    /// image key holds an image that was PUT there, which takes precedence over a rendition.
    /// - Parameter held: from memory, where no rendition outlives its source, or from disk.
    mutating func resolveWithRendition(
        _ waiter: Waiter, of source: ImageKey, held: ServedImage?, _ now: Int64
    ) -> [Effect]? {
        let query = waiter.query
        if let held, query.accepts(held.image), held.image.record.freshness.isFresh(at: now) {
            if held.image.record.sourceDigest == nil, held.image.record.provenance == .put { return nil }
            if held.image.record.sourceDigest != nil, held.source == .memory {
                return [.resolve(waiter, .success(held))]
            }
        }
        return waitForSource(waiter, source, rendition: held?.image.record.sourceDigest == nil ? nil : held?.image)
    }

    private mutating func waitForSource(_ waiter: Waiter, _ source: ImageKey, rendition: Image?) -> [Effect] {
        let (query, imageKey) = (waiter.query, waiter.query.imageKey)
        let key = FlightID.SourceKey(imageKey: source, named: query.named?.url, download: query.download)
        let number = flights.nextNumber()
        let flight = flights.join(waiter, .source(key)) { ($0.storedRendition, $0.requestNumber) = (rendition, number) }
        flights[imageKey]?.source = source
        renditions.add(imageKey, of: source)
        return flight.map { [.requestSource($0, query.source(in: source))] } ?? []
    }

    /// Records the waiter that requests the source. Returns false if the flight is not current.
    mutating func sourceRequested(_ id: FlightID, by inner: WaiterID) -> Bool {
        guard flights.isCurrent(id) else { return false }
        flights[id.imageKey]?.flights[id.work]?.sourceWaiter = inner
        return true
    }

    /// Handles the end of the request for the source. Without effect if the flight is not current.
    mutating func sourceEnded(
        _ id: FlightID, _ outcome: Result<ServedImage?, CacheFailure>, route: Route, now: Int64
    ) -> RenditionOutcome {
        guard case .source(let key) = id.work, let flight = flights[id] else { return RenditionOutcome() }
        if case .success(let served) = outcome, let waiter = flight.waiters.first, isOutdated(served, key, flight) {
            return RenditionOutcome(effects: requestSourceAgain(id, waiter.query.source(in: key.imageKey)))
        }
        _ = flights.finish(id)
        var end = RenditionOutcome()
        switch outcome {
        case .failure(let failure):
            end.effects = flight.waiters.map { .resolve($0, .failure(failure)) }
        case .success(nil):
            rememberMissing(source: key.imageKey, in: id.imageKey, route, now)
            end.effects = flight.waiters.map { resolveMissing($0, source: key.imageKey, route, now) }
        case .success(let source?):
            if source.source == .fallback { rememberMissing(source: key.imageKey, in: id.imageKey, route, now) }
            end = resolve(flight, from: source, in: key.imageKey, now)
        }
        tidy(id.imageKey)
        return end
    }

    /// Whether the source has changed since it was requested, or is for other tokens than the current ones. Repeated
    /// requests end, because each needs a new change to be outdated.
    private func isOutdated(_ served: ServedImage?, _ key: FlightID.SourceKey, _ flight: Flight) -> Bool {
        if let served, served.source == .fallback { return false }
        if let served, !suitsTokens(served.image) { return true }
        return renditions.isOutdated(
            served?.image.record.digest, of: key.imageKey, from: key.named, since: flight.requestNumber)
    }

    private mutating func requestSourceAgain(_ id: FlightID, _ query: ImageQuery) -> [Effect] {
        let flight = flights.renumber(id) { ($0.sourceWaiter, $0.requestNumber) = (nil, $0.id.number) }
        return flight.map { [.requestSource($0.id, query)] } ?? []
    }

    /// A negative entry of the source applies to its renditions.
    private mutating func rememberMissing(source: ImageKey, in imageKey: ImageKey, _ route: Route, _ now: Int64) {
        guard case .success(let target?) = route.target else { return }
        for upstream in [DownloadTarget](target) {
            guard let until = negativeCache.missingUntil(source, url: upstream.url, at: now) else { continue }
            negativeCache.missing(imageKey, url: upstream.url, until: until, leavesEmpty: true, now: now)
        }
    }

    /// Resolves a waiter whose source is missing. The fallback image is served only if the origin is known to have no
    /// image, since CACHED and NOWAIT may not have asked it.
    private func resolveMissing(_ waiter: Waiter, source: ImageKey, _ route: Route, _ now: Int64) -> Effect {
        let isAwaited = waiter.query.download == .awaited || waiter.query.download == .renewed
        guard !isAwaited, case .success(let target?) = route.target(of: waiter.query),
            !target.allSatisfy({ negativeCache.isMissing(source, url: $0.url, at: now) })
        else { return resolveMissing(waiter, route, now) }
        return .resolve(waiter, .success(nil))
    }

    /// Resolves waiters with the stored rendition if it is of this source, else lets them wait for a new one.
    private mutating func resolve(
        _ flight: Flight, from source: ServedImage, in imageKey: ImageKey, _ now: Int64
    ) -> RenditionOutcome {
        let digest = source.image.record.digest
        if source.source != .fallback, let stored = flight.storedRendition, stored.record.sourceDigest == digest {
            let image = source.image.rendition(stored.bytes, shape: stored.record.shape, digest: stored.record.digest)
            let served = ServedImage(image, from: .disk, at: now)
            return RenditionOutcome(
                effects: flight.waiters.map { .resolve($0, .success(served)) },
                kept: mayKeep(source, in: imageKey) ? image : nil)
        }
        var end = RenditionOutcome()
        for waiter in flight.waiters {
            if !waiter.query.rendersMissing {
                end.effects.append(.resolve(waiter, .success(nil)))
            } else if source.source == .fallback || hasJustFailed(flight.id.imageKey, digest, now) {
                end.effects.append(.resolve(waiter, .success(source)))
            } else if let render = flights.join(waiter, .render(digest), begin: { $0.renditionSource = source }) {
                end.effects.append(.render(render, source.image))
            }
        }
        return end
    }

    /// Whether renditions of the source may be kept: while its image key holds it, and if it is no rendition itself,
    /// since a change of its own source would go unnoticed.
    private func mayKeep(_ source: ServedImage, in imageKey: ImageKey) -> Bool {
        source.isStorable && source.image.record.sourceDigest == nil
            && renditions.isHeld(source.image.record.digest, in: imageKey)
    }

    /// Returns whether the rendering is still wanted. If so, it continues even if all waiters leave.
    mutating func beginRender(_ id: FlightID) -> Bool {
        guard flights.isCurrent(id) else { return false }
        flights[id.imageKey]?.flights[id.work]?.isBackground = true
        return true
    }

    /// Handles the end of a rendering. If it failed, the source is served. Nil if the flight is not current.
    mutating func renderEnded(
        _ id: FlightID, _ result: Result<Image, RenditionFailure>, now: Int64
    ) -> RenditionOutcome? {
        guard let flight = flights.finish(id), let source = flight.renditionSource else { return nil }
        defer { tidy(id.imageKey) }
        let imageKey = flights[id.imageKey]?.source ?? ImageKey(profile: id.imageKey.profile)
        guard suitsTokens(source.image) else {
            var end = RenditionOutcome()
            for waiter in flight.waiters { end.effects += waitForSource(waiter, imageKey, rendition: nil) }
            return end
        }
        let image: Image
        switch result {
        case .success(let made): image = made
        case .failure(let failure):
            rememberFailure(failure, id.imageKey, source.image.record.digest, now)
            var end = RenditionOutcome(effects: flight.waiters.map { .resolve($0, .success(source)) })
            // Without a renderer the source takes the place of its rendition, for as long as it is the source.
            if failure == .notMade, mayKeep(source, in: imageKey) { end.kept = source.image.asItsOwnRendition }
            return end
        }
        let served = ServedImage(image, from: source.source, at: now)
        var end = RenditionOutcome(effects: flight.waiters.map { .resolve($0, .success(served)) })
        guard mayKeep(source, in: imageKey) else { return end }
        let inMemory = ServedImage(image, from: .memory, at: now)
        flights[id.imageKey, default: ImageKeyState()].dropping = nil
        flights[id.imageKey]?.storing = ImageKeyState.Storing(flight: id, served: inMemory, isOnDisk: false)
        end.effects.append(.store(id))
        end.kept = image
        return end
    }

    /// Handles a replaced or removed source. Renditions of the old image are abandoned; waiters get one of the new.
    mutating func sourceChanged(_ source: ImageKey, to served: ServedImage?) -> [Effect] {
        let imageKeys = renditions.imageKeys(of: source)
        guard !imageKeys.isEmpty else { return [] }
        let digest = served?.image.record.digest
        renditions.changed(source, to: served, number: flights.nextNumber())
        var effects: [Effect] = []
        for imageKey in imageKeys {
            if let storing = flights[imageKey]?.storing?.served.image.record.sourceDigest, storing != digest {
                flights[imageKey]?.storing = nil
            }
            for flight in (flights[imageKey]?.flights ?? [:]).values {
                guard case .render(let made) = flight.id.work, made != digest else { continue }
                effects += restart(flight, made, source, served)
            }
            tidy(imageKey)
        }
        return effects
    }

    /// Moves the waiters of a rendering whose source is outdated to the new source.
    private mutating func restart(
        _ flight: Flight, _ made: ImageDigest, _ source: ImageKey, _ newer: ServedImage?
    ) -> [Effect] {
        let late = flight.waiters.filter {
            renditions.isOutdated(made, of: source, from: $0.query.named?.url, since: 0)
        }
        if late.count == flight.waiters.count { _ = flights.finish(flight.id) }
        var effects: [Effect] = []
        for waiter in late {
            _ = flights.remove(waiter.id)
            if let newer, suitsTokens(newer.image) {
                let digest = newer.image.record.digest
                let render = flights.join(waiter, .render(digest)) { $0.renditionSource = newer }
                effects += render.map { [.render($0, newer.image)] } ?? []
            } else {
                effects += waitForSource(waiter, source, rendition: nil)
            }
        }
        return effects
    }

    func hasJustFailed(_ imageKey: ImageKey, _ source: ImageDigest, _ now: Int64) -> Bool {
        negativeCache.hasJustFailed(imageKey, url: Self.negativeKey(of: source), at: now)
    }

    private mutating func rememberFailure(
        _ failure: RenditionFailure, _ imageKey: ImageKey, _ source: ImageDigest, _ now: Int64
    ) {
        guard failure != .notMade else { return }
        let pause: Int64 = failure == .unreadableImage ? Self.unreadableImagePause : 0
        negativeCache.failed(imageKey, url: Self.negativeKey(of: source), at: now, forAtLeast: pause)
    }

    /// Seconds until rendering an unreadable image is tried again.
    private static var unreadableImagePause: Int64 { 300 }

    /// Key of a failed rendering in the negative cache. No URL has this form.
    private static func negativeKey(of source: ImageDigest) -> String { "rendition of \(source.hex)" }
}

extension ImageQuery {
    fileprivate func source(in imageKey: ImageKey) -> ImageQuery {
        var query = ImageQuery(imageKey: imageKey, named: named, download: download)
        query.isForRendition = true
        return query
    }
}

extension Image {
    func rendition(_ bytes: ImageBytes, shape: ImageShape, digest: ImageDigest) -> Image {
        var record = self.record
        (record.shape, record.digest, record.sourceDigest) = (shape, digest, self.record.digest)
        return Image(record: record, bytes: bytes)
    }

    /// This image in the place of its rendition, to be removed with its source.
    var asItsOwnRendition: Image { rendition(bytes, shape: record.shape, digest: record.digest) }
}

extension ImageRecord {
    /// The digest of the image that this one was rendered from; nil if it was not rendered.
    public var renderedFrom: ImageDigest? { sourceDigest == digest ? nil : sourceDigest }
}
