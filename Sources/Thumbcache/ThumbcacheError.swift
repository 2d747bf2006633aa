import ThumbcacheProtocol

/// The error of a request.
public enum ThumbcacheError: Error, Hashable, Sendable {
    /// The daemon returned an error. The message states what was wrong and what would be valid; it contains no id and
    /// no token.
    case server(ServerErrorCode, message: String)
    /// Connecting to the socket failed with this `errno`; see connect(2).
    case unreachable(path: String, errno: Int32)
    /// The server at the path is not thumbcached. `name` is the server's name in its reply to HELLO.
    case notThumbcached(name: String?)
    /// Malformed or unexpected reply.
    case protocolViolation(String)
    /// The connection was lost before the reply. The command may or may not have taken effect; retrying it is safe.
    case connectionLost
    /// The request timed out. A waiting GET is also cancelled in the daemon.
    case timeout
    /// The task was cancelled.
    case cancelled
    /// ``ThumbcacheClient/run()`` has ended.
    case notRunning
    /// The arguments are invalid; nothing was sent.
    case invalidRequest(String)
}

/// The first word of an error reply, for decisions by programs.
///
/// A newer daemon may send codes that this library does not define.
public struct ServerErrorCode: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// The word, such as `NOLOGIN`.
    public let rawValue: String

    /// Creates a code from its word.
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
    /// The caller has no permission for this.
    public static let denied = ServerErrorCode(.denied)
    /// The origin did not respond in time, and no stale image is cached.
    public static let timeout = ServerErrorCode(.timeout)
    /// The origin failed, and no stale image is cached.
    public static let origin = ServerErrorCode(.origin)
    /// The origin refused the token.
    public static let unauthorized = ServerErrorCode(.unauthorized)
    /// The bytes are not an image of a supported format.
    public static let badImage = ServerErrorCode(.badImage)
    /// The image is too large.
    public static let tooLarge = ServerErrorCode(.tooLarge)
    /// A limit is reached; retry later.
    public static let busy = ServerErrorCode(.busy)
    /// The store is full.
    public static let noSpace = ServerErrorCode(.noSpace)
    /// The store failed to write.
    public static let ioError = ServerErrorCode(.ioErr)
    /// The daemon is stopping.
    public static let shuttingDown = ServerErrorCode(.shuttingDown)
}
