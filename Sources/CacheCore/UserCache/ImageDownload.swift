import LinuxSupport
import NIOConcurrencyHelpers

/// One download: for each upstream the token, the request, and the evaluation of the response; then its end.
///
/// A value that each step passes to the next; steps run on the fetcher client's loop or the image pool.
struct ImageDownload: Sendable {
    private let cache: UserCache
    private let flight: FlightID
    private let origin: Origin
    /// See ``Flight/basis``.
    private let basis: Image?
    private var chain: UpstreamChain
    /// Family of the tokens that are sent.
    private var family: UInt32
    /// A token that the origin has rejected; then the request is sent again with another.
    private var rejected: Secret?
    private let steps = CancellableSteps()

    private var services: CacheServices { cache.services }

    /// Starts the download of a flight, unless it has ended.
    static func start(_ flight: FlightID, _ target: DownloadTarget, in cache: UserCache) {
        // A flight that has ended is not started: after a logout the cache has no tokens to send.
        let (credentials, basis) = cache.state.withLockedValue { state in
            (state.coordinator.flights.isCurrent(flight) ? state.credentials : nil, state.coordinator.basis(flight))
        }
        guard let credentials else { return }
        let chain = UpstreamChain(target)
        guard let origin = cache.origin(of: credentials) else {
            let failure = CacheFailure.origin("the user's origin is no longer configured")
            return finish(flight, chain, .failed(failure), in: cache)
        }
        let download = ImageDownload(cache, flight, origin, basis, chain, family: credentials.family)
        cache.change { state in
            UserCache.Consequences(effects: state.coordinator.downloadStarted(flight, handle: download.steps))
        }
        download.requestNext()
    }

    private init(
        _ cache: UserCache, _ flight: FlightID, _ origin: Origin, _ basis: Image?, _ chain: UpstreamChain,
        family: UInt32
    ) {
        (self.cache, self.flight, self.origin) = (cache, flight, origin)
        (self.basis, self.chain, self.family) = (basis, chain, family)
    }

    /// Requests the next upstream, or ends the flight after the last one.
    private func requestNext() {
        var next = self
        next.rejected = nil
        let (imageKey, now) = (flight.imageKey, services.time.now)
        let (credentials, failure) = cache.state.withLockedValue { state in
            let negativeCache = state.coordinator.negativeCache
            next.chain.skip { negativeCache.isMissing(imageKey, url: $0, at: now) }
            // RequestCoordinator has checked the negative entry of a single upstream.
            let upstream = next.chain.target.others.isEmpty ? nil : next.chain.current
            return (
                state.coordinator.flights.isCurrent(flight) ? state.credentials : nil,
                upstream.flatMap { negativeCache.unusable(imageKey, url: $0.url, at: now) }
            )
        }
        guard let credentials else { return }
        if let failure { return next.upstreamEnded(.failed(failure)) }
        guard next.chain.current != nil else { return next.finish(next.chain.end(family: family)) }
        next.authorize(credentials)
    }

    /// Waits for an access token, if the upstream needs one, then sends the request.
    private func authorize(_ credentials: UserCache.Credentials) {
        var download = self
        // Read before the token, so that a response is never attributed to a newer token family.
        let family = credentials.family
        // The tokens changed within the chain: restart it.
        if chain.hasResult, self.family != family { return finish(nil) }
        download.family = family
        guard chain.current?.showsToken == true else { return download.send(nil) }
        // Without a refresh token, sends the current access token, if any.
        guard let service = credentials.service else { return download.send(credentials.tokens.access) }
        let wait = service.requestToken(rejected: rejected, of: origin) { [download] result in
            switch result {
            case .success(let token): download.send(token)
            case .failure(let failure): download.upstreamEnded(.failed(failure))
            }
        }
        steps.add(wait, number: step + 1)
    }

    private func send(_ token: Secret?) {
        var download = self
        // The flight may have ended during the wait for a token.
        guard let upstream = chain.current,
            cache.state.withLockedValue({ $0.coordinator.flights.isCurrent(flight) })
        else { return }
        guard let timeout = download.chain.share(of: origin.timeout, at: services.time.uptime) else {
            let reason = "the origin's other upstreams used up its timeout of \(origin.timeout) ms"
            return download.upstreamEnded(.failed(.timedOut(reason)))
        }
        let request = Download(
            account: cache.quotaAccount, origin: origin, target: upstream, token: token, timeout: timeout,
            condition: basis(of: upstream).map { condition(for: $0, at: upstream) }, framing: services.framing)
        do {
            let handle = try services.fetcher.start(request) { [download] outcome in
                if let token, download.retryWithOtherToken(token, outcome) { return }
                download.receive(outcome)
            }
            if rejected == nil { services.counters.count(.downloads) }
            if request.condition != nil { services.counters.count(.revalidations) }
            steps.add(handle, number: step + 2)
        } catch {
            download.upstreamEnded(.failed(CacheFailure(error)))
        }
    }

    /// Number of the step before the current request. Each upstream has four steps: a token and a request, and both
    /// once more if the token is rejected.
    private var step: Int { 4 * chain.number + (rejected == nil ? 0 : 2) }

    /// The image to revalidate, if it came from that upstream and these tokens may confirm it.
    private func basis(of upstream: DownloadTarget) -> Image? {
        guard let basis, basis.record.provenance == .url(upstream.url) else { return nil }
        return (basis.record.tokenFamily ?? family) == family ? basis : nil
    }

    private func condition(for basis: Image, at upstream: DownloadTarget) -> DownloadCondition {
        let fields = basis.record.fields
        return DownloadCondition(
            url: basis.record.redirectedTo ?? upstream.url, etag: fields.etag,
            lastModified: fields.modifiedSince(now: services.time.now))
    }

    /// Sends the request once more if the origin rejected the token and another one is available.
    private func retryWithOtherToken(_ token: Secret, _ outcome: DownloadOutcome) -> Bool {
        guard case .failed(let failure) = outcome, failure.kind == .unauthorized else { return false }
        let credentials = cache.credentials
        guard rejected == nil else {
            credentials.service?.wasRejectedAgain(token)
            return false
        }
        // A service can refresh until the logout; without one, a login may have brought another token meanwhile.
        let hasAnother = credentials.tokens.access != nil && credentials.tokens.access != token
        guard credentials.service.map({ $0.durableTokens != nil }) ?? hasAnother else { return false }
        var again = self
        again.rejected = token
        again.authorize(credentials)
        return true
    }

    /// Evaluates the response: small ones on the fetcher client's loop, others on the image pool.
    private func receive(_ outcome: DownloadOutcome) {
        let responseTime = ResponseTime(now: services.time.now, wallClock: services.time.wallClock)
        // Evaluation may wait beyond a logout, so it must hold no token.
        var download = self
        download.rejected = nil
        let evaluate: @Sendable () -> Void = { [download] in
            guard let upstream = download.chain.current else { return }
            download.upstreamEnded(download.evaluate(outcome, of: upstream, at: responseTime))
        }
        if case .image(let downloaded) = outcome, downloaded.bytes.count > Self.mostHashedInline {
            services.imagePool.submit(for: cache.owner.uid, evaluate)
        } else {
            evaluate()
        }
    }

    /// Maximum bytes that the fetcher client's loop hashes while other responses wait, in about 40 µs. Waking a pool
    /// thread takes 15 µs and more.
    private static var mostHashedInline: Int { 64 << 10 }

    /// The meaning of a response for the cache. Nil if the origin must be requested again: a 304 that is not about the
    /// stored image, or a response to tokens that are no longer current.
    private func evaluate(
        _ outcome: DownloadOutcome, of upstream: DownloadTarget, at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult? {
        if case .failed = outcome {} else if family != cache.credentials.family { return nil }
        switch outcome {
        case .image(let downloaded):
            return image(downloaded, of: upstream, at: responseTime)
        case .notModified(let headers):
            guard let basis = basis(of: upstream) else {
                return .failed(.origin("HTTP status 304 to a request without a condition"))
            }
            return confirmed(basis, headers, at: responseTime)
        case .missing(let headers):
            return .missing(
                until: NegativePolicy.believedUntil(headers, origin: origin, at: responseTime), family: family)
        case .unusable(let failure, let headers):
            services.counters.count(.downloadFailures)
            let until = NegativePolicy.believedUntil(headers, origin: origin, at: responseTime)
            return .unusable(failure, until: until, family: family)
        case .failed(let failure):
            services.counters.count(.downloadFailures)
            return .failed(CacheFailure(failure))
        }
    }

    private func image(
        _ downloaded: DownloadedImage, of upstream: DownloadTarget, at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult {
        let fields = StoredFields(downloaded.headers)
        let policy = StoragePolicy(fields, downloaded.headers, origin: origin, at: responseTime)
        let record = ImageRecord(
            shape: downloaded.shape, digest: services.store.digest(of: downloaded.bytes.image),
            provenance: .url(upstream.url), freshness: policy.freshness, fields: fields,
            redirectedTo: downloaded.redirectedTo, tokenFamily: policy.variesByToken ? family : nil)
        return .image(Image(record: record, bytes: downloaded.bytes), storable: policy.mayStore)
    }

    /// A 304 updates the stored header fields and keeps the bytes (RFC 9111 section 4.3.4).
    private func confirmed(
        _ basis: Image, _ headers: ResponseHeaders, at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult? {
        let fields = StoredFields(headers)
        guard basis.record.fields.areConfirmed(by: fields, now: responseTime.forDates) else { return nil }
        services.counters.count(.notModified)
        var record = basis.record
        record.fields = record.fields.updated(by: fields)
        let policy = StoragePolicy(record.fields, headers, origin: origin, at: responseTime)
        record.freshness = policy.freshness
        record.tokenFamily = policy.variesByToken ? family : nil
        return .confirmed(Image(record: record, bytes: basis.bytes), storable: policy.mayStore)
    }

    /// Accepts the result of an upstream, then requests the next one or ends the flight.
    private func upstreamEnded(_ result: RequestCoordinator.DownloadResult?) {
        guard let result else { return finish(nil) }
        var download = self
        let end = cache.state.withLockedValue { state in
            download.chain.accept(
                result, timeToLive: origin.negativeTTL, storedURL: state.coordinator.storedURL(flight)
            ) { state.coordinator.prefersStale(flight, to: $0, of: $1) }
        }
        if let end { download.finish(end) } else { download.requestNext() }
    }

    private func finish(_ result: RequestCoordinator.DownloadResult?) {
        Self.finish(flight, chain, result, in: cache)
    }

    /// Ends the flight, or starts it over if `result` is nil.
    private static func finish(
        _ flight: FlightID, _ chain: UpstreamChain, _ result: RequestCoordinator.DownloadResult?, in cache: UserCache
    ) {
        // Deferred writes may start now.
        defer { cache.services.writes.downloadEnded() }
        let imageKey = flight.imageKey
        let now = cache.services.time.now
        let route = cache.route(for: imageKey, held: nil)
        cache.change { state in
            // Checked again under the lock: the tokens may have changed since the evaluation.
            guard let result, state.coordinator.suitsTokens(result) else {
                return UserCache.Consequences(effects: state.coordinator.restartDownload(flight, chain.target))
            }
            guard
                let effects = state.coordinator.downloadEnded(
                    flight, result, negative: chain.negative, route: route, now: now)
            else { return UserCache.Consequences() }
            state.invalidateLookups()
            var memory = UserCache.MemoryChange()
            if let image = result.storable {
                memory = cache.remember(image, in: imageKey, &state)
            } else if state.coordinator.mayDrop(flight) {
                memory = cache.forget(imageKey, &state)
                memory.removed += state.memory.removeRenditions(of: imageKey.profile, but: nil)
            }
            return UserCache.Consequences(effects: effects, memory: memory)
        }
    }
}

/// The handle of a download, which cancels its current step: the wait for a token, or a request.
final class CancellableSteps: DownloadHandle {
    private struct State {
        var isCancelled = false
        var number = 0
        var step: (any DownloadHandle)?
    }

    private let state = NIOLockedValueBox(State())

    /// Adds a step; cancels it if ``cancel()`` was called.
    /// - Parameter number: the step is ignored if one with a larger number has begun on another thread.
    func add(_ step: any DownloadHandle, number: Int) {
        let isLate = state.withLockedValue { state in
            if state.isCancelled { return true }
            if number > state.number { (state.number, state.step) = (number, step) }
            return false
        }
        if isLate { step.cancel() }
    }

    func cancel() {
        let step = state.withLockedValue { state in
            state.isCancelled = true
            return state.step.take()
        }
        step?.cancel()
    }
}
