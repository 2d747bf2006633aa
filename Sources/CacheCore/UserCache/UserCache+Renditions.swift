import NIOConcurrencyHelpers
import NIOCore

// Pictures in other sizes than the origin gives. `RequestCoordinator+Renditions.swift` says what follows from what.

extension UserCache {
    /// The image key whose image is made into what this one is to hold; nil where that is asked of the origin.
    func source(of imageKey: ImageKey, _ origin: Origin?) -> ImageKey? {
        guard imageKey.code != 0 else { return nil }
        let unsized = ImageKey(profile: imageKey.profile)
        let ofItsSize = imageKey.style == .plain ? nil : ImageKey(profile: imageKey.profile, size: imageKey.size)
        guard let origin else { return services.renderer == nil ? nil : unsized }
        return switch origin.renditions {
        case .always: unsized
        case .auto: origin.hasSizes ? ofItsSize : unsized
        // Nothing is made: the picture of that size is served.
        case .never: ofItsSize
        }
    }

    /// The image key of no size, where an image was PUT there and the image key itself holds none that is fresh: it is the source
    /// of every size, whatever the origin has. Blocks on the disk.
    func putSource(of imageKey: ImageKey, held: Image?, now: Int64) -> ImageKey? {
        let isAnswer = held.map { $0.record.rendered == nil && $0.record.freshness.isFresh(at: now) } ?? false
        guard imageKey.size > 0, services.renderer != nil, !isAnswer, let origin,
            origin.renditions != .never, source(of: imageKey, origin) == nil
        else { return nil }
        let unsized = ImageKey(profile: imageKey.profile)
        return self.held(unsized)?.record.provenance == .put ? unsized : nil
    }

    /// What an image key holds: from memory, else from disk, for which it blocks.
    private func held(_ imageKey: ImageKey) -> Image? {
        let (inMemory, isGone) = state.withLockedValue { state in
            (
                state.coordinator.storing(imageKey)?.image ?? state.memory[imageKey]?.served.image,
                state.beingRemoved.contains(imageKey.profile) || state.coordinator.activity[imageKey]?.dropping != nil
            )
        }
        if inMemory != nil || isGone { return inMemory }
        do {
            return try generationStore.read(imageKey, framing: services.framing)
        } catch {
            // Closed under our feet: whoever waits has been answered by what closed it.
            return nil
        }
    }

    /// A rendition that was found on disk with what is known of its source now; nil where the source's image key holds
    /// another picture, or that cannot be told without waiting.
    func withSource(_ rendition: Image, in imageKey: ImageKey) -> Image? {
        let source = self.source(of: imageKey, origin) ?? ImageKey(profile: imageKey.profile)
        let (inMemory, mayLook) = state.withLockedValue { state in
            (state.memory[source]?.served.image, state.mayLookAtDisk(source, now: services.time.now))
        }
        var image = inMemory
        if image == nil, mayLook,
            case .image(let found) = generationStore.readCached(source, framing: services.framing),
            found.record.rendered == nil
        {
            // Of one that was made itself nobody knows here whether its own source is still the same.
            image = found
        }
        guard let image, image.record.digest == rendition.record.rendered else { return nil }
        return image.rendition(rendition.bytes, shape: rendition.record.shape, digest: rendition.record.digest)
    }

    /// Asks for the source as for any image.
    func findSource(_ flight: FlightID, _ query: ImageQuery) {
        guard state.withLockedValue({ $0.coordinator.isUnderWay(flight) }) else { return }
        let inner = get(query) { [self] outcome in
            let route = self.route(for: flight.imageKey, held: nil)
            let now = services.time.now
            change { state in
                let end = state.coordinator.sourceEnded(flight, outcome, route: route, now: now)
                return consequences(of: end, in: flight.imageKey, &state)
            }
        }
        if !state.withLockedValue({ $0.coordinator.sourceAsked(flight, by: inner) }) { leave(inner) }
    }

    private func consequences(
        of end: RequestCoordinator.RenditionOutcome, in imageKey: ImageKey, _ state: inout State
    ) -> Consequences {
        guard let image = end.kept else { return Consequences(effects: end.effects) }
        return Consequences(effects: end.effects, memory: remember(image, in: imageKey, &state))
    }

    /// Has a picture made, elsewhere.
    func render(_ flight: FlightID, _ source: Image) {
        let settings = services.settings()
        let (shape, imageKey) = (source.record.shape, flight.imageKey)
        guard let renderer = services.renderer, origin?.renditions != .never else {
            return rendered(flight, source, .failure(.notMade))
        }
        guard Int(shape.width) * Int(shape.height) <= settings.renditionPixels else {
            return rendered(flight, source, .failure(.badPicture))
        }
        // While it waits for its turn it is in memory on behalf of who asked.
        let lease = services.budget.lease(for: owner.uid)
        guard lease.take(source.bytes.storage + Self.costOfWaiting) else {
            return rendered(flight, source, .failure(.unavailable))
        }
        let wish = RenditionOptions(
            side: imageKey.size, style: imageKey.style, mostPixels: settings.renditionPixels,
            mostBytes: settings.imageLimit)
        renderer.render(
            source.bytes.image, wish, for: owner.uid,
            isWanted: { [self] in state.withLockedValue { $0.coordinator.beginRender(flight) } },
            onEnd: { [self] result in
                lease.set(to: 0)
                rendered(flight, source, result.flatMap { image($0, from: source, wish) })
            })
    }

    /// Bytes that a picture takes beside itself while it waits for its turn.
    private static var costOfWaiting: Int { 2 << 10 }

    /// Judges what came: whoever made it may have been taken over by the picture.
    private func image(
        _ bytes: ByteBuffer, from source: Image, _ wish: RenditionOptions
    ) -> Result<Image, RenditionFailure> {
        guard bytes.readableBytes <= wish.mostBytes else { return .failure(.badPicture) }
        let shape: ImageShape
        do {
            shape = try ImageSniffer.sniff(bytes, maximumDimension: Int(wish.side))
        } catch {
            return .failure(.badPicture)
        }
        guard wish.style.format.allows(shape.kind) else { return .failure(.badPicture) }
        let framed = ImageBytes(copying: bytes, framing: services.framing)
        return .success(source.rendition(framed, shape: shape, digest: services.store.digest(of: bytes)))
    }

    private func rendered(_ flight: FlightID, _ source: Image, _ result: Result<Image, RenditionFailure>) {
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

    /// Keeps a profile from filling the disk with its sizes. Blocks on the disk.
    func trimRenditions(keeping imageKey: ImageKey) {
        do {
            try generationStore.trimRenditions(
                of: imageKey.profile, keeping: imageKey, most: services.settings().renditionsPerProfile)
        } catch StoreError.closed {
            // All of it is going.
        } catch {
            // There are some too many of them until the next is made.
            services.counters.count(.storeFailures)
        }
    }
}
