/// How an origin's hosts are treated when they fail: when one is left alone, and for how long.
public struct OriginPatience: Sendable, Equatable {
    /// Failures in a row after which a host is left alone; from 1.
    public var failures: Int
    /// Milliseconds that it is left alone for at most the first time; twice as long after each further failure. From 1.
    public var backoff: Int64
    /// Milliseconds that this grows to. Not less than ``backoff``.
    public var backoffMax: Int64
    /// Milliseconds of a Retry-After (RFC 9110 section 10.2.3) that are obeyed; of a longer one so many.
    public var retryAfterMax: Int64
    /// Bytes a second, over 30 s, below which an answer is given up; 0 for any speed.
    public var lowestSpeed: Int

    public init(
        failures: Int = 5, backoff: Int64 = 1_000, backoffMax: Int64 = 60_000, retryAfterMax: Int64 = 600_000,
        lowestSpeed: Int = 100
    ) {
        self.failures = failures
        self.backoff = backoff
        self.backoffMax = backoffMax
        self.retryAfterMax = retryAfterMax
        self.lowestSpeed = lowestSpeed
    }
}
