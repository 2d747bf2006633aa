import ImageOptions
import NIOConcurrencyHelpers
import NIOCore

// Renditions: which image key holds the source, the request for the source, and the rendering.
// `RequestCoordinator+Renditions.swift` decides what follows from each step.

extension RenditionPolicy {
    /// The image key from whose image that of `imageKey` is rendered; nil if it is requested from the origin.
    static func source(of imageKey: ImageKey, _ origin: Origin?) -> ImageKey? {
        guard !imageKey.isUnsized else { return nil }
        let unsized = ImageKey(profile: imageKey.profile)
        // FIT and FORMAT convert the origin's image of that size.
        let ofSameSize = imageKey.isPlain ? nil : ImageKey(profile: imageKey.profile, size: imageKey.size)
        guard let origin else { return unsized }
        return switch origin.renditions {
        case .always: unsized
        case .auto: origin.hasSizes ? ofSameSize : unsized
        // Nothing is rendered: the origin's image of that size is served.
        case .never: ofSameSize
        }
    }
}

extension UserCache {
    /// The image key without size, if an image was PUT there and `imageKey` holds no fresh image of its own: it is the
    /// source of every size. Blocks on the disk.
    /// - Parameter isUse: whether a read from disk counts as a use of the image.
    func putSource(of imageKey: ImageKey, held: Image?, now: Int64, isUse: Bool = true) -> ImageKey? {
        let isAnswer = held.map { $0.record.sourceDigest == nil && $0.record.freshness.isFresh(at: now) } ?? false
        guard imageKey.size > 0, !isAnswer, let origin, origin.renditions != .never,
            RenditionPolicy.source(of: imageKey, origin) == nil
        else { return nil }
        let unsized = ImageKey(profile: imageKey.profile)
        return storedRecord(unsized, isUse: isUse)?.provenance == .put ? unsized : nil
    }

    private func storedRecord(_ imageKey: ImageKey, isUse: Bool) -> ImageRecord? {
        let (inMemory, isRemoved) = state.withLockedValue { state in
            (
                state.coordinator.storing(imageKey)?.image.record ?? state.memory[imageKey]?.served.image.record,
                state.beingRemoved.contains(imageKey.profile) || state.coordinator.flights[imageKey]?.dropping != nil
            )
        }
        if inMemory != nil || isRemoved { return inMemory }
        do {
            guard isUse else { return try generationStore.record(of: imageKey) }
            return try generationStore.read(imageKey, framing: services.framing)?.record
        } catch {
            // The store was closed; the invalidation has resolved the waiters.
            return nil
        }
    }

    /// A rendition read from disk, with the current record of its source. Nil if the source's image key holds another
    /// image, or if that cannot be told without blocking.
    func withCurrentSource(_ rendition: Image, in imageKey: ImageKey) -> Image? {
        let source = RenditionPolicy.source(of: imageKey, origin) ?? ImageKey(profile: imageKey.profile)
        let (inMemory, mayRead) = state.withLockedValue { state in
            (state.memory[source]?.served.image, state.mayReadFromDisk(source, now: services.time.now))
        }
        var image = inMemory
        // A source that is a rendition itself would need the same check.
        if image == nil, mayRead,
            case .image(let found) = generationStore.readCached(source, framing: services.framing),
            found.record.sourceDigest == nil
        {
            image = found
        }
        guard let image, image.record.digest == rendition.record.sourceDigest else { return nil }
        return image.rendition(rendition.bytes, shape: rendition.record.shape, digest: rendition.record.digest)
    }

    /// Requests the source as a GET would.
    func requestSource(_ flight: FlightID, _ query: ImageQuery) {
        guard state.withLockedValue({ $0.coordinator.flights.isCurrent(flight) }) else { return }
        let inner = get(query) { [self] outcome in
            let route = self.route(for: flight.imageKey, held: nil)
            let now = services.time.now
            change { state in
                let end = state.coordinator.sourceEnded(flight, outcome, route: route, now: now)
                return consequences(of: end, in: flight.imageKey, &state)
            }
        }
        if !state.withLockedValue({ $0.coordinator.sourceRequested(flight, by: inner) }) { leave(inner) }
    }

    private func consequences(
        of end: RequestCoordinator.RenditionOutcome, in imageKey: ImageKey, _ state: inout State
    ) -> Consequences {
        guard let image = end.kept else { return Consequences(effects: end.effects) }
        return Consequences(effects: end.effects, memory: remember(image, in: imageKey, &state))
    }

    func render(_ flight: FlightID, _ source: Image) {
        let (settings, imageKey) = (services.settings(), flight.imageKey)
        guard let renderer = services.renderer, origin?.renditions != .never else {
            return renderEnded(flight, source, .failure(.notMade))
        }
        guard mayRender(source.record.shape) else {
            return renderEnded(flight, source, .failure(.unreadableImage))
        }
        // While it is queued, the source counts against the account's memory.
        let lease = services.budget.lease(for: owner.uid)
        guard lease.reserve(source.bytes.storage + Self.costOfQueuing) else {
            return renderEnded(flight, source, .failure(.unavailable))
        }
        let options = RenditionOptions(
            size: imageKey.imageSize, mostPixels: settings.renditionPixels, mostBytes: settings.imageLimit)
        renderer.render(
            source.bytes.image, options, for: owner.uid,
            isWanted: { [self] in state.withLockedValue { $0.coordinator.beginRender(flight) } },
            onEnd: { [self] result in
                lease.set(to: 0)
                renderEnded(flight, source, result.flatMap { image($0, from: source, options) })
            })
    }

    /// Whether an image has few enough pixels to be rendered.
    func mayRender(_ shape: ImageShape) -> Bool {
        Int(shape.width) * Int(shape.height) <= services.settings().renditionPixels
    }

    private static var costOfQueuing: Int { 2 << 10 }

    /// Checks the rendition: a malicious image may control the worker that made it.
    private func image(
        _ bytes: ByteBuffer, from source: Image, _ options: RenditionOptions
    ) -> Result<Image, RenditionFailure> {
        guard bytes.readableBytes <= options.mostBytes else { return .failure(.unreadableImage) }
        let shape: ImageShape
        do {
            shape = try ImageSniffer.sniff(bytes, maximumDimension: options.size.pixels)
        } catch {
            return .failure(.unreadableImage)
        }
        guard options.size.format.allows(shape.kind) else { return .failure(.unreadableImage) }
        let framed = ImageBytes(copying: bytes, framing: services.framing)
        return .success(source.rendition(framed, shape: shape, digest: services.store.digest(of: bytes)))
    }

    private func renderEnded(_ flight: FlightID, _ source: Image, _ result: Result<Image, RenditionFailure>) {
        let now = services.time.now
        change { state in
            guard let end = state.coordinator.renderEnded(flight, result, now: now) else { return Consequences() }
            switch result {
            case .success: services.counters.count(.renditions)
            case .failure(.notMade): break
            case .failure: services.counters.count(.renditionFailures)
            }
            return consequences(of: end, in: flight.imageKey, &state)
        }
    }

    /// Removes the least recently used renditions of a profile beyond the limit. Blocks on the disk.
    func trimRenditions(keeping imageKey: ImageKey) {
        do {
            try generationStore.trimRenditions(
                of: imageKey.profile, keeping: imageKey, most: services.settings().renditionsPerProfile)
        } catch StoreError.closed {
            // The whole generation is being removed.
        } catch {
            // The next rendition of the profile tries again.
            services.counters.count(.storeFailures)
        }
    }
}
