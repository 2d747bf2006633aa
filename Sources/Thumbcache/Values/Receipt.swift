import ThumbcacheProtocol

/// The result of a logout or purge. When the receipt arrives, nothing that was stored or being downloaded is ever
/// served again, even after a power failure.
public struct Receipt: Sendable, Hashable {
    /// The number of caches that were ended or purged.
    public let users: Int
    /// The number of images in them; nil if not counted yet after the daemon's start.
    public let images: Int?
    /// The total size of these images, in bytes; nil if not counted yet.
    public let bytes: Int?
    /// The number of cancelled downloads.
    public let cancelled: Int
    /// The number of remaining sessions.
    public let sessions: Int
    /// A number that grows with every login, logout and purge of the uid.
    public let epoch: Int

    init(_ map: Value) throws(ThumbcacheError) {
        var reader = ReplyReader(map)
        users = try reader.number(ReceiptKey.users.rawValue)
        images = try reader.optionalNumber(ReceiptKey.images.rawValue)
        bytes = try reader.optionalNumber(ReceiptKey.bytes.rawValue)
        cancelled = try reader.number(ReceiptKey.cancelled.rawValue)
        sessions = try reader.number(ReceiptKey.sessions.rawValue)
        epoch = try reader.number(ReceiptKey.epoch.rawValue)
    }
}

/// What is stored for a user.
public struct UserStatus: Sendable, Hashable {
    /// The number of images; nil if not counted yet after the daemon's start.
    public let images: Int?
    /// The total size of these images, in bytes; nil if not counted yet.
    public let bytes: Int?
    /// The number of open sessions.
    public let sessions: Int
    /// The name of the user's origin in the daemon's configuration.
    public let origin: String?
    /// The time of the login, in seconds since 1970.
    public let loggedInAt: Int
    /// The epoch of the cache; see ``Receipt/epoch``.
    public let epoch: Int

    init(_ map: Value) throws(ThumbcacheError) {
        var reader = ReplyReader(map)
        images = try reader.optionalNumber(StatKey.images.rawValue)
        bytes = try reader.optionalNumber(StatKey.bytes.rawValue)
        sessions = try reader.number(StatKey.sessions.rawValue)
        origin = reader.optionalText(StatKey.origin.rawValue)
        loggedInAt = try reader.number(StatKey.loggedInAt.rawValue)
        epoch = try reader.number(StatKey.epoch.rawValue)
    }
}
