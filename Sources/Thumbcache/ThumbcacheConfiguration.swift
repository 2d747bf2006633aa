/// How a client behaves. Every value has a default that suits a desktop program.
public struct ThumbcacheConfiguration: Sendable {
    /// Connections for GETs that may wait for a download, each of which takes one while it waits; 1 at least. Two more
    /// carry the short commands and, for each subscription, its events. Default 8; the daemon gives a uid 256.
    public var maximumConnections = 8
    /// Requests that may be on their way at once on the connection for short commands; 1 at least. More wait for a
    /// reply. Default 64.
    public var maximumPipelined = 64
    /// How long a request may take in all, waiting for a connection and connecting included; nil for no limit.
    /// Default 60 s.
    public var requestTimeout: Duration? = .seconds(60)
    /// How long an attempt to connect may take, the daemon's first answer included. Default 5 s.
    public var connectTimeout: Duration = .seconds(5)
    /// The pause behind a first attempt to connect that failed. It doubles with every further failure, up to
    /// ``longestPause``; of each pause a random half may be left out. Default 20 ms.
    public var firstPause: Duration = .milliseconds(20)
    /// Default 5 s. A request that comes in a pause waits for its end.
    public var longestPause: Duration = .seconds(5)
    /// Events that a subscriber may leave unread, 1 at least. One more, and they are replaced by
    /// ``ThumbcacheEvent/gap``. Default 1,024.
    public var eventBuffer = 1_024
    /// What `CLIENT LIST` on the daemon calls the connections (`CLIENT SETINFO LIB-NAME`); nil to say nothing.
    public var libraryName: String? = "thumbcache-swift"

    /// The defaults.
    public init() {}

    var backoff: Backoff { Backoff(first: firstPause, longest: longestPause) }
}
