import DequeModule
import LinuxSupport

/// The tokens of one login, and the downloads that wait for a refresh.
///
/// A value without effects, like ``RequestCoordinator``. At most one refresh is in flight; downloads wait for it and
/// are resolved in the order in which they came. New tokens are made durable before any download uses them: a refresh
/// token is often valid once, and one that is only in memory would be lost in a crash.
struct AccessTokens: Sendable {
    struct Waiter: Sendable {
        let number: UInt64
        let resolve: @Sendable (Result<Secret?, CacheFailure>) -> Void
    }

    enum Effect: Sendable {
        /// Resolve the waiter with the token to send; nil for none.
        case resolve(Waiter, Result<Secret?, CacheFailure>)
        /// Send a token request, then report its end with ``ended(_:_:now:)``.
        case request(UInt64, TokenRequest)
        /// Make ``durableTokens`` durable, then call ``stored(_:)``.
        case store(UInt64)
        case cancel(UInt64)
    }

    /// The tokens that a refresh brought.
    private enum NewTokens: Sendable {
        case grant(TokenGrant)
        /// A refresh token without an access token; the waiters get the failure.
        case refreshToken(Secret, CacheFailure, at: Int64)
    }

    private struct Refresh: Sendable {
        let number: UInt64
        let origin: Origin
        let endpoint: TokenEndpoint
        /// Seconds since 1970.
        let requestedAt: Int64
        var waiters: Deque<Waiter> = []
        /// The new tokens, while they are being made durable.
        var newTokens: NewTokens?
        /// Whether a LOGIN has brought a newer access token since. Then only the refresh token is used.
        var bringsRefreshTokenOnly = false

        func applied(to tokens: LoginTokens) -> LoginTokens {
            var tokens = tokens
            switch newTokens {
            case nil: break
            case .refreshToken(let refreshToken, _, _): tokens.refresh = refreshToken
            case .grant(let grant):
                if !bringsRefreshTokenOnly { tokens.accept(grant, requestedAt: requestedAt) }
                tokens.refresh = grant.refreshToken ?? tokens.refresh
            }
            return tokens
        }
    }

    private enum Phase: Sendable {
        case open
        /// No refresh is started any more.
        case stopping
        /// The login has ended.
        case ended
    }

    private(set) var tokens: LoginTokens
    private var phase = Phase.open
    /// Whether the origin has rejected the access token of ``tokens``.
    private var isRejected = false
    private var refresh: Refresh?
    private var backoff: RefreshBackoff?
    /// When the origin last rejected a token from a refresh that a rejection had caused; seconds since 1970.
    private var uselessAt: Int64?
    private var lastNumber: UInt64 = 0

    /// Seconds without a refresh after a rejection, if the last such refresh did not help. Otherwise an origin that
    /// always responds with 401 would cause a refresh with each download.
    private static let uselessPause: Int64 = 60

    private let quotaAccount: UInt32

    /// - Parameter quotaAccount: the account that token requests are charged to.
    init(_ tokens: LoginTokens, quotaAccount: UInt32) {
        self.tokens = tokens
        self.quotaAccount = quotaAccount
    }

    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Whether no refresh is in flight.
    var isIdle: Bool { refresh == nil }

    func isRequesting(_ number: UInt64) -> Bool { refresh?.number == number && refresh?.newTokens == nil }

    /// The tokens that must be durable, including those that a refresh just brought. Nil after the login has ended.
    var durableTokens: LoginTokens? { phase == .ended ? nil : refresh?.applied(to: tokens) ?? tokens }

    // MARK: Requests for a token

    /// Handles a download's request for a token.
    /// - Parameters:
    ///   - rejected: the token that the origin has just rejected, if any.
    ///   - limit: most waiters.
    mutating func request(
        _ waiter: Waiter, rejected: Secret?, of origin: Origin, limit: Int = .max, now: Int64
    ) -> [Effect] {
        guard phase != .ended else { return [.resolve(waiter, .failure(.cancelled))] }
        if let rejected, rejected == tokens.access {
            if let uselessAt, (0..<Self.uselessPause).contains(now - uselessAt) {
                let reason = "the origin rejected the token, and a new one less than \(Self.uselessPause) s ago"
                return [.resolve(waiter, .failure(.unauthorized(reason)))]
            }
            isRejected = true
            refresh?.bringsRefreshTokenOnly = false
        }
        guard !isUsable(at: now), let refreshToken = tokens.refresh else {
            return [.resolve(waiter, .success(tokens.access))]
        }
        if refresh != nil { return join(waiter, limit) }
        guard let endpoint = origin.tokenEndpoint else {
            let reason = "origin \(origin.name) no longer has a token endpoint; log in again with TOKEN"
            return [fail(waiter, .unauthorized(reason), now)]
        }
        guard phase == .open else { return [fail(waiter, .shuttingDown, now)] }
        if let backoff, backoff.isActive(at: now, for: endpoint) {
            return [fail(waiter, backoff.failure, now)]
        }
        let refresh = Refresh(
            number: nextNumber(), origin: origin, endpoint: endpoint, requestedAt: now, waiters: [waiter])
        self.refresh = refresh
        let request = TokenRequest(
            account: quotaAccount, origin: origin, endpoint: endpoint, refreshToken: refreshToken)
        return [.request(refresh.number, request)]
    }

    /// The origin has rejected a token from a refresh that a rejection had caused. A token from a LOGIN, or one that is
    /// no longer current, says nothing about the next refresh.
    mutating func wasRejectedAgain(_ token: Secret, now: Int64) {
        if token == tokens.access, tokens.life != nil { uselessAt = now }
    }

    /// Removes a waiter, which is then not resolved.
    mutating func removeWaiter(_ number: UInt64) {
        refresh?.waiters.removeAll { $0.number == number }
    }

    private mutating func join(_ waiter: Waiter, _ limit: Int) -> [Effect] {
        guard let count = refresh?.waiters.count, count < limit else {
            let reason = "\(limit) downloads wait for a token of this user; try again later"
            return [.resolve(waiter, .failure(.busy(reason)))]
        }
        refresh?.waiters.append(waiter)
        return []
    }

    private func isUsable(at now: Int64) -> Bool {
        tokens.access != nil && !isRejected && tokens.life?.isDue(at: now) != true
    }

    /// Fails a waiter, unless the token that could not be refreshed has not expired yet.
    private func fail(_ waiter: Waiter, _ failure: CacheFailure, _ now: Int64) -> Effect {
        guard let access = tokens.access, !isRejected, tokens.life?.hasExpired(at: now) != true else {
            return .resolve(waiter, .failure(failure))
        }
        return .resolve(waiter, .success(access))
    }

    // MARK: The end of a refresh

    /// Handles the end of a token request.
    mutating func ended(_ number: UInt64, _ outcome: Result<TokenGrant, FetchFailure>, now: Int64) -> [Effect] {
        guard let refresh, refresh.number == number, refresh.newTokens == nil else { return [] }
        switch outcome {
        case .success(let grant):
            self.refresh?.newTokens = .grant(grant)
            return [.store(number)]
        case .failure(let failure):
            // Without a request there is no failed attempt: the next refresh may find the circuit breaker closed.
            if failure.kind != .circuitOpen {
                backoff = RefreshBackoff(failure, after: backoff, endpoint: refresh.endpoint, now: now)
            }
            if let refreshToken = failure.refreshToken {
                self.refresh?.newTokens = .refreshToken(refreshToken, CacheFailure(failure), at: now)
                return [.store(number)]
            }
            self.refresh = nil
            return refresh.waiters.map { fail($0, CacheFailure(failure), now) }
        }
    }

    /// The new tokens are durable, or the attempt to store them has failed.
    mutating func stored(_ number: UInt64) -> [Effect] {
        guard let refresh, refresh.number == number, refresh.newTokens != nil else { return [] }
        tokens = refresh.applied(to: tokens)
        self.refresh = nil
        if case .refreshToken(_, let failure, let now) = refresh.newTokens {
            return refresh.waiters.map { fail($0, failure, now) }
        }
        if !refresh.bringsRefreshTokenOnly { isRejected = false }
        backoff = nil
        return refresh.waiters.map { .resolve($0, .success(tokens.access)) }
    }

    // MARK: Login and logout

    /// Accepts the tokens of a LOGIN; nil keeps the existing one. A new refresh token cancels a refresh with the old
    /// one. A new access token alone does not, because the refresh may already have used up the old refresh token.
    mutating func logIn(access: Secret?, refresh refreshToken: Secret?, now: Int64) -> [Effect] {
        guard phase != .ended, access != nil || refreshToken != nil else { return [] }
        backoff = nil
        uselessAt = nil
        let before = tokens
        tokens.logIn(access: access, refresh: refreshToken)
        if tokens.access != before.access {
            isRejected = false
            refresh?.bringsRefreshTokenOnly = true
        }
        guard let current = refresh else { return [] }
        var waiters: Deque<Waiter> = []
        var effects: [Effect] = []
        if tokens.refresh != before.refresh {
            refresh = nil
            waiters = current.waiters
            effects.append(.cancel(current.number))
        } else if isUsable(at: now) {
            waiters = current.waiters
            refresh?.waiters = []
        }
        for waiter in waiters { effects += request(waiter, rejected: nil, of: current.origin, now: now) }
        return effects
    }

    /// Ends the login: its tokens are removed, and the result of a refresh in flight is discarded (I3).
    mutating func end() -> [Effect] {
        phase = .ended
        tokens = LoginTokens()
        backoff = nil
        guard let refresh = self.refresh.take() else { return [] }
        return [.cancel(refresh.number)] + refresh.waiters.map { .resolve($0, .failure(.cancelled)) }
    }

    /// Starts no more refreshes, because the daemon is stopping. Returns ``isIdle``.
    @discardableResult
    mutating func stop() -> Bool {
        if phase == .open { phase = .stopping }
        return isIdle
    }
}

/// The pause after a failed refresh, so that a failing endpoint or an invalid refresh token is not retried with each
/// download (I8). Meanwhile, downloads get the remembered failure.
struct RefreshBackoff: Sendable {
    let failure: CacheFailure
    /// Failures of the same kind in a row.
    private let failures: Int
    /// Seconds.
    private let pause: Int64
    private let since: Int64
    private let isRejection: Bool
    private let endpoint: TokenEndpoint

    /// Seconds. A rejected refresh token usually stays invalid until the next login.
    private static let ofRejections = Backoff(base: 60, most: 3_600)
    private static let ofFailures = Backoff(base: 1, most: 60)

    /// - Parameter earlier: the pause of the previous failure, if it was the last event.
    init(_ failure: FetchFailure, after earlier: RefreshBackoff?, endpoint: TokenEndpoint, now: Int64) {
        let isRejection = failure.kind == .unauthorized
        failures = 1 + (earlier.map { $0.isRejection == isRejection ? $0.failures : 0 } ?? 0)
        self.failure = CacheFailure(failure)
        self.isRejection = isRejection
        self.endpoint = endpoint
        pause = (isRejection ? Self.ofRejections : Self.ofFailures).ceiling(attempt: failures)
        since = now
    }

    /// Whether the pause lasts. It ends if the endpoint's configuration changes, or if the clock is set back.
    func isActive(at now: Int64, for endpoint: TokenEndpoint) -> Bool {
        endpoint == self.endpoint && (0..<pause).contains(now - since)
    }
}
