import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

// EXPLAIN. An excerpt of the coordinator decides on a GET; its decisions have no effect.

extension UserSessions {
    /// Explains a GET, including one that fails, for example because the user is not logged in.
    /// - Parameter deliver: called once, unless an error is thrown. Must not block: a purge or logout of the user waits
    ///   for it (I2).
    public func explain(
        _ owner: Owner, _ imageKey: ImageKey, deliver: @Sendable (Explanation) -> Void
    ) async throws(CacheFailure) {
        for _ in 0..<3 {
            let cache: UserCache
            do throws(CacheFailure) {
                cache = try await self.cache(owner)
            } catch {
                // GET fails in the same way.
                return deliver(Explanation(action: .fail, failure: error, size: imageKey.size))
            }
            // A purge or logout may interrupt the explanation. Then GET uses the next cache, if any.
            guard let removals = cache.removals else { continue }
            let explanation: Explanation
            do throws(CacheFailure) {
                explanation = try await cache.explain(imageKey)
            } catch {
                if cache.isOpen { throw error }
                continue
            }
            if cache.deliver({ deliver(explanation) }, unlessRemovedSince: removals, imageKey.profile) { return }
        }
        throw .cancelled
    }
}

extension UserCache {
    /// Number of profiles whose removal has begun; nil once the cache is closed.
    fileprivate var removals: UInt64? { state.withLockedValue { $0.isOpen ? $0.removals : nil } }

    /// Delivers a result. Returns false if the cache is closed or images of profiles were removed meanwhile.
    /// - Parameter removals: ``removals`` before the result was computed.
    fileprivate func deliver(_ work: () -> Void, unlessRemovedSince removals: UInt64, _ profile: OpaqueID) -> Bool {
        let delivery = state.withLockedValue { state -> DrainGroup? in
            guard state.isOpen, state.removals == removals, !state.beingRemoved.contains(profile) else { return nil }
            return state.beginDelivery()
        }
        guard let delivery else { return false }
        work()
        delivery.leave()
        return true
    }

    /// Describes the result of a GET without performing it. Starts no request, and leaves order of use, counters and
    /// freshness as they are.
    func explain(_ imageKey: ImageKey) async throws(CacheFailure) -> Explanation {
        let outlook = try await services.imagePool.run(for: owner.uid) { try self.outlook(of: imageKey) }
        var explanation = outlook.explanation
        if let source = outlook.source {
            explanation.source = [try await explain(source)]
            explanation.upstreams = []
            if !outlook.isDecided { decide(on: &explanation, of: imageKey, rendition: outlook.rendition) }
        } else if let target = outlook.target {
            await check(target, storedURL: outlook.storedURL, &explanation)
        }
        return explanation
    }

    private struct Outlook: Sendable {
        var explanation: Explanation
        /// Where the image would be requested.
        var target: DownloadTarget?
        var storedURL: String?
        /// The image key of the source.
        var source: ImageKey?
        /// The stored rendition, which may be that of an older source.
        var rendition: ImageRecord?
        /// Whether the source cannot change the action.
        var isDecided = true
    }

    /// Follows ``get(_:after:resolve:)`` up to the point where the GET waits or has a result. Blocks on the disk.
    private func outlook(of imageKey: ImageKey) throws -> Outlook {
        let (query, now) = (ImageQuery(imageKey: imageKey), services.time.now)
        let (current, memory, isRemoved) = try state.withLockedValue { state in
            if let closeReason = state.closeReason { throw closeReason }
            let isRemoved = state.beingRemoved.contains(imageKey.profile)
            return (state.coordinator.excerpt(imageKey), state.memory[imageKey]?.served, isRemoved)
        }
        var coordinator = current
        let waiter = Waiter(id: WaiterID(number: coordinator.flights.nextNumber()), query: query) { _ in }
        func suitable(_ held: ServedImage?) -> ServedImage? {
            held.flatMap { current.suitsTokens($0.image) ? $0 : nil }
        }

        var held = suitable(coordinator.storing(imageKey) ?? memory)
        var route = self.route(for: imageKey, held: held?.image)
        var effects: [RequestCoordinator.Effect]
        if let hit = suitable(memory), hit.image.record.freshness.isFresh(at: now) {
            held = hit
            effects = [.resolve(waiter, .success(hit))]
        } else {
            effects = coordinator.get(waiter, memory: memory, route: route, now: now)
        }
        if let read = coordinator.flights.flight(of: waiter.id)?.id, read.work == .read {
            let record = isRemoved ? nil : try generationStore.record(of: imageKey)
            let image = record.map { Image(record: $0, bytes: ImageBytes(copying: ByteBuffer(), framing: .bare)) }
            held = suitable(image.map { ServedImage($0, from: .disk, at: now) })
            let source = putSource(of: imageKey, held: held?.image, now: now, isUse: false)
            route = self.route(for: imageKey, held: held?.image, source: source)
            if route.source == nil, held?.image.record.sourceDigest != nil { held = nil }
            effects = coordinator.readEnded(read, image: held?.image, route: route, now: now) ?? []
        }

        var outlook = Outlook(explanation: Explanation(action: .wait, size: imageKey.size))
        outlook.explanation.held = held.map { Explanation.Held($0, at: now) }
        outlook.explanation.origin = origin?.name
        if case .success(let target?) = route.target { outlook.target = target }
        if case .url(let url)? = held?.image.record.provenance { outlook.storedURL = url }
        if held?.image.record.sourceDigest != nil {
            // Without a source by the origin's settings, a PUT image is the source.
            outlook.source = route.source ?? ImageKey(profile: imageKey.profile)
        }
        let inFlight = outlook.target.flatMap { current.flights[imageKey]?.flights[FlightID.Work($0)] }
        outlook.explanation.waiting = inFlight?.waiters.count
        outlook.explanation.upstreams =
            outlook.target.map { target in
                [DownloadTarget](target).map { Explanation.Upstream($0, of: imageKey, current.negativeCache, at: now) }
            } ?? []

        let isRequested = inFlight != nil || effects.contains { if case .download = $0 { true } else { false } }
        switch effects.outcome(of: waiter.id) {
        case .success(let served?)?:
            outlook.explanation.action =
                served.source == .fallback ? .fallback : served.isStale && isRequested ? .refresh : .serve
            if served.isStale, !isRequested, let target = outlook.target {
                let failed = current.negativeCache.remembered(imageKey, url: target.refreshKey, at: now)
                outlook.explanation.retryIn = failed.map { $0.until - now }
            }
        case .success(nil)?:
            outlook.explanation.action = .none
        case .failure(let failure)?:
            (outlook.explanation.action, outlook.explanation.failure) = (.fail, failure)
        case nil:
            let flight = coordinator.flights.flight(of: waiter.id)
            if case .source(let key)? = flight?.id.work {
                (outlook.source, outlook.rendition) = (key.imageKey, flight?.storedRendition?.record)
                outlook.isDecided = false
                outlook.explanation.held = nil
            } else if inFlight == nil {
                outlook.explanation.action = flight?.staleImage == nil ? .download : .revalidate
            }
        }
        if [.none, .fallback, .fail].contains(outlook.explanation.action) {
            outlook.explanation.retryIn = outlook.explanation.upstreams.compactMap(\.retryIn).min()
        }
        return outlook
    }

    /// Decides on an image whose source had to be requested first.
    private func decide(on explanation: inout Explanation, of imageKey: ImageKey, rendition: ImageRecord?) {
        guard let source = explanation.source.first else { return }
        (explanation.action, explanation.failure) = (source.action, source.failure)
        (explanation.retryIn, explanation.waiting) = (source.retryIn, source.waiting)
        guard source.action == .serve || source.action == .refresh, let held = source.held else { return }
        if let rendition, rendition.sourceDigest == held.digest {
            explanation.held = Explanation.Held(
                place: .disk, host: held.host, age: held.age, timeToLive: held.timeToLive, isFresh: held.isFresh,
                digest: rendition.digest, shape: rendition.shape)
            return
        }
        let now = services.time.now
        let hasFailed = state.withLockedValue { $0.coordinator.hasJustFailed(imageKey, held.digest, now) }
        // Otherwise GET returns the source itself.
        if services.renderer != nil, origin?.renditions != .never, !hasFailed, mayRender(held.shape) {
            explanation.action = .render
        }
    }

    /// Marks upstreams that would reject the request. If none remains, the action becomes `serve` or `fail`.
    private func check(_ target: DownloadTarget, storedURL: String?, _ explanation: inout Explanation) async {
        let credentials = self.credentials
        guard let origin = self.origin(of: credentials) else { return }
        var downloads: [(index: Int, download: Download)] = []
        for (index, upstream) in [DownloadTarget](target).enumerated()
        where explanation.upstreams[index].state == .ready {
            if upstream.showsToken, let failure = credentials.service?.failure(of: origin) {
                explanation.upstreams[index].state = .unauthorized
                explanation.upstreams[index].failure = failure
                continue
            }
            let download = Download(
                account: quotaAccount, origin: origin, target: upstream, token: nil, framing: services.framing)
            downloads.append((index, download))
        }
        let fetcher = services.fetcher
        await withTaskGroup(of: (Int, FetchRefusal?).self) { group in
            for (index, download) in downloads {
                group.addTask { (index, await fetcher.refusal(of: download)) }
            }
            for await case (let index, let refusal?) in group {
                explanation.upstreams[index].state = refusal.failure.kind == .circuitOpen ? .suspended : .failed
                explanation.upstreams[index].retryIn = refusal.retryIn.map { ($0 + 999) / 1_000 }
                explanation.upstreams[index].failure = CacheFailure(refusal.failure)
            }
        }
        guard [.refresh, .revalidate, .download].contains(explanation.action), explanation.waiting == nil,
            let failure = failure(of: target, storedURL: storedURL, explanation)
        else { return }
        explanation.retryIn = explanation.upstreams.compactMap(\.retryIn).min()
        let servesStale = explanation.action == .refresh || explanation.action == .revalidate && failure.allowsStale
        explanation.action = servesStale ? .serve : .fail
        if !servesStale { explanation.failure = failure }
    }

    /// The failure that a download ends with if it sends no request; nil if it sends one.
    private func failure(of target: DownloadTarget, storedURL: String?, _ explanation: Explanation) -> CacheFailure? {
        var chain = UpstreamChain(target)
        while let upstream = chain.current, chain.number < explanation.upstreams.count {
            let checked = explanation.upstreams[chain.number]
            if checked.state == .ready { return nil }
            let result: RequestCoordinator.DownloadResult =
                checked.failure.map { .failed($0) } ?? .missing(until: 0, family: 0)
            let end = chain.accept(result, timeToLive: 0, storedURL: storedURL) { failure, _ in
                explanation.action != .download && upstream.url == storedURL && failure.allowsStale
            }
            if let end { return end.failure }
        }
        return chain.end(family: 0).failure
    }
}

extension Explanation.Upstream {
    fileprivate init(_ target: DownloadTarget, of imageKey: ImageKey, _ negativeCache: NegativeCache, at now: Int64) {
        self.init(host: DownloadTarget.authority(of: target.url))
        guard let remembered = negativeCache.remembered(imageKey, url: target.url, at: now), !remembered.isRefresh
        else { return }
        failure = negativeCache.unusable(imageKey, url: target.url, at: now)
        state = failure == nil ? .missing : .unusable
        (age, retryIn) = (now - remembered.since, remembered.until - now)
    }
}

extension [RequestCoordinator.Effect] {
    fileprivate func outcome(of id: WaiterID) -> Result<ServedImage?, CacheFailure>? {
        for case .resolve(let waiter, let outcome) in self where waiter.id == id { return outcome }
        return nil
    }
}
