import NIOConcurrencyHelpers

/// Hands out the access token of one log-in to its downloads, and renews it at the origin's token endpoint.
///
/// It lives as long as the log-in: a purge leaves it be, a log-out ends it, and the next log-in of the same user has another one
/// that nothing of the old leads to. So what a refresh brings late reaches nobody (I3).
///
/// Safe from any thread. ``AccessTokens`` decides under the lock; what it decides is done outside.
public final class AccessTokenService: Sendable {
    private struct State {
        var tokens: AccessTokens
        var request: (number: UInt64, handle: any DownloadHandle)?
        /// Those who wait until no refresh is under way.
        var settlers: [CheckedContinuation<Void, Never>] = []
        /// Tokens that could not be made durable are to be tried again. Never more than one such wait, however many refreshes there are
        /// meanwhile: what it keeps is what is worth keeping by then.
        var laterKeep: (number: UInt64, timer: (any Timer)?)?
        var lastLaterKeep: UInt64 = 0
    }

    private let state: NIOLockedValueBox<State>
    private let keeper: TokenKeeper?

    /// - Parameters:
    ///   - payer: the account whose share of token requests it takes.
    ///   - keeper: nil where nothing outlives the process.
    init(_ tokens: LoginTokens = LoginTokens(), payer: UInt32 = 0, keeper: TokenKeeper? = nil) {
        state = NIOLockedValueBox(State(tokens: AccessTokens(tokens, payer: payer)))
        self.keeper = keeper
    }

    // MARK: For downloads

    /// Gives the token to show to the origin, nil for none, now or when a refresh has brought one.
    ///
    /// `resolve` is called exactly once, on any thread, maybe before this returns; not any more once the handle was cancelled,
    /// unless that came too late.
    /// - Parameter refused: the token that the origin has just refused.
    func ask(
        refused: Secret? = nil, of origin: Origin, _ services: CacheServices,
        resolve: @escaping @Sendable (Result<Secret?, CacheFailure>) -> Void
    ) -> any DownloadHandle {
        let now = services.time.now
        let number = state.withLockedValue { $0.tokens.nextNumber() }
        let waiter = AccessTokens.Waiter(number: number, resolve: resolve)
        let limit = services.settings().downloadsWaiting
        change(services) { $0.ask(waiter, refused: refused, of: origin, limit: limit, now: now) }
        return TokenWait(number: number, service: self)
    }

    /// Whether asking on behalf of a token that was refused can lead to another.
    func mayReplace(_ refused: Secret) -> Bool {
        state.withLockedValue { $0.tokens.mayReplace(refused) }
    }

    /// The origin has refused a token that was got because it had refused another.
    func wasRefusedToo(_ token: Secret, _ services: CacheServices) {
        let now = services.time.now
        state.withLockedValue { $0.tokens.wasRefusedToo(token, now: now) }
    }

    fileprivate func forget(_ number: UInt64) {
        state.withLockedValue { $0.tokens.forget(number) }
    }

    /// The access token, whatever its state.
    var held: Secret? { state.withLockedValue { $0.tokens.tokens.access } }

    /// Which tokens are shown from now on: those of this family or a later one.
    var family: UInt32 { state.withLockedValue { $0.tokens.tokens.family } }

    /// Whether no refresh is under way.
    var isIdle: Bool { state.withLockedValue { $0.tokens.isIdle } }

    // MARK: For log-in and log-out

    /// What has to be durable now; nil once the log-in is over.
    var worthKeeping: LoginTokens? { state.withLockedValue { $0.tokens.worthKeeping } }

    /// A log-in has brought tokens, and has made them durable.
    /// - Parameter adopt: called when they are the ones to be shown, before any download goes on with them.
    func logIn(access: Secret?, refresh: Secret?, _ services: CacheServices, adopt: () -> Void = {}) {
        let now = services.time.now
        change(services, first: adopt) { $0.logIn(access: access, refresh: refresh, now: now) }
    }

    /// The log-in is over.
    func end(_ services: CacheServices) {
        change(services) { $0.end() }
        endLaterKeep()
    }

    /// Begins no refresh any more, and returns when the one under way has ended and what it brought is durable: a stop that
    /// did not wait would lose a refresh token that the endpoint has just put in the place of the old one.
    /// Takes ``longestSettling`` at most: an endpoint that does not answer does not keep a daemon from stopping.
    func settle(_ services: CacheServices) async {
        guard state.withLockedValue({ $0.tokens.stop() }) == false else { return }
        let limit = services.time.after(milliseconds: Self.longestSettling) {
            for settler in self.takeSettlers() { settler.resume() }
        }
        await withCheckedContinuation { continuation in
            let isIdle = state.withLockedValue { state in
                if !state.tokens.isIdle { state.settlers.append(continuation) }
                return state.tokens.isIdle
            }
            if isIdle { continuation.resume() }
        }
        limit.cancel()
    }

    /// Milliseconds.
    private static var longestSettling: Int64 { 5_000 }

    private func takeSettlers() -> [CheckedContinuation<Void, Never>] {
        state.withLockedValue { state in
            defer { state.settlers = [] }
            return state.settlers
        }
    }

    // MARK: Doing what was decided

    private func change(
        _ services: CacheServices, first: () -> Void = {}, _ body: (inout AccessTokens) -> [AccessTokens.Effect]
    ) {
        let (effects, settlers) = state.withLockedValue { state in
            let effects = body(&state.tokens)
            guard state.tokens.isIdle else { return (effects, [CheckedContinuation<Void, Never>]()) }
            defer { state.settlers = [] }
            return (effects, state.settlers)
        }
        first()
        for effect in effects {
            switch effect {
            case .answer(let waiter, let result): waiter.resolve(result)
            case .request(let number, let request): send(request, number, services)
            case .keep(let number): keep(number, services)
            case .cancel(let number): cancel(number)
            }
        }
        for settler in settlers { settler.resume() }
    }

    private func send(_ request: TokenRequest, _ number: UInt64, _ services: CacheServices) {
        let handle: any DownloadHandle
        do {
            handle = try services.tokens.refresh(request) { self.ended(number, $0, services) }
        } catch {
            return ended(number, .failure(error), services)
        }
        let isLate = state.withLockedValue { state in
            guard state.tokens.isRequesting(number) else { return true }
            state.request = (number, handle)
            return false
        }
        if isLate { handle.cancel() }
    }

    private func ended(_ number: UInt64, _ outcome: Result<TokenGrant, TokenFailure>, _ services: CacheServices) {
        guard state.withLockedValue({ $0.tokens.isRequesting(number) }) else { return }
        switch outcome {
        case .success:
            services.counters.count(.tokenRefreshes)
        case .failure(.notAsked):
            // The fetcher has told when the breaker opened.
            break
        case .failure(let failure):
            services.counters.count(.tokenRefreshFailures)
            keeper?.tell("an access token could not be renewed", CacheFailure(failure))
        }
        let now = services.time.now
        change(services) { $0.ended(number, outcome, now: now) }
        // It holds the refresh token that was sent and the client's secret (I11). Only now, since until it is told that the request has
        // ended the machine lets it be put there.
        state.withLockedValue { state in
            if state.request?.number == number { state.request = nil }
        }
    }

    private func cancel(_ number: UInt64) {
        let handle = state.withLockedValue { state in
            guard state.request?.number == number else { return nil as (any DownloadHandle)? }
            defer { state.request = nil }
            return state.request?.handle
        }
        handle?.cancel()
    }

    // MARK: Making tokens durable

    private func keep(_ number: UInt64, _ services: CacheServices) {
        guard let keeper else { return change(services) { $0.kept(number) } }
        let adopt = { keeper.adopt(self) }
        Task(executorPreference: services.tasks) { [self] in
            do throws(CacheFailure) {
                try await keeper.keep(self)
                endLaterKeep()
            } catch {
                // The new tokens are the only good ones there are: they are used, and kept as soon as the disk lets that be.
                keeper.tell("renewed tokens could not be made durable; it is tried again", error)
                keepLater(services, attempt: 1)
            }
            change(services, first: adopt) { $0.kept(number) }
        }
    }

    /// Milliseconds before tokens that could not be made durable are tried again.
    private static let keepingBackoff = Backoff(base: 1_000, most: 60_000)

    private func keepLater(_ services: CacheServices, attempt: Int) {
        let (number, former) = state.withLockedValue { state in
            let former = state.laterKeep?.timer
            state.lastLaterKeep += 1
            state.laterKeep = (state.lastLaterKeep, nil)
            return (state.lastLaterKeep, former)
        }
        former?.cancel()
        let timer = services.time.after(milliseconds: Self.keepingBackoff.ceiling(attempt: attempt)) { [weak self] in
            self?.keepAgain(number, services, attempt)
        }
        let isOver = state.withLockedValue { state in
            guard state.laterKeep?.number == number else { return true }
            state.laterKeep?.timer = timer
            return false
        }
        if isOver { timer.cancel() }
    }

    private func keepAgain(_ number: UInt64, _ services: CacheServices, _ attempt: Int) {
        guard let keeper, worthKeeping != nil, isLaterKeep(number) else { return }
        Task(executorPreference: services.tasks) { [self] in
            do throws(CacheFailure) {
                try await keeper.keep(self)
                if isLaterKeep(number) { endLaterKeep() }
            } catch {
                if isLaterKeep(number) { keepLater(services, attempt: attempt + 1) }
            }
        }
    }

    private func isLaterKeep(_ number: UInt64) -> Bool {
        state.withLockedValue { $0.laterKeep?.number == number }
    }

    private func endLaterKeep() {
        let timer = state.withLockedValue { state in
            defer { state.laterKeep = nil }
            return state.laterKeep?.timer
        }
        timer?.cancel()
    }
}

/// What a service needs of whoever keeps log-ins.
struct TokenKeeper: Sendable {
    /// Makes ``AccessTokenService/worthKeeping`` durable, unless the log-in of that service is over.
    let keep: @Sendable (AccessTokenService) async throws(CacheFailure) -> Void
    /// What a refresh brought is what is shown from now on: before any download goes on with it.
    let adopt: @Sendable (AccessTokenService) -> Void
    /// Says in the log what went wrong.
    let tell: @Sendable (String, CacheFailure) -> Void
}

/// One download's wait for a token.
private struct TokenWait: DownloadHandle {
    let number: UInt64
    let service: AccessTokenService

    func cancel() { service.forget(number) }
}
