import ThumbcacheProtocol

/// What a log-out or a purge did. With the receipt its promise holds: nothing that was held or was being downloaded is
/// ever served again, not after a power cut either.
public struct Receipt: Sendable, Hashable {
    /// Caches that were ended or emptied.
    public let users: Int
    /// Images that were held; nil where they had not been counted yet since the daemon's start.
    public let images: Int?
    /// Their bytes.
    public let bytes: Int?
    /// Downloads that were stopped.
    public let cancelled: Int
    /// Sessions that remain.
    public let sessions: Int
    /// Grows with every log-in, log-out and purge of the uid.
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

/// What is held of a user.
public struct UserStatus: Sendable, Hashable {
    /// Images; nil where they have not been counted yet since the daemon's start.
    public let images: Int?
    /// Their bytes.
    public let bytes: Int?
    /// Sessions that are open.
    public let sessions: Int
    /// The origin's name in the daemon's configuration.
    public let origin: String?
    /// Seconds since 1970.
    public let loggedInAt: Int
    /// Of the cache.
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
