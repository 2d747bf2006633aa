import LinuxSupport
import NIOConcurrencyHelpers

/// Provides the access token of one login to its downloads, and refreshes it at the origin's token endpoint. Exists
/// only for logins with a refresh token.
///
/// Lives as long as the login: a purge keeps it, a logout ends it. So the result of a late refresh is discarded (I3).
///
/// Safe from any thread. ``AccessTokens`` decides under the lock; the effects are performed outside.
final class AccessTokenService: Sendable {
    struct Callbacks: Sendable {
        /// Makes ``AccessTokenService/durableTokens`` durable, unless the login of that service has ended.
        let store: @Sendable (AccessTokenService) async throws(CacheFailure) -> Void
        /// Announces that new tokens are used from now on, before any download continues with them.
        let adopt: @Sendable (AccessTokenService) -> Void
        let log: @Sendable (String, CacheFailure) -> Void
    }

    private struct State {
        var tokens: AccessTokens
        var request: (number: UInt64, handle: any DownloadHandle)?
        /// Callers of ``AccessTokenService/stop()`` that wait until no refresh is in flight.
        var stoppers: [CheckedContinuation<Void, Never>] = []
        /// The timer that retries to store tokens. One is enough, because it stores the tokens that are current then.
        var retry: (any Timer)?
    }

    private let state: NIOLockedValueBox<State>
    private let services: CacheServices
    private let callbacks: Callbacks

    /// - Parameter quotaAccount: the account that token requests are charged to.
    init(_ tokens: LoginTokens, quotaAccount: UInt32, services: CacheServices, callbacks: Callbacks) {
        state = NIOLockedValueBox(State(tokens: AccessTokens(tokens, quotaAccount: quotaAccount)))
        self.services = services
        self.callbacks = callbacks
    }

    // MARK: For downloads

    /// Requests the token for a download, now or after a refresh.
    ///
    /// `resolve` is called exactly once, on any thread, possibly before this returns. After the handle was cancelled,
    /// it is not called, unless the call had already begun.
    /// - Parameter rejected: the token that the origin has just rejected.
    func requestToken(
        rejected: Secret? = nil, of origin: Origin,
        resolve: @escaping @Sendable (Result<Secret?, CacheFailure>) -> Void
    ) -> any DownloadHandle {
        let now = services.time.now
        let number = state.withLockedValue { $0.tokens.nextNumber() }
        let waiter = AccessTokens.Waiter(number: number, resolve: resolve)
        let limit = services.settings().downloadsWaiting
        change { $0.request(waiter, rejected: rejected, of: origin, limit: limit, now: now) }
        return TokenWait(number: number, service: self)
    }

    private struct TokenWait: DownloadHandle {
        let number: UInt64
        let service: AccessTokenService

        func cancel() { service.state.withLockedValue { $0.tokens.removeWaiter(number) } }
    }

    /// The failure that ``requestToken(rejected:of:resolve:)`` would report immediately; nil otherwise. Starts no refresh:
    /// a copy decides.
    func failure(of origin: Origin) -> CacheFailure? {
        var tokens = state.withLockedValue { $0.tokens }
        let waiter = AccessTokens.Waiter(number: tokens.nextNumber()) { _ in }
        for case .resolve(_, .failure(let failure)) in tokens.request(
            waiter, rejected: nil, of: origin, now: services.time.now)
        { return failure }
        return nil
    }

    /// Records that the origin has rejected a token from a refresh that a rejection had caused.
    func wasRejectedAgain(_ token: Secret) {
        let now = services.time.now
        state.withLockedValue { $0.tokens.wasRejectedAgain(token, now: now) }
    }

    /// The current tokens. Later ones are of the same family or a later one.
    var tokens: LoginTokens { state.withLockedValue { $0.tokens.tokens } }

    /// Whether no refresh is in flight.
    var isIdle: Bool { state.withLockedValue { $0.tokens.isIdle } }

    // MARK: For login and logout

    /// The tokens that must be durable; nil after the login has ended.
    var durableTokens: LoginTokens? { state.withLockedValue { $0.tokens.durableTokens } }

    /// Accepts the tokens of a LOGIN that are durable already.
    /// - Parameter adopt: called when they are current, before any download continues with them.
    func logIn(access: Secret?, refresh: Secret?, adopt: () -> Void) {
        let now = services.time.now
        change(first: adopt) { $0.logIn(access: access, refresh: refresh, now: now) }
    }

    func end() {
        change { $0.end() }
        endRetry()
    }

    private static var longestStop: Int64 { 5_000 }

    /// Starts no more refreshes, and returns when the one in flight has ended and its tokens are durable. Otherwise a
    /// refresh token that the endpoint has just issued would be lost. Waits for ``longestStop`` at most.
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

    // MARK: Effects

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
            case .resolve(let waiter, let result): waiter.resolve(result)
            case .request(let number, let request): send(request, number)
            case .store(let number): store(number)
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

    private func ended(_ number: UInt64, _ outcome: Result<TokenGrant, FetchFailure>) {
        guard state.withLockedValue({ $0.tokens.isRequesting(number) }) else { return }
        switch outcome {
        case .success:
            services.counters.count(.tokenRefreshes)
        case .failure(let failure) where failure.kind == .circuitOpen:
            // The fetcher logged that the circuit breaker opened.
            break
        case .failure(let failure):
            services.counters.count(.tokenRefreshFailures)
            callbacks.log("token refresh failed", CacheFailure(failure))
        }
        let now = services.time.now
        change { $0.ended(number, outcome, now: now) }
        // The handle holds the refresh token and the client's secret (I11). It is released after ``ended(_:_:now:)``,
        // because until then ``send(_:_:)`` may still store it.
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

    private func store(_ number: UInt64) {
        Task(executorPreference: services.tasks) { [self] in
            do throws(CacheFailure) {
                try await callbacks.store(self)
                endRetry()
            } catch {
                // The old tokens may be invalid by now, so the new ones are used nevertheless.
                callbacks.log("cannot store refreshed tokens; retrying", error)
                storeLater(attempt: 1)
            }
            change(first: { callbacks.adopt(self) }) { $0.stored(number) }
        }
    }

    private static let backoff = Backoff(base: 1_000, most: 60_000)

    private func storeLater(attempt: Int) {
        state.withLockedValue { state in
            guard state.retry == nil, state.tokens.durableTokens != nil else { return }
            state.retry = services.time.after(milliseconds: Self.backoff.ceiling(attempt: attempt)) { [weak self] in
                guard let self else { return }
                self.state.withLockedValue { $0.retry = nil }
                guard durableTokens != nil else { return }
                Task(executorPreference: services.tasks) {
                    do throws(CacheFailure) {
                        try await self.callbacks.store(self)
                    } catch {
                        self.storeLater(attempt: attempt + 1)
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
