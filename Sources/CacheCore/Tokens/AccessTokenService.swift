import LinuxSupport
import NIOConcurrencyHelpers

/// Hands out the access token of one log-in to its downloads, and renews it at the origin's token endpoint. Only a
/// log-in with a refresh token has one.
///
/// It lives as long as the log-in: a purge leaves it be, a log-out ends it, and the next log-in of the same user has
/// another one that nothing of the old leads to. So what a refresh brings late reaches nobody (I3).
///
/// Safe from any thread. ``AccessTokens`` decides under the lock; what it decides is done outside.
final class AccessTokenService: Sendable {
    /// What it needs of whoever keeps log-ins.
    struct Keeper: Sendable {
        /// Makes ``AccessTokenService/worthKeeping`` durable, unless the log-in of that service is over.
        let keep: @Sendable (AccessTokenService) async throws(CacheFailure) -> Void
        /// What a refresh brought is what is shown from now on: before any download goes on with it.
        let adopt: @Sendable (AccessTokenService) -> Void
        /// Says in the log what went wrong.
        let tell: @Sendable (String, CacheFailure) -> Void
    }

    private struct State {
        var tokens: AccessTokens
        var request: (number: UInt64, handle: any DownloadHandle)?
        /// Those who wait until no refresh is under way.
        var stoppers: [CheckedContinuation<Void, Never>] = []
        /// When tokens that could not be made durable are tried again. Never more than one such wait, however many
        /// refreshes there are meanwhile: what it keeps is what is worth keeping by then.
        var retry: (any Timer)?
    }

    private let state: NIOLockedValueBox<State>
    private let services: CacheServices
    private let keeper: Keeper

    /// - Parameter payer: the account whose share of token requests it takes.
    init(_ tokens: LoginTokens, quotaAccount: UInt32, services: CacheServices, keeper: Keeper) {
        state = NIOLockedValueBox(State(tokens: AccessTokens(tokens, quotaAccount: quotaAccount)))
        self.services = services
        self.keeper = keeper
    }

    // MARK: For downloads

    /// Gives the token to show to the origin, now or when a refresh has brought one.
    ///
    /// `resolve` is called exactly once, on any thread, maybe before this returns; not any more once the handle was
    /// cancelled, unless that came too late.
    /// - Parameter refused: the token that the origin has just refused.
    func ask(
        refused: Secret? = nil, of origin: Origin,
        resolve: @escaping @Sendable (Result<Secret?, CacheFailure>) -> Void
    ) -> any DownloadHandle {
        let now = services.time.now
        let number = state.withLockedValue { $0.tokens.nextNumber() }
        let waiter = AccessTokens.Waiter(number: number, resolve: resolve)
        let limit = services.settings().downloadsWaiting
        change { $0.ask(waiter, refused: refused, of: origin, limit: limit, now: now) }
        return TokenWait(number: number, service: self)
    }

    /// One download's wait for a token.
    private struct TokenWait: DownloadHandle {
        let number: UInt64
        let service: AccessTokenService

        func cancel() { service.state.withLockedValue { $0.tokens.forget(number) } }
    }

    /// The origin has refused a token that was got because it had refused another.
    func wasRefusedToo(_ token: Secret) {
        let now = services.time.now
        state.withLockedValue { $0.tokens.wasRefusedToo(token, now: now) }
    }

    /// What is shown from now on, whatever its state: tokens of this family or a later one.
    var tokens: LoginTokens { state.withLockedValue { $0.tokens.tokens } }

    /// Whether no refresh is under way.
    var isIdle: Bool { state.withLockedValue { $0.tokens.isIdle } }

    // MARK: For log-in and log-out

    /// What has to be durable now; nil once the log-in is over.
    var worthKeeping: LoginTokens? { state.withLockedValue { $0.tokens.worthKeeping } }

    /// A log-in has brought tokens, and has made them durable.
    /// - Parameter adopt: called when they are the ones to be shown, before any download goes on with them.
    func logIn(access: Secret?, refresh: Secret?, adopt: () -> Void) {
        let now = services.time.now
        change(first: adopt) { $0.logIn(access: access, refresh: refresh, now: now) }
    }

    /// The log-in is over.
    func end() {
        change { $0.end() }
        endRetry()
    }

    /// Milliseconds that ``stop()`` takes at most.
    private static var longestStop: Int64 { 5_000 }

    /// Begins no refresh any more, and returns when the one under way has ended and what it brought is durable: else a
    /// refresh token would be lost that the endpoint has just put in the place of the old one. An endpoint that does
    /// not answer keeps a daemon from stopping for ``longestStop`` at most.
    func stop() async {
        guard state.withLockedValue({ $0.tokens.stop() }) == false else { return }
        let limit = services.time.after(milliseconds: Self.longestStop) {
            let stoppers = self.state.withLockedValue { state in
                defer { state.stoppers = [] }
                return state.stoppers
            }
            for stopper in stoppers { stopper.resume() }
        }
        await withCheckedContinuation { continuation in
            let isIdle = state.withLockedValue { state in
                if !state.tokens.isIdle { state.stoppers.append(continuation) }
                return state.tokens.isIdle
            }
            if isIdle { continuation.resume() }
        }
        limit.cancel()
    }

    // MARK: Doing what was decided

    private func change(first: () -> Void = {}, _ body: (inout AccessTokens) -> [AccessTokens.Effect]) {
        let (effects, stoppers) = state.withLockedValue { state in
            let effects = body(&state.tokens)
            guard state.tokens.isIdle else { return (effects, [CheckedContinuation<Void, Never>]()) }
            defer { state.stoppers = [] }
            return (effects, state.stoppers)
        }
        first()
        for effect in effects {
            switch effect {
            case .answer(let waiter, let result): waiter.resolve(result)
            case .request(let number, let request): send(request, number)
            case .keep(let number): keep(number)
            case .cancel(let number): cancel(number)
            }
        }
        for stopper in stoppers { stopper.resume() }
    }

    private func send(_ request: TokenRequest, _ number: UInt64) {
        let handle: any DownloadHandle
        do {
            handle = try services.tokens.refresh(request) { self.ended(number, $0) }
        } catch {
            return ended(number, .failure(error))
        }
        let isLate = state.withLockedValue { state in
            guard state.tokens.isRequesting(number) else { return true }
            state.request = (number, handle)
            return false
        }
        if isLate { handle.cancel() }
    }

    private func ended(_ number: UInt64, _ outcome: Result<TokenGrant, TransferFailure>) {
        guard state.withLockedValue({ $0.tokens.isRequesting(number) }) else { return }
        switch outcome {
        case .success:
            services.counters.count(.tokenRefreshes)
        case .failure(.notAsked):
            // The fetcher has told when the breaker opened.
            break
        case .failure(let failure):
            services.counters.count(.tokenRefreshFailures)
            keeper.tell("an access token could not be renewed", CacheFailure(failure))
        }
        let now = services.time.now
        change { $0.ended(number, outcome, now: now) }
        // It holds the refresh token that was sent and the client's secret (I11). Only now, since until it is told that
        // the request has ended the machine lets it be put there.
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

    private func keep(_ number: UInt64) {
        Task(executorPreference: services.tasks) { [self] in
            do throws(CacheFailure) {
                try await keeper.keep(self)
                endRetry()
            } catch {
                // The new tokens are the only good ones there are: they are used, and kept as soon as the disk can.
                keeper.tell("renewed tokens could not be made durable; it is tried again", error)
                keepLater(attempt: 1)
            }
            change(first: { keeper.adopt(self) }) { $0.kept(number) }
        }
    }

    /// Milliseconds before tokens that could not be made durable are tried again.
    private static let backoff = Backoff(base: 1_000, most: 60_000)

    private func keepLater(attempt: Int) {
        state.withLockedValue { state in
            guard state.retry == nil, state.tokens.worthKeeping != nil else { return }
            state.retry = services.time.after(milliseconds: Self.backoff.ceiling(attempt: attempt)) { [weak self] in
                guard let self else { return }
                self.state.withLockedValue { $0.retry = nil }
                guard worthKeeping != nil else { return }
                Task(executorPreference: services.tasks) {
                    do throws(CacheFailure) {
                        try await self.keeper.keep(self)
                    } catch {
                        self.keepLater(attempt: attempt + 1)
                    }
                }
            }
        }
    }

    private func endRetry() {
        let timer = state.withLockedValue { $0.retry.take() }
        timer?.cancel()
    }
}
