/// What many clients asked of one daemon, and what each was told: the material of a ``HistoryChecker``.
///
/// Times are numbers of one clock that ticks once for each, so that no two are the same.
struct History: Codable, Sendable {
    enum Command: Codable, Equatable, Sendable {
        case login
        case logout
        case purge
        case purgeProfile(String)
        /// With the image's number.
        case put(String, Int)
        case get(String)
        /// GET … CACHED: asks no origin.
        case look(String)
        /// Somebody killed the daemon, and started it again.
        case kill
    }

    enum Outcome: Codable, Equatable, Sendable {
        case ok
        /// A receipt, and how many users it counts.
        case receipt(users: Int64, epoch: Int64)
        /// The number of the image.
        case image(Int)
        /// Neither the cache has an image nor, as far as is known, the origin.
        case missing
        case notLoggedIn
        case cancelled
        /// The origin failed.
        case failed
        /// The daemon was killed before it answered.
        case unknown
    }

    struct Event: Codable, Equatable, Sendable {
        /// Nil for all users.
        var user: String?
        var command: Command
        var outcome: Outcome
        var began: Int
        var ended: Int
    }

    /// What the origin gave, by its number.
    struct Download: Codable, Equatable, Sendable {
        /// User and profile.
        var path: String
        /// When the origin saw the request.
        var began: Int
        /// Whether the answer may be kept.
        var isKept: Bool
    }

    var events: [Event] = []
    var downloads: [Int: Download] = [:]
    private(set) var clock = 0

    mutating func tick() -> Int {
        clock += 1
        return clock
    }
}

extension History.Command {
    /// Whether what it ends lets go of those who wait for a picture of the profile.
    func ends(_ profile: String) -> Bool {
        switch self {
        case .logout, .purge, .kill: true
        case .purgeProfile(let purged): purged == profile
        case .login, .put, .get, .look: false
        }
    }

    var profile: String? {
        switch self {
        case .put(let profile, _), .get(let profile), .look(let profile), .purgeProfile(let profile): profile
        case .login, .logout, .purge, .kill: nil
        }
    }
}

extension History.Event {
    /// Whether nothing is changed by it, wherever in the order it stands.
    var isRead: Bool {
        switch (command, outcome) {
        case (.get, _), (.look, _), (_, .cancelled), (_, .notLoggedIn): true
        default: false
        }
    }

    var isOfProfile: Bool {
        if case .purgeProfile = command { true } else { false }
    }
}
