import NIOConcurrencyHelpers
import NIOCore

// Pictures in other sizes than the origin gives. `RequestCoordinator+Renditions.swift` says what follows from what.

extension UserCache {
    /// The slot whose image is made into what this one is to hold; nil where that is asked of the origin.
    func source(of slot: Slot, _ origin: Origin?) -> Slot? {
        guard slot.code != 0 else { return nil }
        let unsized = Slot(profile: slot.profile)
        let ofItsSize = slot.style == .plain ? nil : Slot(profile: slot.profile, size: slot.size)
        guard let origin else { return services.renderer == nil ? nil : unsized }
        return switch origin.renditions {
        case .always: unsized
        case .auto: origin.hasSizes ? ofItsSize : unsized
        // Nothing is made: the picture of that size is served.
        case .never: ofItsSize
        }
    }

    /// The slot of no size, where an image was PUT there and the slot itself holds none that is fresh: it is the source
    /// of every size, whatever the origin has. Blocks on the disk.
    func putSource(of slot: Slot, held: Image?, now: Int64) -> Slot? {
        let isAnswer = held.map { $0.record.rendered == nil && $0.record.freshness.isFresh(at: now) } ?? false
        guard slot.size > 0, services.renderer != nil, !isAnswer, let origin,
            origin.renditions != .never, source(of: slot, origin) == nil
        else { return nil }
        let unsized = Slot(profile: slot.profile)
        return self.held(unsized)?.record.provenance == .put ? unsized : nil
    }

    /// What a slot holds: from memory, else from disk, for which it blocks.
    private func held(_ slot: Slot) -> Image? {
        let (inMemory, isGone) = state.withLockedValue { state in
            (
                state.coordinator.storing(slot)?.image ?? state.memory[slot]?.served.image,
                state.beingRemoved.contains(slot.profile) || state.coordinator.activity[slot]?.dropping != nil
            )
        }
        if inMemory != nil || isGone { return inMemory }
        do {
            return try vault.read(slot, framing: services.framing)
        } catch {
            // Closed under our feet: whoever waits has been answered by what closed it.
            return nil
        }
    }

    /// A rendition that was found on disk with what is known of its source now; nil where the source's slot holds
    /// another picture, or that cannot be told without waiting.
    func withSource(_ rendition: Image, in slot: Slot) -> Image? {
        let source = self.source(of: slot, origin) ?? Slot(profile: slot.profile)
        let (inMemory, mayLook) = state.withLockedValue { state in
            (state.memory[source]?.served.image, state.mayLookAtDisk(source, now: services.time.now))
        }
        var image = inMemory
        if image == nil, mayLook, case .image(let found) = vault.readCached(source, framing: services.framing),
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
            let route = self.route(for: flight.slot, held: nil)
            let now = services.time.now
            change { state in
                let end = state.coordinator.sourceEnded(flight, outcome, route: route, now: now)
                return consequences(of: end, in: flight.slot, &state)
            }
        }
        if !state.withLockedValue({ $0.coordinator.sourceAsked(flight, by: inner) }) { leave(inner) }
    }

    private func consequences(
        of end: RequestCoordinator.RenditionOutcome, in slot: Slot, _ state: inout State
    ) -> Consequences {
        guard let image = end.kept else { return Consequences(effects: end.effects) }
        return Consequences(effects: end.effects, memory: remember(image, in: slot, &state))
    }

    /// Has a picture made, elsewhere.
    func render(_ flight: FlightID, _ source: Image) {
        let settings = services.settings()
        let (shape, slot) = (source.record.shape, flight.slot)
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
        let wish = RenditionWish(
            side: slot.size, style: slot.style, mostPixels: settings.renditionPixels, mostBytes: settings.imageLimit)
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
        _ bytes: ByteBuffer, from source: Image, _ wish: RenditionWish
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
            return consequences(of: end, in: flight.slot, &state)
        }
    }

    /// Keeps a profile from filling the disk with its sizes. Blocks on the disk.
    func trimRenditions(keeping slot: Slot) {
        do {
            try vault.trimRenditions(
                of: slot.profile, keeping: slot, most: services.settings().renditionsPerProfile)
        } catch StoreError.closed {
            // All of it is going.
        } catch {
            // There are some too many of them until the next is made.
            services.counters.count(.storeFailures)
        }
    }
}
