/// A record of the commands that clients sent to a daemon, with their outcomes. The input of ``HistoryChecker``.
///
/// Times are values of a logical clock, which advances by one for each. No two times are equal.
struct History: Codable, Sendable {
    enum Command: Codable, Equatable, Sendable {
        case login
        case logout
        case purge
        case purgeProfile(String)
        /// Profile and image number.
        case put(String, Int)
        case get(String)
        /// GET with CACHED.
        case getCached(String)
        /// A kill and a restart of the daemon.
        case kill
    }

    enum Outcome: Codable, Equatable, Sendable {
        case ok
        /// A receipt with its count of users and its epoch.
        case receipt(users: Int64, epoch: Int64)
        /// The number of the image.
        case image(Int)
        /// Null: no image in the cache, and none known at the origin.
        case missing
        case notLoggedIn
        case cancelled
        /// The origin failed.
        case failed
        /// The daemon was killed before the reply.
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

    /// A response of the origin.
    struct Download: Codable, Equatable, Sendable {
        /// `user/profile`.
        var path: String
        /// Arrival of the request at the origin.
        var began: Int
        /// Whether the response may be stored.
        var isStorable: Bool
    }

    var events: [Event] = []
    /// Downloads by image number.
    var downloads: [Int: Download] = [:]
    private(set) var clock = 0

    mutating func tick() -> Int {
        clock += 1
        return clock
    }
}

extension History.Command {
    /// Whether the command cancels waiters for an image of the profile.
    func cancels(_ profile: String) -> Bool {
        switch self {
        case .logout, .purge, .kill: true
        case .purgeProfile(let purged): purged == profile
        case .login, .put, .get, .getCached: false
        }
    }

    var profile: String? {
        switch self {
        case .put(let profile, _), .get(let profile), .getCached(let profile), .purgeProfile(let profile): profile
        case .login, .logout, .purge, .kill: nil
        }
    }
}

extension History.Event {
    /// Whether the command changes nothing at any position in the order.
    var isReadOnly: Bool {
        switch (command, outcome) {
        case (.get, _), (.getCached, _), (_, .cancelled), (_, .notLoggedIn): true
        default: false
        }
    }

    var isPurgeOfProfile: Bool {
        if case .purgeProfile = command { true } else { false }
    }
}
