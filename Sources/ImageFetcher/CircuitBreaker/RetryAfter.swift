import CCurl

/// The field Retry-After (RFC 9110 section 10.2.3): seconds, or a date.
enum RetryAfter {
    /// Milliseconds to wait; nil for what is neither, and for a moment that is past.
    ///
    /// - Parameters:
    ///   - date: the same answer's Date, which a date is relative to: so a clock that is wrong, here or there, does not matter (F14).
    ///   - now: seconds since 1970, for an answer without one.
    static func milliseconds(_ value: String, date: String?, now: Int64) -> Int64? {
        let seconds: Int64
        if !value.isEmpty, value.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) {
            // Too many digits are a time that nobody lives to see.
            seconds = Int64(value) ?? .max
        } else if let moment = parse(value) {
            seconds = moment - (date.flatMap(parse) ?? now)
        } else {
            return nil
        }
        return seconds > 0 ? seconds.multipliedReportingOverflow(by: 1_000).overflow ? .max : seconds * 1_000 : nil
    }

    /// Seconds since 1970 of a date in any of HTTP's three forms (section 5.6.7).
    private static func parse(_ text: String) -> Int64? {
        // It would take numbers and words in nearly any order; each of HTTP's forms begins with the day's name and has a time.
        guard let first = text.utf8.first, (UInt8(ascii: "A")...UInt8(ascii: "z")).contains(first), text.contains(":")
        else { return nil }
        let seconds = Int64(curl_getdate(text, nil))
        return seconds >= 0 ? seconds : nil
    }
}
