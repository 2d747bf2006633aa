import ImageOptions
import NIOCore

/// A request whose arguments have been validated.
///
/// Ids and images share the storage of the request and must be copied to outlive it. `CommandName` declares the syntax,
/// ``CommandLimits`` the units and ranges.
public enum Command: Sendable, Equatable {
    case get(GetCommand)
    case mget(MGetCommand)
    case put(PutCommand)
    case warm(WarmCommand)
    case purge(PurgeCommand)
    case stat(StatCommand)
    case explain(ExplainCommand)
    case login(LoginCommand)
    case logout(LogoutCommand)
    case users
    /// At least one target.
    case subscribe([UserTarget])
    /// Empty: all subscriptions.
    case unsubscribe([UserTarget])
    case hello(HelloCommand)
    case ping(ByteBuffer?)
    case echo(ByteBuffer)
    case quit
    case reset
    /// Database 0; others are rejected.
    case select
    case client(ClientCommand)
    case command(CommandQuery)
    /// The sections in lower case; empty for all.
    case info([String])
    case metrics

    /// Whether the command is allowed on a subscribed connection in version 2 of the protocol, as in Redis.
    public var isAllowedWhileSubscribed: Bool {
        switch self {
        case .subscribe, .unsubscribe, .ping, .quit, .reset: true
        default: false
        }
    }
}

public struct GetCommand: Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer
    public var size: ImageSize?
    /// Printable ASCII, not yet checked against the origin's rules.
    public var url: String?
    public var wait: Int64?
    public var download = DownloadChoice.awaited
    /// A digest of 64 lower-case hexadecimal digits.
    public var ifNot: ByteBuffer?
    public var meta = false

    /// Whether the request has none of URL, IFNOT and META.
    public var isPlain: Bool { url == nil && ifNot == nil && !meta }
}

/// Whether a request may download an image.
public enum DownloadChoice: Sendable, Equatable {
    /// Downloads a missing or stale image and waits for it.
    case awaited
    /// `NOWAIT`: returns the cached image; a missing or stale image is downloaded in the background.
    case inBackground
    /// `CACHED`: does not download.
    case never
}

public struct MGetCommand: Sendable, Equatable {
    public var user: ByteBuffer
    /// At least one; duplicates are allowed.
    public var profiles: [ByteBuffer]
    public var size: ImageSize?
    public var wait: Int64?
    public var download = DownloadChoice.awaited
}

public struct PutCommand: Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer
    /// Within the size limit; the format is not yet checked. May be empty.
    public var image: ByteBuffer
    /// With the default fit and format.
    public var size: ImageSize?
    /// In seconds, at least 1; nil: fresh until purged, evicted or replaced.
    public var ttl: Int64?
}

public struct WarmCommand: Sendable, Equatable {
    public var user: ByteBuffer
    public var profiles: [ByteBuffer]
    public var size: ImageSize?
}

/// The users that a purge, logout or subscription applies to.
public enum UserTarget: Sendable, Equatable {
    /// `*`: all users of the uid.
    case all
    case user(ByteBuffer)
}

/// The uids whose users a purge or logout applies to.
public enum UIDTarget: Sendable, Equatable {
    case caller
    /// Another uid; admins only.
    case uid(UInt32)
    /// `UID *`: all uids with logged-in users; admins only.
    case all
}

public struct PurgeCommand: Sendable, Equatable {
    public var target: UserTarget
    /// Empty: all profiles.
    public var profiles: [ByteBuffer] = []
    public var uid = UIDTarget.caller
}

public struct StatCommand: Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer?
    public var size: ImageSize?
}

public struct ExplainCommand: Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer
    public var size: ImageSize?
}

public struct LoginCommand: Sendable, Equatable {
    public var user: ByteBuffer
    /// nil for the session `default`.
    public var session: ByteBuffer?
    /// Whether the session ends with its connection.
    public var hold = false
    public var origin: String?
    /// Characters of RFC 6750's b64token.
    public var token: ByteBuffer?
    /// Printable ASCII: 1*VSCHAR of RFC 6749, appendix A.17.
    public var refresh: ByteBuffer?
}

public struct LogoutCommand: Sendable, Equatable {
    public var target: UserTarget
    /// nil for all sessions.
    public var session: ByteBuffer?
    public var uid = UIDTarget.caller
}

public struct HelloCommand: Sendable, Equatable {
    /// 2 or 3; nil keeps the current version.
    public var version: Int?
    public var hasAuth = false
    public var name: ByteBuffer?
}

public enum ClientCommand: Sendable, Equatable {
    case id
    case list
    case getName
    /// Printable ASCII without spaces; empty removes the name.
    case setName(ByteBuffer)
    /// `key` in lower case: `lib-name` or `lib-ver`.
    case setInfo(key: String, value: ByteBuffer)
    /// Capabilities as in Valkey, such as redirections. None of them applies to this server.
    case capabilities
}

public enum CommandQuery: Sendable, Equatable {
    case all
    case count
    /// The names as sent; empty for all commands.
    case info([String])
    /// The names as sent; empty for all commands.
    case docs([String])
}
