import DequeModule
import LinuxSupport

/// The tokens of one log-in, who waits for a new one, and what is to be done about it.
///
/// A value without effects, as ``RequestCoordinator`` is: every method takes what happened and returns what is now to
/// be done, in order. At most one refresh is under way, and everybody who needs it waits for that one, in the order
/// they came. What it brings is made durable before anybody is given it: a refresh token is often good for one use, and
/// one that only memory knew would be lost with it.
struct AccessTokens: Sendable {
    struct Waiter: Sendable {
        let number: UInt64
        let resolve: @Sendable (Result<Secret?, CacheFailure>) -> Void
    }

    /// What is to be done, outside the lock, in the order given.
    enum Effect: Sendable {
        /// The token to show; nil for none.
        case answer(Waiter, Result<Secret?, CacheFailure>)
        /// Ask the token endpoint, then report with ``ended(_:_:now:)``.
        case request(UInt64, TokenRequest)
        /// Make ``worthKeeping`` durable, then report with ``kept(_:)``.
        case keep(UInt64)
        /// Stop that request.
        case cancel(UInt64)
    }

    private enum Gain: Sendable {
        case grant(TokenGrant)
        /// Another refresh token and no access token; what those are told who wait for one.
        case refreshToken(Secret, CacheFailure, at: Int64)
    }

    private struct Refresh: Sendable {
        let number: UInt64
        let origin: Origin
        let endpoint: TokenEndpoint
        /// Seconds since 1970.
        let askedAt: Int64
        var waiters: Deque<Waiter> = []
        /// What it brought, while that is being made durable.
        var gain: Gain?
        /// A log-in has brought another access token since, which is the newer word: only the refresh token is taken.
        var bringsRefreshTokenOnly = false

        /// The tokens there are, with what it brought.
        func applied(to tokens: LoginTokens) -> LoginTokens {
            var tokens = tokens
            switch gain {
            case nil: break
            case .refreshToken(let refreshToken, _, _): tokens.refresh = refreshToken
            case .grant(let grant):
                if !bringsRefreshTokenOnly { tokens.take(grant, askedAt: askedAt) }
                tokens.refresh = grant.refreshToken ?? tokens.refresh
            }
            return tokens
        }
    }

    private enum Phase: Sendable {
        case open
        /// Nothing new is begun.
        case stopping
        /// The log-in is over.
        case ended
    }

    private(set) var tokens: LoginTokens
    private var phase = Phase.open
    /// The origin has refused ``tokens``' access token.
    private var isRefused = false
    private var refresh: Refresh?
    private var backoff: RefreshBackoff?
    /// When the origin last refused a token that was got because it had refused another; seconds since 1970.
    private var futileAt: Int64?
    private var lastNumber: UInt64 = 0

    /// Seconds during which no token is renewed for having been refused, after that did not help: an origin that
    /// answers 401 whatever it is shown would otherwise cost a refresh with every download.
    private static let futility: Int64 = 60

    private let quotaAccount: UInt32

    /// - Parameter payer: the account whose share of token requests it takes.
    init(_ tokens: LoginTokens, quotaAccount: UInt32) {
        self.tokens = tokens
        self.quotaAccount = quotaAccount
    }

    /// A number larger than any given before.
    mutating func nextNumber() -> UInt64 {
        lastNumber += 1
        return lastNumber
    }

    /// Whether no refresh is under way.
    var isIdle: Bool { refresh == nil }

    /// Whether that refresh is under way and has not been answered.
    func isRequesting(_ number: UInt64) -> Bool { refresh?.number == number && refresh?.gain == nil }

    /// What has to be durable: with what a refresh just brought. Nil once the log-in is over.
    var worthKeeping: LoginTokens? { phase == .ended ? nil : refresh?.applied(to: tokens) ?? tokens }

    // MARK: Asking

    /// Somebody wants to show a token.
    /// - Parameters:
    ///   - refused: the one that the origin has just refused, if that is why.
    ///   - limit: how many may wait for one refresh.
    mutating func ask(
        _ waiter: Waiter, refused: Secret?, of origin: Origin, limit: Int = .max, now: Int64
    ) -> [Effect] {
        guard phase != .ended else { return [.answer(waiter, .failure(.cancelled))] }
        if let refused, refused == tokens.access {
            if let futileAt, (0..<Self.futility).contains(now - futileAt) {
                let sentence = "the origin refused the token, and refused a new one less than \(Self.futility) s ago"
                return [.answer(waiter, .failure(.unauthorized(sentence)))]
            }
            isRefused = true
            refresh?.bringsRefreshTokenOnly = false
        }
        guard !isUsable(at: now), let refreshToken = tokens.refresh else {
            return [.answer(waiter, .success(tokens.access))]
        }
        if refresh != nil { return join(waiter, limit) }
        guard let endpoint = origin.tokenEndpoint else {
            let sentence = "origin \(origin.name) has no token endpoint any more: log in again with TOKEN"
            return [answer(waiter, failedBy: .unauthorized(sentence), now)]
        }
        guard phase == .open else { return [answer(waiter, failedBy: .shuttingDown, now)] }
        if let backoff, backoff.isInForce(at: now, for: endpoint) {
            return [answer(waiter, failedBy: backoff.failure, now)]
        }
        let refresh = Refresh(number: nextNumber(), origin: origin, endpoint: endpoint, askedAt: now, waiters: [waiter])
        self.refresh = refresh
        let request = TokenRequest(uid: quotaAccount, origin: origin, endpoint: endpoint, refreshToken: refreshToken)
        return [.request(refresh.number, request)]
    }

    /// The origin has refused a token that was got because it had refused another. One that came with a log-in, or is
    /// not the current one any more, says nothing about what a refresh would bring.
    mutating func wasRefusedToo(_ token: Secret, now: Int64) {
        if token == tokens.access, tokens.life != nil { futileAt = now }
    }

    /// The waiter is gone.
    mutating func forget(_ number: UInt64) {
        refresh?.waiters.removeAll { $0.number == number }
    }

    private mutating func join(_ waiter: Waiter, _ limit: Int) -> [Effect] {
        guard let count = refresh?.waiters.count, count < limit else {
            let sentence = "\(limit) downloads wait for this user's token already: try again later"
            return [.answer(waiter, .failure(.busy(sentence)))]
        }
        refresh?.waiters.append(waiter)
        return []
    }

    private func isUsable(at now: Int64) -> Bool {
        tokens.access != nil && !isRefused && tokens.life?.isDue(at: now) != true
    }

    /// A token that is due for renewal and could not be renewed is good until its end.
    private func answer(_ waiter: Waiter, failedBy failure: CacheFailure, _ now: Int64) -> Effect {
        guard let access = tokens.access, !isRefused, tokens.life?.isOver(at: now) != true else {
            return .answer(waiter, .failure(failure))
        }
        return .answer(waiter, .success(access))
    }

    // MARK: What ends

    /// The token endpoint has answered, or could not be asked.
    mutating func ended(_ number: UInt64, _ outcome: Result<TokenGrant, TransferFailure>, now: Int64) -> [Effect] {
        guard let refresh, refresh.number == number, refresh.gain == nil else { return [] }
        switch outcome {
        case .success(let grant):
            self.refresh?.gain = .grant(grant)
            return [.keep(number)]
        case .failure(let failure):
            // What was not sent has failed nobody: the next to ask may find the host back.
            let isAsked = if case .notAsked = failure { false } else { true }
            if isAsked { backoff = RefreshBackoff(failure, after: backoff, endpoint: refresh.endpoint, now: now) }
            if case .unusable(_, let refreshToken) = failure {
                self.refresh?.gain = .refreshToken(refreshToken, CacheFailure(failure), at: now)
                return [.keep(number)]
            }
            self.refresh = nil
            return refresh.waiters.map { answer($0, failedBy: CacheFailure(failure), now) }
        }
    }

    /// What the refresh brought is durable, as far as that could be had.
    mutating func kept(_ number: UInt64) -> [Effect] {
        guard let refresh, refresh.number == number, refresh.gain != nil else { return [] }
        tokens = refresh.applied(to: tokens)
        self.refresh = nil
        if case .refreshToken(_, let failure, let now) = refresh.gain {
            return refresh.waiters.map { answer($0, failedBy: failure, now) }
        }
        if !refresh.bringsRefreshTokenOnly { isRefused = false }
        backoff = nil
        return refresh.waiters.map { .answer($0, .success(tokens.access)) }
    }

    // MARK: Log-in and log-out

    /// A log-in brings tokens (nil: keeps what there is). Another refresh token ends a refresh under way with the old
    /// one; another access token alone does not, since the old refresh token may have been used up by it.
    mutating func logIn(access: Secret?, refresh refreshToken: Secret?, now: Int64) -> [Effect] {
        guard phase != .ended, access != nil || refreshToken != nil else { return [] }
        backoff = nil
        futileAt = nil
        let before = tokens
        tokens.logIn(access: access, refresh: refreshToken)
        if tokens.access != before.access {
            isRefused = false
            refresh?.bringsRefreshTokenOnly = true
        }
        guard let underWay = refresh else { return [] }
        var waiters: Deque<Waiter> = []
        var effects: [Effect] = []
        if tokens.refresh != before.refresh {
            refresh = nil
            waiters = underWay.waiters
            effects.append(.cancel(underWay.number))
        } else if isUsable(at: now) {
            waiters = underWay.waiters
            refresh?.waiters = []
        }
        for waiter in waiters { effects += ask(waiter, refused: nil, of: underWay.origin, now: now) }
        return effects
    }

    /// The log-in is over: its tokens are gone, and what a refresh under way brings reaches nobody (I3).
    mutating func end() -> [Effect] {
        phase = .ended
        tokens = LoginTokens()
        backoff = nil
        guard let refresh = self.refresh.take() else { return [] }
        return [.cancel(refresh.number)] + refresh.waiters.map { .answer($0, .failure(.cancelled)) }
    }

    /// The daemon is stopping: no refresh is begun any more. Whether none is under way.
    @discardableResult
    mutating func stop() -> Bool {
        if phase == .open { phase = .stopping }
        return isIdle
    }
}

/// A refresh that failed, remembered: until its pause is over the endpoint is not asked again, and whoever wants a
/// token is told what it said. So nobody hammers an endpoint that is down, or with a refresh token that is dead (I8).
struct RefreshBackoff: Sendable {
    let failure: CacheFailure
    /// In a row, of one kind.
    private let failures: Int
    /// Seconds.
    private let pause: Int64
    private let since: Int64
    private let isRefusal: Bool
    private let endpoint: TokenEndpoint

    /// Seconds. A refusal stands as a rule until the user logs in anew.
    private static let ofRefusals = Backoff(base: 60, most: 3_600)
    private static let ofFailures = Backoff(base: 1, most: 60)

    /// - Parameter earlier: the failure right before this one.
    init(_ failure: TransferFailure, after earlier: RefreshBackoff?, endpoint: TokenEndpoint, now: Int64) {
        let isRefusal = if case .refused = failure { true } else { false }
        failures = 1 + (earlier.map { $0.isRefusal == isRefusal ? $0.failures : 0 } ?? 0)
        self.failure = CacheFailure(failure)
        self.isRefusal = isRefusal
        self.endpoint = endpoint
        pause = (isRefusal ? Self.ofRefusals : Self.ofFailures).ceiling(attempt: failures)
        since = now
    }

    /// Whether it is too early to try again. Not with an endpoint that has been configured anew since; and a clock that
    /// was set back ends the pause rather than make it last for years.
    func isInForce(at now: Int64, for endpoint: TokenEndpoint) -> Bool {
        endpoint == self.endpoint && (0..<pause).contains(now - since)
    }
}
