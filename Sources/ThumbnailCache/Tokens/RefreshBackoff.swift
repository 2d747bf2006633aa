/// A refresh that failed, remembered: until its pause is over the endpoint is not asked again, and whoever wants a token
/// is told what it said. So neither a refresh token that is dead nor an endpoint that is down is hammered with requests (I8).
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
    init(_ failure: TokenFailure, after earlier: RefreshBackoff?, endpoint: TokenEndpoint, now: Int64) {
        let isRefusal = if case .refused = failure { true } else { false }
        failures = 1 + (earlier.map { $0.isRefusal == isRefusal ? $0.failures : 0 } ?? 0)
        self.failure = CacheFailure(failure)
        self.isRefusal = isRefusal
        self.endpoint = endpoint
        pause = (isRefusal ? Self.ofRefusals : Self.ofFailures).ceiling(attempt: failures)
        since = now
    }

    /// Whether it is too early to try again. Not with an endpoint that has been configured anew since; and a clock that was
    /// set back ends the pause rather than make it last for years.
    func isInForce(at now: Int64, for endpoint: TokenEndpoint) -> Bool {
        endpoint == self.endpoint && (0..<pause).contains(now - since)
    }
}
