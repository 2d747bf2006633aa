import LinuxSupport
import NIOConcurrencyHelpers
import NIOCore

// What the coordinator of a cache asks to be done, done: outside its lock, on the disk's pool or by the fetcher.

extension UserCache {
    /// How long a download that nobody waits for any more lives on.
    private static var grace: Int64 { 5_000 }

    /// What follows from a change of the state, to be done outside the lock.
    struct Consequences: Sendable {
        var effects: [RequestCoordinator.Effect] = []
        var memory = MemoryChange()
    }

    /// Changes the state under the lock, lets go of it, and does what follows. An ending that comes in between waits until
    /// the answers are with whoever asked.
    func change(_ body: (inout State) -> Consequences) {
        let (consequences, delivery) = state.withLockedValue { state in
            (body(&state), state.beginDelivery())
        }
        apply(consequences.memory)
        perform(consequences.effects)
        delivery.leave()
    }

    func perform(_ effects: [RequestCoordinator.Effect]) {
        for effect in effects {
            switch effect {
            case .answer(let waiter, let outcome):
                count(outcome)
                waiter.resolve(outcome)
            case .read(let slot, let flight):
                services.disk.submit(for: owner.uid) { self.read(slot, flight) }
            case .findLarger(let slot, let flight):
                services.disk.submit(for: owner.uid) { self.findLarger(slot, flight) }
            case .download(let slot, let target, let flight):
                download(slot, target, flight)
            case .cancel(let handle):
                services.counters.count(.downloadsCancelled)
                handle.cancel()
            case .store(let slot, let flight):
                storeLater(slot, flight)
            case .drop(let slot, let flight):
                services.disk.submit(for: owner.uid) { self.drop(slot, flight) }
            case .grace(let slot, let url, let number):
                // Weak: a cache that has ended does not live on for it.
                _ = services.time.after(milliseconds: Self.grace) { [weak self] in
                    self?.change { Consequences(effects: $0.coordinator.graceEnded(slot, url: url, number)) }
                }
            }
        }
    }

    private func count(_ outcome: GetOutcome) {
        guard case .success(let served?) = outcome else { return }
        switch served.source {
        case .memory, .disk:
            if served.isStale { services.counters.count(.staleServed) }
            if served.source == .disk { services.counters.count(.diskHits) }
        case .origin, .revalidated, .put:
            // Just asked about, though it may not be used again without asking.
            break
        }
    }

    // MARK: From disk

    /// Looks on disk; on the pool.
    private func read(_ slot: Slot, _ flight: UInt64) {
        let image: Image?
        do {
            image = try vault.read(slot, framing: services.framing).flatMap { image in
                state.withLockedValue { $0.coordinator.suits(image) } ? image : nil
            }
        } catch {
            // Closed under our feet: whoever waited has been answered by what closed it.
            image = nil
        }
        let route = self.route(for: slot, held: image)
        let now = services.time.now
        change { state in
            guard let effects = state.coordinator.readEnded(slot, flight, image: image, route: route, now: now) else {
                return Consequences()
            }
            let memory = image.map { remember($0, in: slot, &state) } ?? MemoryChange()
            return Consequences(effects: effects, memory: memory)
        }
    }

    // MARK: From the origin

    /// Where to ask for what a slot is to hold: where the held image came from, else where the template says.
    func route(for slot: Slot, held: Image?) -> RequestCoordinator.Route {
        guard let origin else { return .success(nil) }
        return RequestCoordinator.Route { self.target(of: origin, for: slot, held: held) }
    }

    private func target(of origin: Origin, for slot: Slot, held: Image?) -> RequestCoordinator.Route.Target {
        do {
            let usual = try services.fetcher.target(origin: origin, user: owner.user, slot: slot, url: nil)
            guard case .url(let url)? = held?.record.provenance, url != usual.url else { return .success(usual) }
            do {
                return .success(
                    try services.fetcher.target(origin: origin, user: owner.user, slot: slot, url: url))
            } catch {
                // The configuration has changed since: that URL may not be asked any more.
                return .success(usual)
            }
        } catch {
            return .failure(CacheFailure(error))
        }
    }

    private func download(_ slot: Slot, _ target: DownloadTarget, _ flight: UInt64) {
        // Ended before it began: then nobody is asked, least of all without the token that is gone.
        let (account, basis) = state.withLockedValue { state in
            let isUnderWay = state.coordinator.isUnderWay(slot, flight, url: target.url)
            return (isUnderWay ? state.account : nil, state.coordinator.basis(slot, flight, url: target.url))
        }
        guard let account else { return }
        guard let origin = origin(of: account) else {
            return finished(slot, target, flight, .failed(.origin("the user's origin is configured no more")))
        }
        let attempt = DownloadAttempt(
            slot: slot, target: target, flight: flight, origin: origin, basis: basis, tokens: account.tokens)
        change { state in
            Consequences(
                effects: state.coordinator.downloadStarted(slot, flight, url: target.url, handle: attempt.steps))
        }
        authorize(attempt)
    }

    /// A download that waits for its token, is under way, or was refused its token and tries once more with another.
    private struct DownloadAttempt: Sendable {
        let slot: Slot
        let target: DownloadTarget
        let flight: UInt64
        let origin: Origin
        /// What is held and to be revalidated.
        var basis: Image?
        /// Which tokens it shows, or some that came before them.
        var family: UInt32 = 0
        let tokens: AccessTokenService
        let steps = CancellationChain()
        /// The token that the origin has refused.
        var refused: Secret?

        /// The number of the last step before.
        var step: Int { refused == nil ? 0 : 2 }

        /// The same with tokens of that family. What is held for others is not what they may confirm.
        func showing(_ family: UInt32) -> DownloadAttempt {
            var attempt = self
            attempt.family = family
            if let held = basis?.record.tokenFamily, held != family { attempt.basis = nil }
            return attempt
        }
    }

    /// Sends the download as soon as there is a token for it, or nobody wants one.
    private func authorize(_ attempt: DownloadAttempt) {
        // Asked before the token, so that an answer never counts for tokens that came after the one that was shown.
        let attempt = attempt.showing(attempt.tokens.family)
        let wait = attempt.tokens.ask(refused: attempt.refused, of: attempt.origin, services) { result in
            switch result {
            case .success(let token): self.send(attempt, token)
            case .failure(let failure): self.finished(attempt.slot, attempt.target, attempt.flight, .failed(failure))
            }
        }
        attempt.steps.follow(wait, as: attempt.step + 1)
    }

    private func send(_ attempt: DownloadAttempt, _ token: Secret?) {
        let (slot, target, flight) = (attempt.slot, attempt.target, attempt.flight)
        // A token may have been waited for, and the flight have ended meanwhile.
        guard state.withLockedValue({ $0.coordinator.isUnderWay(slot, flight, url: target.url) }) else { return }
        let download = Download(
            uid: payer, origin: attempt.origin, target: target, token: token,
            condition: attempt.basis.map { condition(for: $0, at: target) }, framing: services.framing)
        do {
            let handle = try services.fetcher.start(download) { outcome in
                if let token, self.triesAgain(attempt, token, outcome) { return }
                self.arrived(
                    outcome, for: slot, flight, from: attempt.origin, target, basis: attempt.basis, attempt.family)
            }
            if attempt.refused == nil { services.counters.count(.downloads) }
            if download.condition != nil { services.counters.count(.revalidations) }
            attempt.steps.follow(handle, as: attempt.step + 2)
        } catch {
            finished(slot, target, flight, .failed(CacheFailure(error)))
        }
    }

    /// Judges what came: here, on the fetcher's thread, if it is quickly done and no other download needs that thread.
    private func arrived(
        _ outcome: DownloadOutcome, for slot: Slot, _ flight: UInt64, from origin: Origin, _ target: DownloadTarget,
        basis: Image?, _ family: UInt32
    ) {
        let responseTime = ResponseTime(services.time)
        // It may wait for its turn beyond a log-out: so it holds no token.
        let judge: @Sendable () -> Void = {
            let result = self.judge(outcome, of: target, from: origin, basis: basis, family, at: responseTime)
            self.finished(slot, target, flight, result)
        }
        if outcome.takesLongToHash {
            services.disk.submit(for: owner.uid, judge)
        } else if services.fetcher.isBusy {
            services.judging.submit(for: owner.uid, judge)
        } else {
            judge()
        }
    }

    /// A download that was refused its token is sent once more where there can be another token.
    private func triesAgain(_ attempt: DownloadAttempt, _ token: Secret, _ outcome: DownloadOutcome) -> Bool {
        guard case .failed(.unauthorized) = outcome else { return false }
        guard attempt.refused == nil else {
            attempt.tokens.wasRefusedToo(token, services)
            return false
        }
        guard attempt.tokens.mayReplace(token) else { return false }
        var again = attempt
        again.refused = token
        authorize(again)
        return true
    }

    /// - Parameter result: nil when the answer means nothing for what is held.
    private func finished(
        _ slot: Slot, _ target: DownloadTarget, _ flight: UInt64, _ result: RequestCoordinator.DownloadResult?
    ) {
        defer { services.writes.downloadEnded() }
        guard let result else {
            return change { Consequences(effects: $0.coordinator.askAgain(slot, flight, target)) }
        }
        let now = services.time.now
        let route = self.route(for: slot, held: nil)
        change { state in
            // Looked at where it takes effect: other tokens may be shown since it was judged.
            guard state.coordinator.suits(result) else {
                return Consequences(effects: state.coordinator.askAgain(slot, flight, target))
            }
            let ended = state.coordinator.downloadEnded(
                slot, flight, url: target.url, result, route: route, now: now)
            guard let effects = ended else { return Consequences() }
            state.invalidateLookups(of: slot.profile)
            var memory = MemoryChange()
            if let image = result.storable {
                memory = remember(image, in: slot, &state)
            } else if state.coordinator.mayDrop(slot, flight) {
                // What goes from the disk goes from memory.
                memory = forget(slot, &state)
            }
            return Consequences(effects: effects, memory: memory)
        }
    }
}

extension DownloadOutcome {
    /// Whether the digest of what came takes longer than the fetcher's one thread has, for which other downloads wait: 64 KiB take
    /// some 40 µs. To hand it to a pool takes 15 µs and more, and a thread's waking.
    fileprivate var takesLongToHash: Bool {
        if case .image(let downloaded) = self { downloaded.bytes.count > 64 << 10 } else { false }
    }
}
