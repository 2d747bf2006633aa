/// How long an image may be served without revalidation (RFC 9111 section 4.2). A value: callers pass the time of
/// ``Timekeeping/now``.
public struct Freshness: Hashable, Sendable {
    /// When the image was stored or last confirmed: seconds since 1970.
    public var storedAt: Int64
    /// Age in seconds when it was stored (RFC 9111 section 4.2.3).
    public var initialAge: Int64
    /// Seconds from its creation for which it is fresh; nil if it stays fresh until replaced (PUT without TTL).
    public var lifetime: Int64?
    /// Seconds after its lifetime in which it is served while it is revalidated (RFC 5861 section 3).
    public var staleWhileRevalidate: Int64
    /// Seconds after its lifetime in which it is served if the origin fails (RFC 5861 section 4).
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
        /// Stale; served at once and revalidated in the background.
        case staleServable
        /// Stale; served only if the origin fails.
        case staleOnError
        /// Stale; not served.
        case expired
    }

    /// Seconds since the image was created, never negative.
    ///
    /// If `now` is before the time of storing, the clock was set back between two starts and the age is unknown. The
    /// image then counts as just stale: it is revalidated, and served meanwhile if stale images may be (F14).
    public func age(at now: Int64) -> Int64 {
        guard now >= storedAt else { return max(initialAge, lifetime ?? 0) }
        return initialAge + (now - storedAt)
    }

    public func timeToLive(at now: Int64) -> Int64? {
        lifetime.map { $0 - age(at: now) }
    }

    public func isFresh(at now: Int64) -> Bool { state(at: now) == .fresh }

    public func state(at now: Int64) -> State {
        guard let left = timeToLive(at: now), left <= 0 else { return .fresh }
        let past = -left
        if past < staleWhileRevalidate { return .staleServable }
        if past < staleIfError { return .staleOnError }
        return .expired
    }
}

/// When a response arrived.
struct ResponseTime: Sendable, Equatable {
    /// Seconds since 1970 by ``Timekeeping/now``.
    let now: Int64
    /// Seconds since 1970 by ``Timekeeping/wallClock``.
    let wallClock: Int64

    /// The time to compare an origin's Date with: the earlier of the two, so that a clock that was set ahead makes no
    /// new image old (F14).
    var forDates: Int64 { min(now, wallClock) }
}

/// The age of a response when it arrives (RFC 9111 section 4.2.3). All values are in seconds.
struct AgeCalculation: Sendable, Equatable {
    /// The value of Age; nil if missing or invalid.
    var age: Int64?
    /// When the response was created, since 1970; nil if Date is missing or invalid: then the time of arrival counts.
    var date: Int64?
    var receivedAt: Int64
    /// From the request to the response: the longest time that the response can have been in transit.
    var delay: Int64

    /// Largest difference between the two clocks that counts as an age.
    static let mostApparent: Int64 = 86_400

    /// The age according to Date and the local clock. A Date in the future counts as new, and so does one more than a
    /// day ago, because one of the clocks is then wrong and no image would ever be fresh (F14).
    var apparentAge: Int64 {
        let difference = receivedAt - (date ?? receivedAt)
        return (0...Self.mostApparent).contains(difference) ? difference : 0
    }
    var correctedAge: Int64 { (age ?? 0) + delay }
    var initialAge: Int64 { max(apparentAge, correctedAge) }

    /// The value of Age (section 5.1): the first list element, if it is a number of seconds.
    static func ageValue(_ lines: [String]) -> Int64? {
        guard let first = lines.first else { return nil }
        var scanner = FieldScanner(first)
        scanner.skipBlanks()
        let value = scanner.token()
        scanner.skipBlanks()
        return scanner.isAtEndOfElement ? value.flatMap(DeltaSeconds.parse) : nil
    }
}

extension AgeCalculation {
    init(_ headers: ResponseHeaders, at responseTime: ResponseTime) {
        self.init(
            age: Self.ageValue(headers.fields["age"] ?? []),
            date: headers.fields["date"]?.first.flatMap { HTTPDate.seconds($0, now: responseTime.forDates) },
            receivedAt: responseTime.forDates, delay: headers.delay)
    }
}

/// The freshness lifetime of a response (RFC 9111 section 4.2.1), counted from its creation. All values are in seconds.
enum FreshnessLifetime {
    /// The explicit lifetime; nil without one. max-age takes precedence over Expires (section 5.3); s-maxage is for
    /// shared caches and ignored.
    /// - Parameter date: when the response was created, since 1970.
    static func explicit(_ control: CacheControl, expires: String?, date: Int64, now: Int64) -> Int64? {
        if let maxAge = control.maxAge { return maxAge }
        guard let expires else { return nil }
        // An invalid date, such as "0", is in the past (section 5.3).
        guard let end = HTTPDate.seconds(expires, now: now) else { return 0 }
        return max(0, end - date)
    }
}

/// The lifetime of a response without an explicit one (RFC 9111 section 4.2.2). All values are in seconds.
enum HeuristicFreshness {
    /// The shortest heuristic lifetime. Without it, an image changed a minute ago would be stale after six seconds.
    static let least: Int64 = 300

    /// A tenth of the time since the last change, from ``least`` to `longest`; `longest` without Last-Modified.
    /// - Parameters:
    ///   - date: when the response was created, since 1970.
    ///   - longest: the origin's `default-ttl`; 0 disables the heuristic.
    static func lifetime(lastModified: String?, date: Int64, longest: Int64, now: Int64) -> Int64 {
        guard let changed = lastModified.flatMap({ HTTPDate.seconds($0, now: now) }) else { return longest }
        return min(longest, max(least, (date - changed) / 10))
    }
}

/// Whether a response may be stored, and its freshness (RFC 9111 sections 3 and 4.2, for a private cache).
///
/// An image that redirects led to is stored under the URL requested first. It is fresh no longer than any of the
/// redirects: a redirect that was fresh for a minute may lead elsewhere afterwards.
struct StoragePolicy: Sendable, Equatable {
    let mayStore: Bool
    /// Whether the response, or a redirect to it, varies by Authorization (section 4.1).
    let variesByToken: Bool
    let freshness: Freshness

    /// - Parameters:
    ///   - fields: of the response; after a 304, the stored ones updated by it.
    ///   - headers: of the response just received and the redirects to it, for its age.
    init(_ fields: StoredFields, _ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) {
        let own = ResponseFreshness(fields, headers, origin: origin, at: responseTime)
        let redirects = Self.redirects(headers, origin: origin, at: responseTime)
        mayStore = own.mayBeStored && redirects.allSatisfy(\.mayBeStored)
        variesByToken = own.variesByToken || redirects.contains(where: \.variesByToken)
        let isNeverFresh = own.isNeverFresh || redirects.contains(where: \.isNeverFresh)
        let shortest = redirects.map { max(0, own.initialAge + $0.timeLeft) }.reduce(own.lifetime, min)
        freshness = Freshness(
            storedAt: responseTime.now, initialAge: own.initialAge, lifetime: isNeverFresh ? 0 : shortest,
            staleWhileRevalidate: redirects.map(\.staleWhileRevalidate).reduce(own.staleWhileRevalidate, min),
            staleIfError: redirects.map(\.staleIfError).reduce(own.staleIfError, min))
    }

    /// The freshness of each redirect; it has aged while later ones were followed.
    private static func redirects(
        _ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime
    ) -> [ResponseFreshness] {
        var delay = headers.delay
        return headers.redirects.reversed().map { redirect in
            delay += redirect.delay
            return ResponseFreshness(
                redirect: ResponseHeaders(redirect.fields, delay: delay), origin: origin, at: responseTime)
        }
    }
}

/// How long a response without a usable image is believed.
enum NegativePolicy {
    /// The end of that time, in seconds since 1970 by ``Timekeeping/now``: the response's explicit lifetime, at most
    /// the origin's `negative-ttl-max`; without one, `negative-ttl`. Now if the response must not be stored or not be
    /// used without revalidation.
    static func believedUntil(_ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) -> Int64 {
        var negative = origin
        negative.defaultTTL = origin.negativeTTL
        // Last-Modified says nothing about how long an image will be missing.
        var fields = StoredFields(headers)
        fields.lastModified = nil
        let policy = StoragePolicy(fields, headers, origin: negative, at: responseTime)
        guard policy.mayStore, let left = policy.freshness.timeToLive(at: responseTime.now) else {
            return responseTime.now
        }
        return responseTime.now + max(0, min(left, origin.negativeTTLMax))
    }
}

/// The freshness of one response: the image's, or that of a redirect to it.
struct ResponseFreshness: Sendable, Equatable {
    let control: CacheControl
    /// Whether each use requires revalidation.
    let isNeverFresh: Bool
    /// Whether it is only for the tokens that were sent and those refreshed from them.
    let variesByToken: Bool
    /// Seconds after its lifetime in which it may be served during revalidation, or if the origin fails.
    let staleWhileRevalidate: Int64
    let staleIfError: Int64
    /// Lifetime in seconds from its creation, explicit or heuristic; 0 if it is never fresh.
    let lifetime: Int64
    /// Age in seconds when it arrived.
    let initialAge: Int64

    /// - Parameters:
    ///   - fields: of the response; after a 304, the stored ones updated by it.
    ///   - headers: of the response just received, for its age.
    init(_ fields: StoredFields, _ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) {
        control = CacheControl(fields.cacheControl ?? "")
        let age = AgeCalculation(headers, at: responseTime)
        let date = age.date ?? responseTime.forDates
        let stated = FreshnessLifetime.explicit(
            control, expires: fields.expires, date: date, now: responseTime.forDates)
        let guessed = HeuristicFreshness.lifetime(
            lastModified: fields.lastModified, date: date, longest: origin.defaultTTL, now: responseTime.forDates)
        let vary = Vary(fields.vary)
        variesByToken = vary.namesAuthorization
        isNeverFresh =
            !Self.mayBeStored(control) || control.noCache || vary.matchesNothing
            || stated == nil && Self.oldNoCache(fields)
        lifetime = isNeverFresh ? 0 : stated ?? guessed
        initialAge = age.initialAge
        // Prohibited by the response, even if the origin fails (section 4.2.4).
        let mayBeStale = !isNeverFresh && !control.mustRevalidate
        // An origin that sends stale responses wants revalidation, unless the response allows otherwise.
        let wasFresh = lifetime > initialAge
        let whileRevalidate = control.staleWhileRevalidate ?? (wasFresh ? origin.staleWhileRevalidate : 0)
        staleWhileRevalidate = mayBeStale ? whileRevalidate : 0
        staleIfError = mayBeStale ? control.staleIfError ?? origin.staleIfError : 0
    }

    /// A redirect. Without explicit freshness it gets the longest heuristic lifetime, whatever its status: RFC 9111
    /// section 4.2.2 allows that for 301 and 308 only, but then every GET would follow a 302 again.
    init(redirect headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) {
        var fields = StoredFields(headers)
        // Last-Modified says nothing about how long a redirect is valid.
        fields.lastModified = nil
        self.init(fields, headers, origin: origin, at: responseTime)
    }

    var mayBeStored: Bool { Self.mayBeStored(control) }

    /// False with no-store (section 5.2.2.5), unless must-understand exempts caches that know the status, as this one.
    private static func mayBeStored(_ control: CacheControl) -> Bool { !control.noStore || control.mustUnderstand }

    /// Seconds for which it was still fresh on arrival; negative if it was stale.
    var timeLeft: Int64 { lifetime - initialAge }

    /// Whether Pragma has no-cache and Cache-Control is missing. Pragma has no specified meaning in responses (section
    /// 5.4), but rules out a heuristic lifetime.
    private static func oldNoCache(_ fields: StoredFields) -> Bool {
        guard fields.cacheControl == nil, let pragma = fields.pragma else { return false }
        return CacheControl(pragma).noCache
    }
}

/// The requests that a response matches (RFC 9111 section 4.1).
///
/// Requests of thumbcached for one URL differ only in Authorization. `*` matches no request; a response that varies by
/// Authorization matches requests with tokens of one family (``LoginTokens/family``).
struct Vary: Sendable, Equatable {
    private(set) var matchesNothing = false
    private(set) var namesAuthorization = false

    /// - Parameter value: all lines of the header field as one list; nil if missing.
    init(_ value: String?) {
        guard let value else { return }
        var scanner = FieldScanner(value)
        while !scanner.isAtEnd {
            scanner.skipBlanks()
            switch scanner.token() {
            case "*": matchesNothing = true
            case "authorization": namesAuthorization = true
            default: break
            }
            scanner.skipElement()
            scanner.skip(",")
        }
    }
}
