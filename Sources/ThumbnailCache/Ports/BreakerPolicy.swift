/// When the circuit breaker of an origin's host opens, and for how long.
public struct BreakerPolicy: Sendable, Equatable {
    /// Failures in a row after which a host is not asked for a while; from 1.
    public var failures: Int
    /// Milliseconds that it is not asked for at most the first time; twice as long after each further failure. From 1.
    public var backoff: Int64
    /// Milliseconds that this grows to. Not less than ``backoff``.
    public var backoffMax: Int64
    /// Milliseconds of a Retry-After (RFC 9110 section 10.2.3) that are obeyed; of a longer one so many.
    public var retryAfterMax: Int64

    public init(
        failures: Int = 5, backoff: Int64 = 1_000, backoffMax: Int64 = 60_000, retryAfterMax: Int64 = 600_000
    ) {
        self.failures = failures
        self.backoff = backoff
        self.backoffMax = backoffMax
        self.retryAfterMax = retryAfterMax
    }
}
