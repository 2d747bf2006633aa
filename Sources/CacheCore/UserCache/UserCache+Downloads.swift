import LinuxSupport
import NIOConcurrencyHelpers

// The way of one download: its token, the fetcher, what the answer means for the cache, and the end of its flight.

extension UserCache {
    /// A download that waits for its token, is under way, or was refused its token and tries once more with another.
    private struct DownloadAttempt: Sendable {
        let flight: FlightID
        /// Whom it asks, and what they have said.
        var chain: UpstreamChain
        let origin: Origin
        /// What is held and to be revalidated.
        var basis: Image?
        /// Which tokens it shows, or some that came before them.
        var family: UInt32 = 0
        let steps = CancellationChain()
        /// The token that the origin has refused.
        var refused: Secret?

        /// The number of the last step before.
        var step: Int { 4 * chain.number + (refused == nil ? 0 : 2) }

        /// What is held, if it came from that link and the tokens may confirm it.
        func basis(of link: DownloadTarget) -> Image? {
            guard let basis, basis.record.provenance == .url(link.url) else { return nil }
            return (basis.record.tokenFamily ?? family) == family ? basis : nil
        }
    }

    func download(_ flight: FlightID, _ target: DownloadTarget) {
        // Ended before it began: then nobody is asked, least of all without the token that is gone.
        let (account, basis) = state.withLockedValue { state in
            (state.coordinator.isUnderWay(flight) ? state.account : nil, state.coordinator.basis(flight))
        }
        guard let account else { return }
        let chain = UpstreamChain(target)
        guard let origin = origin(of: account) else {
            return finished(flight, chain, .failed(.origin("the user's origin is configured no more")))
        }
        let attempt = DownloadAttempt(
            flight: flight, chain: chain, origin: origin, basis: basis, family: account.family)
        change { state in
            Consequences(effects: state.coordinator.downloadStarted(flight, handle: attempt.steps))
        }
        askNext(attempt)
    }

    /// Asks the link whose turn it is, or ends the flight when all have said what they have.
    private func askNext(_ attempt: DownloadAttempt) {
        var attempt = attempt
        attempt.refused = nil
        let (imageKey, now) = (attempt.flight.imageKey, services.time.now)
        let (account, known) = state.withLockedValue { state in
            let negativeCache = state.coordinator.negativeCache
            attempt.chain.skip { negativeCache.isMissing(imageKey, url: $0, at: now) }
            // A single link was looked up before the download began.
            let known = attempt.chain.target.others.isEmpty ? nil : attempt.chain.current
            return (
                state.coordinator.isUnderWay(attempt.flight) ? state.account : nil,
                known.flatMap { negativeCache.unusable(imageKey, url: $0.url, at: now) }
            )
        }
        guard let account else { return }
        if let known { return ended(attempt, .failed(known)) }
        guard attempt.chain.current != nil else {
            return finished(attempt.flight, attempt.chain, attempt.chain.end(family: attempt.family))
        }
        authorize(attempt, account)
    }

    /// What the link that was asked has said.
    private func ended(_ attempt: DownloadAttempt, _ result: RequestCoordinator.DownloadResult?) {
        guard let result else { return finished(attempt.flight, attempt.chain, nil) }
        var attempt = attempt
        let flight = attempt.flight
        let all = state.withLockedValue { state in
            attempt.chain.take(
                result, timeToLive: attempt.origin.negativeTTL, heldURL: state.coordinator.heldURL(flight)
            ) { state.coordinator.prefersHeld(flight, to: $0, of: $1) }
        }
        if let all { finished(flight, attempt.chain, all) } else { askNext(attempt) }
    }

    /// Sends the download as soon as there is a token for it, or nobody wants one.
    private func authorize(_ attempt: DownloadAttempt, _ account: Account) {
        var attempt = attempt
        // Asked before the token, so that an answer never counts for tokens that came after the one that was shown.
        let family = account.family
        // Nor does what the links before have said.
        if attempt.chain.hasHeard, attempt.family != family {
            return finished(attempt.flight, attempt.chain, nil)
        }
        attempt.family = family
        guard attempt.chain.current?.showsToken == true else { return ask(attempt, nil) }
        // What cannot be renewed is sent, be it nothing, for the origin to judge.
        guard let service = account.service else { return ask(attempt, account.tokens.access) }
        let wait = service.ask(refused: attempt.refused, of: attempt.origin) { [attempt] result in
            switch result {
            case .success(let token): self.ask(attempt, token)
            case .failure(let failure): self.ended(attempt, .failed(failure))
            }
        }
        attempt.steps.follow(wait, as: attempt.step + 1)
    }

    /// Asks the fetcher: nobody else does.
    private func ask(_ attempt: DownloadAttempt, _ token: Secret?) {
        var attempt = attempt
        // A token may have been waited for, and the flight have ended meanwhile.
        guard let link = attempt.chain.current,
            state.withLockedValue({ $0.coordinator.isUnderWay(attempt.flight) })
        else { return }
        guard let timeout = attempt.chain.share(of: attempt.origin.timeout, at: services.time.uptime) else {
            let reason = "the origin's other links took all of its \(attempt.origin.timeout) ms"
            return ended(attempt, .failed(.timedOut(reason)))
        }
        let download = Download(
            uid: quotaAccount, origin: attempt.origin, target: link, token: token, timeout: timeout,
            condition: attempt.basis(of: link).map { condition(for: $0, at: link) }, framing: services.framing)
        do {
            let handle = try services.fetcher.start(download) { [attempt] outcome in
                if let token, self.triesAgain(attempt, token, outcome) { return }
                self.arrived(outcome, attempt)
            }
            if attempt.refused == nil { services.counters.count(.downloads) }
            if download.condition != nil { services.counters.count(.revalidations) }
            attempt.steps.follow(handle, as: attempt.step + 2)
        } catch {
            ended(attempt, .failed(error))
        }
    }

    /// A download that was refused its token is sent once more where there can be another token.
    private func triesAgain(_ attempt: DownloadAttempt, _ token: Secret, _ outcome: DownloadOutcome) -> Bool {
        guard case .failed(.unauthorized) = outcome else { return false }
        let account = self.account
        guard attempt.refused == nil else {
            account.service?.wasRefusedToo(token)
            return false
        }
        // A service can until the log-in is over; without one a log-in may have brought another meanwhile.
        let hasAnother = account.tokens.access != nil && account.tokens.access != token
        guard account.service.map({ $0.worthKeeping != nil }) ?? hasAnother else { return false }
        var again = attempt
        again.refused = token
        authorize(again, account)
        return true
    }

    /// Bytes whose digest the thread that speaks with the fetcher has the time for, for which other answers wait: these
    /// take some 40 µs. To hand them to a pool takes 15 µs and more, and a thread's waking.
    private static var mostHashedAtOnce: Int { 64 << 10 }

    /// Judges what came: here, on the fetcher's thread, if it is quickly done.
    private func arrived(_ outcome: DownloadOutcome, _ attempt: DownloadAttempt) {
        let responseTime = ResponseTime(now: services.time.now, wallClock: services.time.wallClock)
        guard let link = attempt.chain.current else { return }
        // It may wait for its turn beyond a log-out: so it holds no token.
        var attempt = attempt
        attempt.refused = nil
        let judge: @Sendable () -> Void = { [attempt] in
            let result = self.judge(
                outcome, of: link, from: attempt.origin, basis: attempt.basis(of: link), attempt.family,
                at: responseTime)
            self.ended(attempt, result)
        }
        if case .image(let downloaded) = outcome, downloaded.bytes.count > Self.mostHashedAtOnce {
            services.disk.submit(for: owner.uid, judge)
        } else {
            judge()
        }
    }

    // MARK: What an answer means

    /// What makes a download conditional on an image that is held.
    func condition(for basis: Image, at target: DownloadTarget) -> DownloadCondition {
        let fields = basis.record.fields
        return DownloadCondition(
            url: basis.record.redirectedTo ?? target.url, etag: fields.etag,
            lastModified: fields.modifiedSince(now: services.time.now))
    }

    /// What an ended download means for the cache. Nil for a "not modified" that is about something else than what is
    /// held, and for what was said to tokens that are not the log-in's any more: then the origin is to be asked again.
    /// - Parameters:
    ///   - family: of the tokens that it showed.
    ///   - responseTime: when it ended, which is when its age began to count here.
    func judge(
        _ outcome: DownloadOutcome, of target: DownloadTarget, from origin: Origin, basis: Image?, _ family: UInt32,
        at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult? {
        if case .failed = outcome {} else if family != account.family { return nil }
        switch outcome {
        case .image(let downloaded):
            return image(downloaded, of: target, from: origin, family, at: responseTime)
        case .notModified(let headers):
            guard let basis else { return .failed(.origin("the origin said that nothing has changed, unasked")) }
            return confirmed(basis, headers, origin: origin, family, at: responseTime)
        case .missing(let headers):
            return .missing(
                until: NegativePolicy.believedUntil(headers, origin: origin, at: responseTime), family: family)
        case .unusable(let failure, let headers):
            services.counters.count(.downloadFailures)
            let until = NegativePolicy.believedUntil(headers, origin: origin, at: responseTime)
            return .unusable(failure, until: until, family: family)
        case .failed(let failure):
            services.counters.count(.downloadFailures)
            return .failed(failure)
        }
    }

    private func image(
        _ downloaded: DownloadedImage, of target: DownloadTarget, from origin: Origin, _ family: UInt32,
        at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult {
        let fields = StoredFields(downloaded.headers)
        let policy = StoragePolicy(fields, downloaded.headers, origin: origin, at: responseTime)
        let record = ImageRecord(
            shape: downloaded.shape, digest: services.store.digest(of: downloaded.bytes.image),
            provenance: .url(target.url), freshness: policy.freshness, fields: fields,
            redirectedTo: downloaded.redirectedTo, tokenFamily: policy.variesByToken ? family : nil)
        return .image(Image(record: record, bytes: downloaded.bytes), storable: policy.mayStore)
    }

    /// A 304 renews what is known of the image and keeps its bytes (RFC 9111 section 4.3.4).
    private func confirmed(
        _ basis: Image, _ headers: ResponseHeaders, origin: Origin, _ family: UInt32, at responseTime: ResponseTime
    ) -> RequestCoordinator.DownloadResult? {
        let answer = StoredFields(headers)
        guard basis.record.fields.areConfirmed(by: answer, now: responseTime.forDates) else { return nil }
        services.counters.count(.notModified)
        var record = basis.record
        record.fields = record.fields.updated(by: answer)
        let policy = StoragePolicy(record.fields, headers, origin: origin, at: responseTime)
        record.freshness = policy.freshness
        record.tokenFamily = policy.variesByToken ? family : nil
        return .confirmed(Image(record: record, bytes: basis.bytes), storable: policy.mayStore)
    }

    // MARK: The end of the flight

    /// - Parameters:
    ///   - chain: with what its links have said.
    ///   - result: nil when the answer means nothing for what is held.
    private func finished(_ flight: FlightID, _ chain: UpstreamChain, _ result: RequestCoordinator.DownloadResult?) {
        defer { services.writes.downloadEnded() }
        let imageKey = flight.imageKey
        let now = services.time.now
        let route = self.route(for: imageKey, held: nil)
        change { state in
            // Looked at where it takes effect: other tokens may be shown since it was judged.
            guard let result, state.coordinator.suits(result) else {
                return Consequences(effects: state.coordinator.askAgain(flight, chain.target))
            }
            guard
                let effects = state.coordinator.downloadEnded(
                    flight, result, answers: chain.answers, route: route, now: now)
            else { return Consequences() }
            state.invalidateLookups(of: imageKey.profile)
            var memory = MemoryChange()
            if let image = result.storable {
                memory = remember(image, in: imageKey, &state)
            } else if state.coordinator.mayDrop(flight) {
                // What goes from the disk goes from memory.
                memory = forget(imageKey, &state)
                memory.removed += state.memory.removeRenditions(of: imageKey.profile, but: nil)
            }
            return Consequences(effects: effects, memory: memory)
        }
    }
}

/// A download that takes several steps, one after another, as one thing that can be stopped: the wait for a token, the
/// request, and where the origin refuses the token, both again.
final class CancellationChain: DownloadHandle {
    private struct State {
        var isCancelled = false
        var number = 0
        var step: (any DownloadHandle)?
    }

    private let state = NIOLockedValueBox(State())

    /// Goes on with a step: it is what ``cancel()`` stops from now on, and what is stopped here if that came first.
    /// - Parameter number: a step that was overtaken by a later one, on another thread, changes nothing.
    func follow(_ step: any DownloadHandle, as number: Int) {
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
