import NIOCore
import NIOHTTP1

/// What one peer, and all together, can have.
struct HTTPLimits: Sendable {
    /// At once. When all are taken, the one that has been silent longest gives way.
    var connections = 64
    /// Bytes of a head's fields together, and of its first line.
    var head = 8 << 10
    /// Fields of a head.
    var fields = 64
    /// Requests that came together and wait for the answer to the first; with more the connection ends behind them.
    var pipelined = 16
    /// For a whole head, from the connection or the last answer on. What comes bit by bit gets no more. Longer than a
    /// scraper's pause would keep connections that nobody uses; a scraper opens another one.
    var headTime = TimeAmount.seconds(30)
    /// For the daemon's answer. Prometheus waits for 10 s by default, and is told before that.
    var answerTime = TimeAmount.seconds(9)
    /// For a peer to take what it asked for.
    var writeTime = TimeAmount.seconds(10)
    /// For a peer to close, once all is said: a socket that is closed with something unread resets the connection, and
    /// the answer may be lost.
    var closeTime = TimeAmount.seconds(2)

    var decoder: NIOHTTPDecoderLimitConfiguration {
        var limits = NIOHTTPDecoderLimitConfiguration()
        (limits.maxHeaderFieldSize, limits.maxHeaderListSize, limits.maxHeaderFieldCount) = (head, head, fields)
        return limits
    }
}
