import DequeModule

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

    /// When an entry that is valid was added and when it expires, in seconds since 1970, and whether it is that of a
    /// failed refresh.
    func remembered(
        _ imageKey: ImageKey, url: String, at now: Int64
    ) -> (since: Int64, until: Int64, isRefresh: Bool)? {
        guard let entry = entries[imageKey, url], entry.isValid(at: now) else { return nil }
        return (entry.since, entry.until, entry.failures > 0)
    }

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

/// A map from image keys and URLs to values that expire, bounded in number and in the account's memory.
///
/// A value. It stores no names or URLs but 128 bits of hashes, seeded in each process; a collision is not to be
/// expected. Entries are found by their profile, and the oldest is evicted first, so that the cost of a call does not
/// grow with the number of entries.
struct ExpiringKeyMap<Value: Sendable>: Sendable {
    private struct Entry: Sendable {
        /// In the order of insertion.
        let number: UInt64
        /// Hash of the image key's code and the URL.
        let key: Int
        let code: UInt16
        /// Seconds since 1970, after which the entry is of no use.
        let until: Int64
        var value: Value
    }

    /// By the profile's hash, the oldest first.
    private var entries: [Int: [Entry]] = [:]
    /// The oldest first; contains removed entries, too.
    private var order: Deque<(profile: Int, number: UInt64)> = []
    private var lastNumber: UInt64 = 0
    private(set) var count = 0
    /// Entries for which memory is reserved.
    private var reserved = 0
    private let limit: Int
    private let memory: MemoryLease

    /// Bytes that an entry counts for: 112 in its array, 16 in the order and 24 in the table of profiles, the last two
    /// twice if they have just grown.
    static var bytesPerEntry: Int { 192 }
    /// Most entries of one profile: they are searched one by one.
    private static var mostOfProfile: Int { 64 }

    /// - Parameter memory: the lease that entries count against.
    init(limit: Int, memory: MemoryLease) {
        self.limit = limit
        self.memory = memory
    }

    /// The last value inserted for that image key and URL and not removed since, possibly expired.
    subscript(imageKey: ImageKey, url: String) -> Value? {
        guard count > 0, let known = entries[imageKey.profile.hashValue] else { return nil }
        let key = Self.hash(imageKey.code, url)
        return known.first { $0.key == key }?.value
    }

    func contains(_ imageKey: ImageKey, where condition: (Value) -> Bool) -> Bool {
        guard count > 0, let known = entries[imageKey.profile.hashValue] else { return false }
        return known.contains { $0.code == imageKey.code && condition($0.value) }
    }

    /// Inserts a value, unless there is neither memory for it nor an older entry to evict.
    mutating func insert(_ imageKey: ImageKey, url: String, _ value: Value, until: Int64, now: Int64) {
        guard until > now, limit > 0 else { return }
        defer { compact() }
        while removeOldest(where: { $0.until <= now }) {}
        let (profile, key) = (imageKey.profile.hashValue, Self.hash(imageKey.code, url))
        remove(profile) { $0.key == key }
        if let known = entries[profile], known.count >= Self.mostOfProfile, let oldest = known.first {
            remove(profile) { $0.number == oldest.number }
        }
        while count >= limit, removeOldest() {}
        if count == reserved {
            if memory.reserve(Self.bytesPerEntry) { reserved += 1 } else if !removeOldest() { return }
        }
        lastNumber += 1
        entries[profile, default: []].append(
            Entry(number: lastNumber, key: key, code: imageKey.code, until: until, value: value))
        order.append((profile, lastNumber))
        count += 1
    }

    mutating func remove(_ imageKey: ImageKey) {
        guard count > 0 else { return }
        remove(imageKey.profile.hashValue) { $0.code == imageKey.code }
        compact()
    }

    mutating func remove(profile: OpaqueID) {
        guard count > 0 else { return }
        remove(profile.hashValue) { _ in true }
        compact()
    }

    mutating func removeAll() {
        memory.release(reserved * Self.bytesPerEntry)
        self = ExpiringKeyMap(limit: limit, memory: memory)
    }

    // MARK: Entries

    private static func hash(_ code: UInt16, _ url: String) -> Int {
        var hasher = Hasher()
        hasher.combine(code)
        hasher.combine(url)
        return hasher.finalize()
    }

    private mutating func remove(_ profile: Int, where condition: (Entry) -> Bool) {
        guard let before = entries[profile]?.count else { return }
        entries[profile]?.removeAll(where: condition)
        let left = entries[profile]?.count ?? 0
        count -= before - left
        if left == 0 { entries[profile] = nil }
    }

    /// Removes the oldest entry if it satisfies the condition. Returns whether an entry was removed.
    @discardableResult
    private mutating func removeOldest(where condition: (Entry) -> Bool = { _ in true }) -> Bool {
        while let (profile, number) = order.first {
            // The entries of a profile have the same order.
            let oldest = entries[profile]?.first.flatMap { $0.number == number ? $0 : nil }
            if let oldest, !condition(oldest) { return false }
            order.removeFirst()
            guard oldest != nil else { continue }
            remove(profile) { $0.number == number }
            return true
        }
        return false
    }

    /// Returns memory of removed entries.
    private mutating func compact() {
        memory.release((reserved - count) * Self.bytesPerEntry)
        reserved = count
        if order.count > 2 * count + 64 {
            let known = Set(entries.values.joined().map(\.number))
            order = Deque(order.filter { known.contains($0.number) })
        }
        if entries.capacity > 4 * entries.count + 64 {
            entries = Dictionary(uniqueKeysWithValues: Array(entries))
        }
    }
}
