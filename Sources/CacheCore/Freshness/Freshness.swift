/// How long an image may be served without asking where it came from (RFC 9111 section 4.2). A value: the moment is
/// always handed in, as ``Timekeeping/now`` tells it.
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
    /// A moment before it was stored means that the clock was set back between two starts, and nobody can tell how old
    /// the image is. Then it counts as one whose life has just ended: it is asked for anew, and served meanwhile where
    /// stale images may be; so it neither lives on until the clock has caught up, nor is lost (F14).
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

/// When an answer arrived.
struct ResponseTime: Sendable, Equatable {
    /// Seconds since 1970 by ``Timekeeping/now``.
    let now: Int64
    /// Seconds since 1970 by ``Timekeeping/wallClock``.
    let wallClock: Int64

    /// What an origin's Date is compared with: the earlier of the two, so that a machine's clock that was set wrong
    /// while the daemon runs, or before, makes nothing old that is new (F14).
    var forDates: Int64 { min(now, wallClock) }
}

/// How old an answer is when it arrives (RFC 9111 section 4.2.3). Everything in seconds.
struct AgeCalculation: Sendable, Equatable {
    /// What Age says; nil without one, or with one that is none.
    var age: Int64?
    /// What Date says, since 1970; nil without a date: then the moment of its arrival counts (RFC 9110 section 6.6.1).
    var date: Int64?
    /// When the answer arrived, since 1970.
    var receivedAt: Int64
    /// From the request to the answer: as long as the answer may have been under way.
    var delay: Int64

    /// What the two clocks may differ by at most for their difference to be an age.
    static let mostApparent: Int64 = 86_400

    /// The age by the two clocks, which may be wrong against each other: an answer from the future is new, and one that
    /// seems more than a day old without having been told so by Age says that this machine's clock is wrong (F14). Were
    /// that believed, nothing would ever be fresh. The RFC asks for this age only where caches may know no Age.
    var apparentAge: Int64 {
        let difference = receivedAt - (date ?? receivedAt)
        return (0...Self.mostApparent).contains(difference) ? difference : 0
    }
    var correctedAge: Int64 { (age ?? 0) + delay }
    var initialAge: Int64 { max(apparentAge, correctedAge) }

    /// The value of Age (section 5.1): the first of a list counts, if it is a number of seconds.
    /// - Parameter lines: the values of the field in the order they came.
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

/// How long an answer is fresh (RFC 9111 section 4.2.1), counted from when it was made. Everything in seconds.
enum FreshnessLifetime {
    /// What the answer itself says; nil where it says nothing. max-age counts before Expires (section 5.3), and
    /// s-maxage, which is for shared caches, not at all.
    /// - Parameters:
    ///   - expires: the value of Expires: its first line, where there are several (section 4.2.1).
    ///   - date: when the answer was made, since 1970.
    ///   - now: since 1970.
    static func explicit(_ control: CacheControl, expires: String?, date: Int64, now: Int64) -> Int64? {
        if let maxAge = control.maxAge { return maxAge }
        guard let expires else { return nil }
        // What is no date, "0" above all, is in the past (section 5.3).
        guard let end = HTTPDate.seconds(expires, now: now) else { return 0 }
        return max(0, end - date)
    }
}

/// How long an answer that does not say is taken for fresh (RFC 9111 section 4.2.2). Everything in seconds.
enum HeuristicFreshness {
    /// What has just been changed is guessed to stay as it is for so long at least: else a picture that was put on its
    /// server a minute ago would be asked for again after six seconds.
    static let least: Int64 = 300

    /// A tenth of the time since it was last changed, from ``least`` to `longest`; `longest` without such a date.
    /// - Parameters:
    ///   - lastModified: the value of Last-Modified.
    ///   - date: when the answer was made, since 1970.
    ///   - longest: the origin's `default-ttl`: what its operator trusts a guess to. Zero allows none.
    ///   - now: since 1970.
    static func lifetime(lastModified: String?, date: Int64, longest: Int64, now: Int64) -> Int64 {
        guard let changed = lastModified.flatMap({ HTTPDate.seconds($0, now: now) }) else { return longest }
        return min(longest, max(least, (date - changed) / 10))
    }
}

/// Whether an answer may be kept, and for how long (RFC 9111 sections 3 and 4.2, for a private cache).
///
/// An image behind redirects is kept under the URL that was asked for first. So it may be used as long as all of them
/// may that led to it, and no longer: one that was good for a minute may lead elsewhere after it.
struct StoragePolicy: Sendable, Equatable {
    let mayStore: Bool
    /// Whether it, or a redirect that led to it, is for the tokens that were shown alone (section 4.1).
    let variesByToken: Bool
    let freshness: Freshness

    /// - Parameters:
    ///   - fields: of the answer; after a 304 those that were stored, updated by it.
    ///   - headers: of the answer that has just come, and of the redirects that led to it: they tell its age.
    init(_ fields: StoredFields, _ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) {
        let own = ResponseFreshness(fields, headers, origin: origin, at: responseTime)
        let redirects = Self.redirects(headers, origin: origin, at: responseTime)
        mayStore = own.mayBeStored && redirects.allSatisfy(\.mayBeStored)
        variesByToken = own.variesByToken || redirects.contains(where: \.variesByToken)
        let isNeverFresh = own.isNeverFresh || redirects.contains(where: \.isNeverFresh)
        // Counted from when the image was made, as its own lifetime is.
        let shortest = redirects.map { max(0, own.initialAge + $0.timeLeft) }.reduce(own.lifetime, min)
        freshness = Freshness(
            storedAt: responseTime.now, initialAge: own.initialAge, lifetime: isNeverFresh ? 0 : shortest,
            staleWhileRevalidate: redirects.map(\.staleWhileRevalidate).reduce(own.staleWhileRevalidate, min),
            staleIfError: redirects.map(\.staleIfError).reduce(own.staleIfError, min))
    }

    /// A redirect has aged by what came after it.
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

/// How long a response without a usable image is believed: 204, 404 and 410, and one
/// that the next request would get again.
enum NegativePolicy {
    /// Until when, in seconds since 1970 by ``Timekeeping/now``: as long as the response says that it is fresh, but no
    /// longer than the origin's `negative-ttl-max`; else for `negative-ttl`. Not after now where it may not be stored, or
    /// not be used unasked.
    static func believedUntil(_ headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) -> Int64 {
        var negative = origin
        negative.defaultTTL = origin.negativeTTL
        // A missing image has no date of its last change that anything could be guessed from.
        var fields = StoredFields(headers)
        fields.lastModified = nil
        let policy = StoragePolicy(fields, headers, origin: negative, at: responseTime)
        guard policy.mayStore, let left = policy.freshness.timeToLive(at: responseTime.now) else {
            return responseTime.now
        }
        return responseTime.now + max(0, min(left, origin.negativeTTLMax))
    }
}

/// What one answer says of how it may be used again: the image's own, or that of a redirect on the way to it.
struct ResponseFreshness: Sendable, Equatable {
    let control: CacheControl
    /// Whether it may be used without asking at no time.
    let isNeverFresh: Bool
    /// Whether it is for the tokens that were shown alone, and for those that a refresh makes of them.
    let variesByToken: Bool
    /// Seconds past its life during which it may be served while it is asked about behind, and when the origin fails.
    let staleWhileRevalidate: Int64
    let staleIfError: Int64
    /// Seconds of life since it was made, stated or guessed; zero for what is never fresh.
    let lifetime: Int64
    /// Seconds of that it had behind it when it arrived.
    let initialAge: Int64

    /// - Parameters:
    ///   - fields: of the answer; after a 304 those that were stored, updated by it.
    ///   - headers: of the answer that has just come, whichever it was: they tell its age.
    ///   - origin: what goes for an answer that does not say.
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
        // Where an answer forbids it, it is not served stale, not even when the origin fails (section 4.2.4).
        let mayBeStale = !isNeverFresh && !control.mustRevalidate
        // What is stale as it arrives comes from an origin that asks to be asked, unless the answer says otherwise.
        let wasFresh = lifetime > initialAge
        let whileRevalidate = control.staleWhileRevalidate ?? (wasFresh ? origin.staleWhileRevalidate : 0)
        staleWhileRevalidate = mayBeStale ? whileRevalidate : 0
        staleIfError = mayBeStale ? control.staleIfError ?? origin.staleIfError : 0
    }

    /// A redirect. One that does not say is taken for fresh as long as a guess may be, whatever its status: RFC 9111
    /// section 4.2.2 guesses for 301 and 308 only, but then every GET would ask for an image behind a 302.
    init(redirect headers: ResponseHeaders, origin: Origin, at responseTime: ResponseTime) {
        var fields = StoredFields(headers)
        // When what it leads to was changed says nothing of how long it leads there.
        fields.lastModified = nil
        self.init(fields, headers, origin: origin, at: responseTime)
    }

    var mayBeStored: Bool { Self.mayBeStored(control) }

    /// No-store forbids it (section 5.2.2.5), unless must-understand says that it is meant for those who do not know
    /// the status: all that get here are known (section 5.2.2.3).
    private static func mayBeStored(_ control: CacheControl) -> Bool { !control.noStore || control.mustUnderstand }

    /// Seconds of life left when it arrived; negative when it was stale already.
    var timeLeft: Int64 { lifetime - initialAge }

    /// Pragma of HTTP/1.0 was never given a meaning in answers (section 5.4). Where nothing else is said, its no-cache
    /// still says that a guess would be wrong.
    private static func oldNoCache(_ fields: StoredFields) -> Bool {
        guard fields.cacheControl == nil, let pragma = fields.pragma else { return false }
        return CacheControl(pragma).noCache
    }
}

/// Which requests an answer is for (RFC 9111 section 4.1).
///
/// All requests of thumbcached for one URL have the same header fields but for Authorization. So whatever other fields
/// an answer varies by, it is for the next request as well; `*`, which varies by what no request shows, matches none.
/// What varies by Authorization is for the tokens of one family: see ``LoginTokens/family``.
struct Vary: Sendable, Equatable {
    private(set) var matchesNothing = false
    private(set) var namesAuthorization = false

    /// - Parameter value: all lines of the field as one list; nil without one.
    init(_ value: String?) {
        guard let value else { return }
        var scanner = FieldScanner(value)
        while !scanner.isAtEnd {
            scanner.skipBlanks()
            // A star is a character of tokens, too.
            switch scanner.token() {
            case "*": matchesNothing = true
            case "authorization": namesAuthorization = true
            default: break
            }
            scanner.skipElement()
            _ = scanner.take(",")
        }
    }
}
