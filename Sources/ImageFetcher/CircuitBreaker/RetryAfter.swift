import ThumbnailCache

/// The field Retry-After (RFC 9110 section 10.2.3): seconds, or a date.
enum RetryAfter {
    /// Milliseconds to wait; nil for what is neither, and for a moment that is past.
    ///
    /// - Parameters:
    ///   - date: the same answer's Date, which a date is relative to: so a clock that is wrong, here or there, does not
    ///     matter (F14).
    ///   - now: seconds since 1970, for an answer without one.
    static func milliseconds(_ value: String, date: String?, now: Int64) -> Int64? {
        func moment(_ text: String) -> Int64? { HTTPDate.seconds(text, now: now) }
        let seconds = DeltaSeconds.parse(value) ?? moment(value).map { $0 - (date.flatMap(moment) ?? now) }
        return seconds.flatMap { $0 > 0 ? $0 * 1_000 : nil }
    }
}
