import DequeModule

/// What an origin did not give, remembered for a while, in bounded number: the images that it said it does not have,
/// the responses that held no usable image, and the stale images whose refresh failed, which are not asked about again
/// for a moment.
///
/// The fetcher does not ask a host that fails. The pauses here are for what says nothing against the host: every GET of
/// a stale image would else begin another download of it.
struct NegativeCache: Sendable {
    private struct Note: Sendable {
        /// Seconds since 1970. Before `since` the clock was set back: then it is not believed (F14).
        let since: Int64
        let until: Int64
        let meaning: Meaning
        var leavesKeyAbsent = false
        /// Nor is there a larger image that could stand in.
        var leavesNoneLarger = false

        enum Meaning: Sendable {
            case missing
            case unusable(NegativeReason)
            /// Refreshes that failed in a row.
            case failures(Int)
        }

        func isMissing(at now: Int64) -> Bool { if case .missing = meaning { holds(at: now) } else { false } }
        var failures: Int { if case .failures(let count) = meaning { count } else { 0 } }
        func holds(at now: Int64) -> Bool { since <= now && now < until }
    }

    /// Seconds between attempts to refresh a stale image that fail.
    private static let backoff = Backoff(base: 1, most: 60)

    private var notes: ExpiringKeyMap<Note>

    /// As ``ExpiringKeyMap/init(limit:memory:)``.
    init(limit: Int, memory: MemoryLease) {
        notes = ExpiringKeyMap(limit: limit, memory: memory)
    }

    // MARK: Missing images

    /// Whether the origin said, not too long ago, that there is nothing under this URL.
    func isMissing(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        notes[imageKey, url]?.isMissing(at: now) == true
    }

    /// Until when that is believed (seconds since 1970); nil where it is not.
    func missingUntil(_ imageKey: ImageKey, url: String, at now: Int64) -> Int64? {
        notes[imageKey, url].flatMap { $0.isMissing(at: now) ? $0.until : nil }
    }

    /// It is missing, and the image key was left with nothing from elsewhere either: nobody need look on disk.
    func leavesEmpty(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        notes[imageKey, url].map { $0.isMissing(at: now) && $0.leavesKeyAbsent } ?? false
    }

    /// Whether it is known that no larger image could stand in for what is missing under this URL.
    func leavesNoneLarger(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        notes[imageKey, url].map { $0.isMissing(at: now) && $0.leavesNoneLarger } ?? false
    }

    /// Whether the origin's word has emptied an image key. What could not be removed may still be on disk.
    func leavesEmpty(_ imageKey: ImageKey, at now: Int64) -> Bool {
        notes.contains(imageKey) { $0.isMissing(at: now) && $0.leavesKeyAbsent }
    }

    /// Whether anything is known to be missing in an image key, under whatever URL.
    func hasMissing(_ imageKey: ImageKey, at now: Int64) -> Bool {
        notes.contains(imageKey) { $0.isMissing(at: now) }
    }

    mutating func missing(_ imageKey: ImageKey, url: String, until: Int64, leavesKeyAbsent: Bool, now: Int64) {
        let note = Note(since: now, until: until, meaning: .missing, leavesKeyAbsent: leavesKeyAbsent)
        notes.remember(imageKey, url: url, note, until: until, now: now)
    }

    /// No larger image was found that could stand in for what is missing in an image key.
    mutating func noneLarger(than imageKey: ImageKey) {
        notes.change(imageKey.profile) { code, note in
            if code == imageKey.code { note.leavesNoneLarger = true }
        }
    }

    // MARK: Responses without a usable image

    /// The failure of the last response for this URL, for as long as it is believed.
    func unusable(_ imageKey: ImageKey, url: String, at now: Int64) -> CacheFailure? {
        guard let note = notes[imageKey, url], case .unusable(let reason) = note.meaning, note.holds(at: now) else {
            return nil
        }
        return reason.failure(askedAgainIn: note.until - now)
    }

    mutating func unusable(_ imageKey: ImageKey, url: String, _ reason: NegativeReason, until: Int64, now: Int64) {
        notes.remember(
            imageKey, url: url, Note(since: now, until: until, meaning: .unusable(reason)), until: until, now: now)
    }

    // MARK: Refreshes in vain

    /// Whether it is too early to ask about a stale image again.
    func hasJustFailed(_ imageKey: ImageKey, url: String, at now: Int64) -> Bool {
        notes[imageKey, url].map { $0.failures > 0 && $0.holds(at: now) } ?? false
    }

    /// Asking about a stale image came to nothing.
    /// - Parameter pause: seconds, at least.
    mutating func failed(_ imageKey: ImageKey, url: String, at now: Int64, forAtLeast pause: Int64 = 0) {
        // Remembered longer than it holds: what fails until then is the next in a row.
        let last = notes[imageKey, url].flatMap { $0.since <= now && now < $0.until + Self.backoff.most ? $0 : nil }
        let failures = 1 + (last?.failures ?? 0)
        let until = now + max(pause, Self.backoff.ceiling(attempt: failures))
        let note = Note(since: now, until: until, meaning: .failures(failures))
        notes.remember(imageKey, url: url, note, until: until + Self.backoff.most, now: now)
    }

    // MARK: Forgetting

    /// The image key holds something new, which may stand in for what is missing in others.
    mutating func forget(_ imageKey: ImageKey) {
        notes.forget(imageKey)
        notes.change(imageKey.profile) { $1.leavesNoneLarger = false }
    }

    mutating func forget(profile: OpaqueID) { notes.forget(profile: profile) }
    mutating func forgetAll() { notes.forgetAll() }
}

/// Why a response held no usable image: as much of a ``CacheFailure`` as is remembered of it.
public enum NegativeReason: UInt8, Sendable {
    case badImage, tooLarge, forbidden, denied, origin

    /// Nil for a failure that is not a property of the response.
    public init?(_ failure: CacheFailure) {
        switch failure {
        case .badImage: self = .badImage
        case .tooLarge: self = .tooLarge
        case .forbidden: self = .forbidden
        case .denied: self = .denied
        case .origin: self = .origin
        case .notLoggedIn, .cancelled, .invalid, .timedOut, .unauthorized, .busy, .noSpace, .inputOutput, .shuttingDown:
            return nil
        }
    }

    /// - Parameter seconds: for which the origin is not asked again.
    func failure(askedAgainIn seconds: Int64) -> CacheFailure {
        let rest = "; the origin is asked again in \(seconds) s, or after a PURGE of the profile"
        return switch self {
        case .badImage: .badImage("the origin's last response was not an image of a supported format\(rest)")
        case .tooLarge: .tooLarge("the image in the origin's last response was too large\(rest)")
        case .forbidden: .forbidden("the origin's last response refused access\(rest)")
        case .denied: .denied("the origin's last response redirected to a URL that is not allowed\(rest)")
        case .origin: .origin("the origin's last response held no usable image\(rest)")
        }
    }
}

/// What an origin said that is no image, and until when it is believed (seconds since 1970).
struct NegativeAnswer: Sendable, Equatable {
    let until: Int64
    /// Nil where the origin said that there is no image.
    var reason: NegativeReason?
}

/// What is known of image keys and the URLs asked for them, for a while: in bounded number, and in an account's bytes.
///
/// A value. Names and URLs are not kept but hashes of them, 128 bits together, by a key that each start of the program
/// chooses anew: an entry takes ``bytesOfOne``, however long its names are, and two that are taken for each other are
/// not to be met with. What is looked for and what is forgotten is found by its profile, and the oldest goes first
/// where there is no room, so that nothing here costs more the more is remembered, but for the tidying up that follows
/// when about as much was forgotten.
struct ExpiringKeyMap<Value: Sendable>: Sendable {
    private struct Entry: Sendable {
        /// In the order of remembering.
        let number: UInt64
        /// Hash of the image key's code and the URL.
        let key: Int
        let code: UInt16
        /// Seconds since 1970, after which nobody wants it.
        let until: Int64
        var value: Value
    }

    /// By a profile's hash, the oldest first.
    private var entries: [Int: [Entry]] = [:]
    /// The oldest first, with some that are forgotten.
    private var order: Deque<(profile: Int, number: UInt64)> = []
    private var lastNumber: UInt64 = 0
    private(set) var count = 0
    /// For so many entries memory is taken.
    private var paid = 0
    private let limit: Int
    private let memory: MemoryLease

    /// Bytes that an entry counts for: its array of 112, 16 in the order and 24 in the table of profiles, both
    /// twice where these have just grown.
    static var bytesOfOne: Int { 192 }
    /// As many sizes and URLs of one profile are remembered: they are looked through one by one.
    private static var mostOfProfile: Int { 64 }

    /// - Parameters:
    ///   - limit: how many are remembered at most.
    ///   - memory: what they count against.
    init(limit: Int, memory: MemoryLease) {
        self.limit = limit
        self.memory = memory
    }

    /// What was remembered of that image key and URL last and not forgotten since, maybe longer than anybody wants it.
    subscript(imageKey: ImageKey, url: String) -> Value? {
        guard count > 0, let known = entries[imageKey.profile.hashValue] else { return nil }
        let key = Self.hash(imageKey.code, url)
        return known.first { $0.key == key }?.value
    }

    /// Whether that is so of any of an image key, under whatever URL.
    func contains(_ imageKey: ImageKey, where isWanted: (Value) -> Bool) -> Bool {
        guard count > 0, let known = entries[imageKey.profile.hashValue] else { return false }
        return known.contains { $0.code == imageKey.code && isWanted($0.value) }
    }

    /// Remembers it, unless there is no room and nothing older that could go for it.
    mutating func remember(_ imageKey: ImageKey, url: String, _ value: Value, until: Int64, now: Int64) {
        guard until > now, limit > 0 else { return }
        defer { tidy() }
        while removeOldest(where: { $0.until <= now }) {}
        let (profile, key) = (imageKey.profile.hashValue, Self.hash(imageKey.code, url))
        remove(profile) { $0.key == key }
        if let known = entries[profile], known.count >= Self.mostOfProfile, let oldest = known.first {
            remove(profile) { $0.number == oldest.number }
        }
        while count >= limit, removeOldest() {}
        if count == paid {
            if memory.take(Self.bytesOfOne) { paid += 1 } else if !removeOldest() { return }
        }
        lastNumber += 1
        entries[profile, default: []].append(
            Entry(number: lastNumber, key: key, code: imageKey.code, until: until, value: value))
        order.append((profile, lastNumber))
        count += 1
    }

    /// Changes all that is known of a profile, each of which is handed with its image key's code.
    mutating func change(_ profile: OpaqueID, _ body: (UInt16, inout Value) -> Void) {
        guard count > 0 else { return }
        let profile = profile.hashValue
        for index in entries[profile]?.indices ?? 0..<0 {
            guard let code = entries[profile]?[index].code else { continue }
            body(code, &entries[profile, default: []][index].value)
        }
    }

    mutating func forget(_ imageKey: ImageKey) {
        guard count > 0 else { return }
        remove(imageKey.profile.hashValue) { $0.code == imageKey.code }
        tidy()
    }

    mutating func forget(profile: OpaqueID) {
        guard count > 0 else { return }
        remove(profile.hashValue) { _ in true }
        tidy()
    }

    mutating func forgetAll() {
        memory.give(paid * Self.bytesOfOne)
        self = ExpiringKeyMap(limit: limit, memory: memory)
    }

    // MARK: Entries

    private static func hash(_ code: UInt16, _ url: String) -> Int {
        var hasher = Hasher()
        hasher.combine(code)
        hasher.combine(url)
        return hasher.finalize()
    }

    private mutating func remove(_ profile: Int, where isGone: (Entry) -> Bool) {
        guard let before = entries[profile]?.count else { return }
        entries[profile]?.removeAll(where: isGone)
        let left = entries[profile]?.count ?? 0
        count -= before - left
        if left == 0 { entries[profile] = nil }
    }

    /// Whether there was one that may go.
    @discardableResult
    private mutating func removeOldest(where mayGo: (Entry) -> Bool = { _ in true }) -> Bool {
        while let (profile, number) = order.first {
            // Those of a profile stand in the same order.
            let oldest = entries[profile]?.first.flatMap { $0.number == number ? $0 : nil }
            if let oldest, !mayGo(oldest) { return false }
            order.removeFirst()
            guard oldest != nil else { continue }
            remove(profile) { $0.number == number }
            return true
        }
        return false
    }

    /// Gives memory back.
    private mutating func tidy() {
        memory.give((paid - count) * Self.bytesOfOne)
        paid = count
        if order.count > 2 * count + 64 {
            let known = Set(entries.values.joined().map(\.number))
            order = Deque(order.filter { known.contains($0.number) })
        }
        if entries.capacity > 4 * entries.count + 64 {
            entries = Dictionary(uniqueKeysWithValues: Array(entries))
        }
    }
}
