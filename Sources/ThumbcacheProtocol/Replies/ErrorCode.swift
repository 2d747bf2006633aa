/// The first word of an error reply. Clients decide by it; the words behind it are for people.
public enum ErrorCode: String, Sendable, CaseIterable {
    /// Unknown command, wrong number of arguments, bad option or value.
    case err = "ERR"
    /// HELLO with a version other than 2 or 3.
    case noProto = "NOPROTO"
    /// The user is not logged in.
    case noLogin = "NOLOGIN"
    /// The user was logged out or purged while the request waited.
    case cancelled = "CANCELLED"
    /// The caller may not do this.
    case denied = "DENIED"
    /// The origin did not answer in time, and there is no stale image.
    case timeout = "TIMEOUT"
    /// The origin failed, and there is no stale image.
    case origin = "ORIGIN"
    /// The origin refused the token, and refreshing it did not help.
    case unauthorized = "UNAUTHORIZED"
    /// The bytes are no image of a known kind, or its dimensions exceed the limit.
    case badImage = "BADIMAGE"
    /// The image, or the frame, exceeds the limit.
    case tooLarge = "TOOLARGE"
    /// A limit on what may go on at once is reached: try again.
    case busy = "BUSY"
    /// The store has no room.
    case noSpace = "NOSPACE"
    /// The store could not write, or could not make a purge durable.
    case ioErr = "IOERR"
    /// The daemon is stopping.
    case shuttingDown = "SHUTTINGDOWN"
}

/// Why a command is not done: what a client reads as `-CODE message`.
public struct CommandError: Error, Sendable, Equatable {
    public let code: ErrorCode
    /// What was wrong and what would be right. Never an id of a user or a profile, never a token.
    public let message: String

    public init(_ code: ErrorCode, _ message: String) {
        self.code = code
        self.message = message
    }
}
