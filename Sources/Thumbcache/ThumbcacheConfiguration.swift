/// The settings of a client. The defaults suit a desktop program.
public struct ThumbcacheConfiguration: Sendable {
    /// The maximum number of connections for GETs that may wait for a download; at least 1. Short commands and each
    /// subscription use additional connections. Default: 8. The daemon allows 256 per account by default.
    public var maximumConnections = 8
    /// The maximum number of requests in flight on the connection for short commands; at least 1. Default: 64.
    public var maximumPipelined = 64
    /// The timeout of a request, including the wait for a connection; nil for none. Default: 60 s.
    public var requestTimeout: Duration? = .seconds(60)
    /// The timeout of a connection attempt, including HELLO. Default: 5 s.
    public var connectTimeout: Duration = .seconds(5)
    /// The pause after the first failed connection attempt. It doubles with each further failure, up to
    /// ``longestPause``, and is reduced at random by up to a half. Default: 20 ms.
    public var firstPause: Duration = .milliseconds(20)
    /// The longest pause between connection attempts. Requests wait for its end. Default: 5 s.
    public var longestPause: Duration = .seconds(5)
    /// The maximum number of unread events of a subscriber; at least 2. If it is exceeded, ``ThumbcacheEvent/gap``
    /// replaces them. Default: 1,024.
    public var eventBuffer = 1_024
    /// The library name in the daemon's `CLIENT LIST` (`CLIENT SETINFO LIB-NAME`); nil to send none.
    public var libraryName: String? = "thumbcache-swift"

    /// Creates the default settings.
    public init() {}

    var backoff: Backoff { Backoff(first: firstPause, longest: longestPause) }
}
