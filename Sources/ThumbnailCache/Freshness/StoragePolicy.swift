/// Whether an answer may be kept, and for how long (RFC 9111 sections 3 and 4.2, for a private cache).
///
/// An image behind redirects is kept under the URL that was asked for first. So it may be used as long as all of them may that led
/// to it, and no longer: one that was good for a minute leads elsewhere after it, however long the image itself may live.
struct StoragePolicy: Sendable, Equatable {
    let mayStore: Bool
    /// Whether it may be used for the tokens that were shown alone (section 4.1): it says so, or a redirect that led to it.
    let variesByToken: Bool
    let freshness: Freshness

    /// - Parameters:
    ///   - fields: of the answer; after a 304 those that were stored, updated by it.
    ///   - headers: of the answer that has just come, whichever it was, and of the redirects that led to it: they tell its age.
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
