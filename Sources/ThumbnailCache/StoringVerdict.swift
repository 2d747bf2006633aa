/// Whether an answer may be kept, and for how long (RFC 9111 sections 3 and 4.2, for a private cache).
struct StoringVerdict: Sendable, Equatable {
    let mayStore: Bool
    let freshness: Freshness

    /// - Parameters:
    ///   - fields: of the answer; after a 304 those that were stored, updated by it.
    ///   - headers: of the answer that has just come, whichever it was: they tell its age.
    init(_ fields: StoredFields, _ headers: ResponseHeaders, origin: Origin, at reception: Reception) {
        let control = CacheControl(fields.cacheControl ?? "")
        mayStore = Self.mayStore(control, redirects: headers.redirectControls)
        let age = AgeCalculation(headers, at: reception)
        let date = age.date ?? reception.forDates
        let stated = FreshnessLifetime.explicit(
            control, expires: fields.expires, date: date, now: reception.forDates)
        let isNeverFresh =
            control.noCache || Vary.matchesNothing(fields.vary)
            || stated == nil && Self.oldNoCache(fields)
        let guessed = HeuristicFreshness.lifetime(
            lastModified: fields.lastModified, date: date, longest: origin.defaultTTL, now: reception.forDates)
        // Where the answer forbids it, it is not served stale, not even when the origin fails (section 4.2.4).
        let mayBeStale = !control.mustRevalidate && !isNeverFresh
        freshness = Freshness(
            storedAt: reception.now, initialAge: age.initialAge, lifetime: isNeverFresh ? 0 : stated ?? guessed,
            staleWhileRevalidate: mayBeStale ? control.staleWhileRevalidate ?? origin.staleWhileRevalidate : 0,
            staleIfError: mayBeStale ? control.staleIfError ?? origin.staleIfError : 0)
    }

    /// No-store forbids it (section 5.2.2.5), unless must-understand says that it is meant for those who do not know the
    /// status: all that get here are known (section 5.2.2.3). A redirect on the way that may not be stored is a part of what would be.
    private static func mayStore(_ control: CacheControl, redirects: [String]) -> Bool {
        ([control] + redirects.map { CacheControl($0) }).allSatisfy { !$0.noStore || $0.mustUnderstand }
    }

    /// Pragma of HTTP/1.0 was never given a meaning in answers (section 5.4). Where nothing else is said, its no-cache still
    /// says that a guess would be wrong.
    private static func oldNoCache(_ fields: StoredFields) -> Bool {
        guard fields.cacheControl == nil, let pragma = fields.pragma else { return false }
        return CacheControl(pragma).noCache
    }
}
