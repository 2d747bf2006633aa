import CacheCore

/// The header field Retry-After (RFC 9110 section 10.2.3): seconds, or a date.
enum RetryAfter {
    /// Milliseconds to wait; nil for an invalid value and for a date in the past.
    /// - Parameters:
    ///   - date: the Date of the response. A date in `value` is relative to it, since the host's clock may be wrong
    ///     (F14).
    ///   - now: seconds since 1970; used if the response has no Date.
    static func milliseconds(_ value: String, date: String?, now: Int64) -> Int64? {
        func parse(_ text: String) -> Int64? { HTTPDate.seconds(text, now: now) }
        let seconds = DeltaSeconds.parse(value) ?? parse(value).map { $0 - (date.flatMap(parse) ?? now) }
        return seconds.flatMap { $0 > 0 ? $0 * 1_000 : nil }
    }
}
