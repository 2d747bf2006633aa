/// How long an image may be served without asking where it came from (RFC 9111 section 4.2). A value: the moment is always
/// handed in, as ``Timekeeping/now`` tells it.
public struct Freshness: Hashable, Sendable {
    /// When the image was stored or last confirmed: seconds since 1970.
    public var storedAt: Int64
    /// Age, in seconds, that the image already had when it was stored (RFC 9111 section 4.2.3).
    public var initialAge: Int64
    /// Seconds of life since it was made; nil for an image that stays fresh until it is replaced (a PUT without TTL).
    public var lifetime: Int64?
    /// Seconds past its life during which it is served while it is revalidated behind (RFC 5861 section 3).
    public var staleWhileRevalidate: Int64
    /// Seconds past its life during which it is served when the origin fails (RFC 5861 section 4).
    public var staleIfError: Int64

    public init(
        storedAt: Int64, initialAge: Int64 = 0, lifetime: Int64?,
        staleWhileRevalidate: Int64 = 0, staleIfError: Int64 = 0
    ) {
        self.storedAt = storedAt
        self.initialAge = initialAge
        self.lifetime = lifetime
        self.staleWhileRevalidate = staleWhileRevalidate
        self.staleIfError = staleIfError
    }

    public enum State: Sendable, Equatable {
        case fresh
        /// Past its life; served at once and revalidated behind.
        case staleServable
        /// Past that window; served only when the origin fails.
        case staleOnError
        /// Past every window.
        case expired
    }

    /// Seconds since the image was made, never negative.
    ///
    /// A moment before it was stored means that the clock was set back between two starts, and nobody can tell how old the image
    /// is. Then it counts as one whose life has just ended: it is asked for anew, and served meanwhile where stale images
    /// may be; so it neither lives on until the clock has caught up, nor is lost (F14).
    public func age(at now: Int64) -> Int64 {
        guard now >= storedAt else { return max(initialAge, lifetime ?? 0) }
        return initialAge + (now - storedAt)
    }

    /// Seconds of life left, negative when stale, nil when it has no end.
    public func timeToLive(at now: Int64) -> Int64? {
        lifetime.map { $0 - age(at: now) }
    }

    /// Whether it may be used without asking. At zero seconds left it may not (section 4.2).
    public func isFresh(at now: Int64) -> Bool { state(at: now) == .fresh }

    public func state(at now: Int64) -> State {
        guard let left = timeToLive(at: now), left <= 0 else { return .fresh }
        let past = -left
        if past < staleWhileRevalidate { return .staleServable }
        if past < staleIfError { return .staleOnError }
        return .expired
    }
}
