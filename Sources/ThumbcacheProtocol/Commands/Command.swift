import NIOCore

/// What a client asks for: a request whose every argument has been checked.
///
/// Ids and images share the storage of the request; what is kept longer has to be copied. A `size` is in pixels, 1 to
/// 4096, and 0 where none is named; a `wait` in milliseconds, 0 to 600000.
public enum Command: Sendable, Equatable {
    case get(GetCommand)
    case mget(MGetCommand)
    case put(PutCommand)
    case warm(WarmCommand)
    case purge(PurgeCommand)
    case stat(StatCommand)
    case login(LoginCommand)
    case logout(LogoutCommand)
    case users
    /// At least one.
    case subscribe([UserTarget])
    /// None: from all there are.
    case unsubscribe([UserTarget])
    case hello(HelloCommand)
    case ping(ByteBuffer?)
    case echo(ByteBuffer)
    case quit
    case reset
    /// Of database 0: there is no other.
    case select
    case client(ClientCommand)
    case command(CommandQuery)
    /// INFO, with the sections named, in lower case.
    case info([String])
    case metrics

    /// Whether a connection that is subscribed takes it in version 2 of the protocol, as in Redis.
    public var isTakenBySubscribers: Bool {
        switch self {
        case .subscribe, .unsubscribe, .ping, .quit, .reset: true
        default: false
        }
    }
}

/// `GET user profile [SIZE px [FIT fit] [FORMAT format]] [URL u] [WAIT ms] [CACHED|NOWAIT] [IFNOT digest] [META]`
public struct GetCommand: SizedCommand, Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer
    public var sizing = Sizing()
    /// Printable ASCII; what it points to is not yet checked.
    public var url: String?
    public var wait: Int64?
    public var download = DownloadChoice.awaited
    /// 64 lower-case hexadecimal digits.
    public var ifNot: ByteBuffer?
    public var meta = false

    /// Whether any image of the image key will do, and nothing is wanted but the image.
    public var isPlain: Bool { url == nil && ifNot == nil && !meta }
}

/// What a request for an image may ask of the network.
public enum DownloadChoice: Sendable, Equatable {
    case awaited
    /// `NOWAIT`: what is held is the answer, and what is missing or stale is downloaded behind it.
    case behind
    /// `CACHED`
    case never
}

/// `MGET user count profile [profile ...] [SIZE px …] [WAIT ms] [CACHED|NOWAIT]`
public struct MGetCommand: SizedCommand, Sendable, Equatable {
    public var user: ByteBuffer
    /// At least one; the same one may stand there twice.
    public var profiles: [ByteBuffer]
    public var sizing = Sizing()
    public var wait: Int64?
    public var download = DownloadChoice.awaited
}

/// `PUT user profile image [SIZE px] [TTL seconds]`
public struct PutCommand: Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer
    /// Within the limit; whether it is an image is not yet checked. May be empty.
    public var image: ByteBuffer
    public var size: UInt16 = 0
    /// Seconds, at least 1; nil: fresh until purged, evicted or put again.
    public var ttl: Int64?
}

/// `WARM user count profile [profile ...] [SIZE px …]`
public struct WarmCommand: SizedCommand, Sendable, Equatable {
    public var user: ByteBuffer
    /// At least one; the same one may stand there twice.
    public var profiles: [ByteBuffer]
    public var sizing = Sizing()
}

/// Whom a purge, a log-out or a subscription is for.
public enum UserTarget: Sendable, Equatable {
    /// `*`: every user of the uid.
    case all
    case user(ByteBuffer)
}

/// Of which accounts of the machine the users are that a purge or a log-out is for.
public enum UIDTarget: Sendable, Equatable {
    case caller
    /// For admins, another than their own.
    case uid(UInt32)
    /// `UID *`, for admins: every uid that has somebody logged in.
    case all
}

/// `PURGE user|* [count profile ...] [UID n|*]`
public struct PurgeCommand: Sendable, Equatable {
    public var target: UserTarget
    /// Empty: all that the user has.
    public var profiles: [ByteBuffer] = []
    public var uid = UIDTarget.caller
}

/// `STAT user [profile [SIZE px …]]`
public struct StatCommand: SizedCommand, Sendable, Equatable {
    public var user: ByteBuffer
    public var profile: ByteBuffer?
    public var sizing = Sizing()
}

/// `LOGIN user [SESSION id] [HOLD] [ORIGIN name] [TOKEN t] [REFRESH t]`
public struct LoginCommand: Sendable, Equatable {
    public var user: ByteBuffer
    /// nil: the session `default`.
    public var session: ByteBuffer?
    /// The session ends when its connection does.
    public var hold = false
    public var origin: String?
    /// Characters of RFC 6750's b64token.
    public var token: ByteBuffer?
    /// Printable ASCII: 1*VSCHAR of RFC 6749, appendix A.17.
    public var refresh: ByteBuffer?
}

/// `LOGOUT user|* [SESSION id] [UID n|*]`
public struct LogoutCommand: Sendable, Equatable {
    public var target: UserTarget
    /// nil: every session.
    public var session: ByteBuffer?
    public var uid = UIDTarget.caller
}

/// `HELLO [2|3 [AUTH name password] [SETNAME n]]`
public struct HelloCommand: Sendable, Equatable {
    /// 2 or 3; nil: as it is.
    public var version: Int?
    public var hasAuth = false
    public var name: ByteBuffer?
}

/// `CLIENT ID|LIST|GETNAME|SETNAME n|SETINFO k v|CAPA name [name ...]`
public enum ClientCommand: Sendable, Equatable {
    case id
    case list
    case getName
    /// Printable ASCII without spaces; empty takes the name away.
    case setName(ByteBuffer)
    /// `key` in lower case: `lib-name` or `lib-ver`.
    case setInfo(key: String, value: ByteBuffer)
    /// What the client can do, in words of Valkey's. All of it is about what there is not here, such as redirections.
    case capabilities
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND INFO|DOCS [name ...]`
public enum CommandQuery: Sendable, Equatable {
    case all
    case count
    /// Names as they were sent; none: every command.
    case info([String])
    /// Names as they were sent; none: every command.
    case docs([String])
}
