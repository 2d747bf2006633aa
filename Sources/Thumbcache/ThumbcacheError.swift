import ThumbcacheProtocol

/// Why a request has no result.
public enum ThumbcacheError: Error, Hashable, Sendable {
    /// The daemon said no. The message says what was wrong and what would be right; it holds no id and no token.
    case server(ServerErrorCode, message: String)
    /// Nothing could be connected to at the socket's path; `errno` says why, as connect(2) does.
    case unreachable(path: String, errno: Int32)
    /// Somebody else listens at the path, with this name if he told one.
    case notThumbcached(name: String?)
    /// What came is no reply, or not one to this request.
    case protocolViolation(String)
    /// The connection broke before the reply. Whether the daemon has done what it was asked nobody knows; every command
    /// may be asked again.
    case connectionLost
    /// The time that the request had is over. A GET that waited is cancelled in the daemon, too.
    case timeout
    /// The task was cancelled.
    case cancelled
    /// ``ThumbcacheClient/run()`` has ended.
    case notRunning
    /// What was asked cannot be: nothing was sent.
    case invalidRequest(String)
}

/// The first word of an error reply, by which programs decide.
///
/// Daemons may know more of them than this library.
public struct ServerErrorCode: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// The word, such as `NOLOGIN`.
    public let rawValue: String

    /// A code by its word.
    public init(rawValue: String) { self.rawValue = rawValue }

    private init(_ code: ErrorCode) { rawValue = code.rawValue }

    /// The word.
    public var description: String { rawValue }

    /// A bad option or value.
    public static let invalid = ServerErrorCode(.err)
    /// The user is not logged in.
    public static let noLogin = ServerErrorCode(.noLogin)
    /// The user was logged out or purged while the request waited.
    public static let cancelled = ServerErrorCode(.cancelled)
    /// The caller may not do this.
    public static let denied = ServerErrorCode(.denied)
    /// The origin did not answer in time, and nothing stale is held.
    public static let timeout = ServerErrorCode(.timeout)
    /// The origin failed, and nothing stale is held.
    public static let origin = ServerErrorCode(.origin)
    /// The origin refused the token.
    public static let unauthorized = ServerErrorCode(.unauthorized)
    /// The bytes are no image of a known kind.
    public static let badImage = ServerErrorCode(.badImage)
    /// The image is too large.
    public static let tooLarge = ServerErrorCode(.tooLarge)
    /// A limit is reached: try again.
    public static let busy = ServerErrorCode(.busy)
    /// The store has no room.
    public static let noSpace = ServerErrorCode(.noSpace)
    /// The store could not write.
    public static let ioError = ServerErrorCode(.ioErr)
    /// The daemon is stopping.
    public static let shuttingDown = ServerErrorCode(.shuttingDown)
}
