/// How long an answer is fresh (RFC 9111 section 4.2.1), counted from when it was made. Everything in seconds.
enum FreshnessLifetime {
    /// What the answer itself says; nil where it says nothing. max-age counts before Expires (section 5.3), and s-maxage, which
    /// is for shared caches, not at all.
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
    /// What has just been changed is guessed to stay as it is for so long at least: else a picture that was put on its server a minute
    /// ago would be asked for again after six seconds.
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
