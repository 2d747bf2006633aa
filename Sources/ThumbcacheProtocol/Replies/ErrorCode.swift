/// The first word of an error reply, for decisions by clients. The rest is for people.
public enum ErrorCode: String, Sendable, CaseIterable {
    /// Unknown command, wrong number of arguments, bad option or value.
    case err = "ERR"
    /// HELLO with a version other than 2 or 3.
    case noProto = "NOPROTO"
    /// The user is not logged in.
    case noLogin = "NOLOGIN"
    /// The user was logged out or purged while the request waited.
    case cancelled = "CANCELLED"
    /// The caller has no permission for this.
    case denied = "DENIED"
    /// The origin did not respond in time, and there is no stale image.
    case timeout = "TIMEOUT"
    /// The origin failed, and there is no stale image.
    case origin = "ORIGIN"
    /// The origin refused the token, and refreshing it did not help.
    case unauthorized = "UNAUTHORIZED"
    /// The bytes are not an image of a supported format, or its dimensions exceed the limit.
    case badImage = "BADIMAGE"
    /// The image, or the frame, exceeds the limit.
    case tooLarge = "TOOLARGE"
    /// A limit on concurrent work or memory is reached; retry later.
    case busy = "BUSY"
    /// The store is full.
    case noSpace = "NOSPACE"
    /// The store failed to write, or could not make a change durable.
    case ioErr = "IOERR"
    /// The daemon is stopping.
    case shuttingDown = "SHUTTINGDOWN"
}

/// The error of a command, sent as `-CODE message`.
public struct CommandError: Error, Sendable, Equatable {
    public let code: ErrorCode
    /// What was wrong and what is valid. Contains no id of a user or profile, and no token.
    public let message: String

    public init(_ code: ErrorCode, _ message: String) {
        self.code = code
        self.message = message
    }
}
