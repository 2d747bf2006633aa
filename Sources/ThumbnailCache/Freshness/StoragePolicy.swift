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

/// How long the origin's word that there is no image (404, 410) is believed.
enum NegativePolicy {
    /// Until when, in seconds since 1970 by ``Timekeeping/now``: as long as the answer says that it is fresh, else for
    /// the origin's `negative-ttl`. Not after now where it may not be stored, or not be used unasked.
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
        return responseTime.now + max(0, left)
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
