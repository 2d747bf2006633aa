/// Responses and failures without an image, remembered for a bounded time and in bounded number: missing images,
/// responses without a usable image, and failed refreshes of stale images.
///
/// These entries concern a single image; circuit breakers pause hosts. Without them, every GET of a stale image whose
/// refresh fails would start another download.
struct NegativeCache: Sendable {
    private struct Entry: Sendable {
        /// Seconds since 1970. An entry from the future is ignored: the clock was set back (F14).
        let since: Int64
        let until: Int64
        let meaning: Meaning
        var leavesEmpty = false

        enum Meaning: Sendable {
            case missing
            case unusable(FetchFailure.Kind)
            /// Consecutive failed refreshes.
            case failures(Int)
        }

        func isMissing(at now: Int64) -> Bool { if case .missing = meaning { isValid(at: now) } else { false } }
        var failures: Int { if case .failures(let count) = meaning { count } else { 0 } }
        func isValid(at now: Int64) -> Bool { since <= now && now < until }
    }

    /// Seconds between failing refreshes of a stale image.
    private static let backoff = Backoff(base: 1, most: 60)

    private var entries: ExpiringKeyMap<Entry>

    private init(_ entries: ExpiringKeyMap<Entry>) { self.entries = entries }

    init(limit: Int, memory: MemoryLease) {
        entries = ExpiringKeyMap(limit: limit, memory: memory)
    }

    // MARK: Missing images

    /// Whether the origin has no image under this URL.
    func isMissing(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        entries[imageKey, url]?.isMissing(at: now) == true
    }

    /// Until when the origin is believed to have no image (seconds since 1970); nil if it is not.
    func missingUntil(_ imageKey: ImageKey, url: String, at now: Int64) -> Int64? {
        entries[imageKey, url].flatMap { $0.isMissing(at: now) ? $0.until : nil }
    }

    /// Whether the origin has no image and the image key holds none from elsewhere: no read from disk is needed.
    func leavesEmpty(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        entries[imageKey, url].map { $0.isMissing(at: now) && $0.leavesEmpty } ?? false
    }

    /// Whether any URL of an image key is known to have no image.
    func hasMissing(_ imageKey: ImageKey, at now: Int64) -> Bool {
        entries.contains(imageKey) { $0.isMissing(at: now) }
    }

    mutating func missing(_ imageKey: ImageKey, url: String, until: Int64, leavesEmpty: Bool, now: Int64) {
        let entry = Entry(since: now, until: until, meaning: .missing, leavesEmpty: leavesEmpty)
        entries.insert(imageKey, url: url, entry, until: until, now: now)
    }

    // MARK: Responses without a usable image

    /// The failure of the last response for this URL, while it is believed.
    func unusable(_ imageKey: ImageKey, url: String, at now: Int64) -> CacheFailure? {
        guard let entry = entries[imageKey, url], case .unusable(let kind) = entry.meaning, entry.isValid(at: now)
        else { return nil }
        return CacheFailure(FetchFailure(remembered: kind, retryIn: entry.until - now))
    }

    mutating func unusable(_ imageKey: ImageKey, url: String, _ kind: FetchFailure.Kind, until: Int64, now: Int64) {
        let entry = Entry(since: now, until: until, meaning: .unusable(kind))
        entries.insert(imageKey, url: url, entry, until: until, now: now)
    }

    // MARK: Failed refreshes

    func hasJustFailed(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        entries[imageKey, url].map { $0.failures > 0 && $0.isValid(at: now) } ?? false
    }

    /// - Parameter pause: seconds until the next refresh, at least.
    mutating func failed(_ imageKey: ImageKey, url: String, at now: Int64, forAtLeast pause: Int64 = 0) {
        // Kept beyond its validity: a failure until then counts as consecutive.
        let last = entries[imageKey, url].flatMap { $0.since <= now && now < $0.until + Self.backoff.most ? $0 : nil }
        let failures = 1 + (last?.failures ?? 0)
        let until = now + max(pause, Self.backoff.ceiling(attempt: failures))
        let entry = Entry(since: now, until: until, meaning: .failures(failures))
        entries.insert(imageKey, url: url, entry, until: until + Self.backoff.most, now: now)
    }

    /// Times of a valid entry, in seconds since 1970, and whether a failed refresh caused it.
    func remembered(
        _ imageKey: ImageKey, url: String, at now: Int64
    ) -> (since: Int64, until: Int64, isRefresh: Bool)? {
        guard let entry = entries[imageKey, url], entry.isValid(at: now) else { return nil }
        return (entry.since, entry.until, entry.failures > 0)
    }

    /// The entries of a profile, in a cache that accepts no others.
    func excerpt(_ profile: OpaqueID) -> NegativeCache { NegativeCache(entries.excerpt(profile)) }

    // MARK: Removal

    mutating func forget(_ imageKey: ImageKey) { entries.remove(imageKey) }
    mutating func forget(profile: OpaqueID) { entries.remove(profile: profile) }
    mutating func forgetAll() { entries.removeAll() }
}

extension FetchFailure {
    /// The failure of a request while a response without a usable image is remembered.
    init(remembered kind: Kind, retryIn seconds: Int64) {
        let response =
            switch kind {
            case .badImage: "was not an image of a supported format"
            case .tooLarge: "had an image that was too large"
            case .forbidden: "refused access"
            case .denied: "redirected to a URL that is not allowed"
            case .origin, .timedOut, .unauthorized, .circuitOpen, .busy, .shuttingDown: "held no usable image"
            }
        self.init(
            kind,
            "the origin's last response \(response); the next request is sent in \(seconds) s, or after PURGE")
    }
}

/// A response without a usable image, and until when it is believed (seconds since 1970).
struct NegativeResponse: Sendable, Equatable {
    let until: Int64
    /// Nil if the origin has no image.
    var reason: FetchFailure.Kind?
}
