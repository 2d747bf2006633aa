import NIOCore
import NIOHTTP1

/// Bounds of the HTTP server: per connection, and in total.
struct HTTPLimits: Sendable {
    /// Concurrent connections. A new one beyond them evicts the connection that has been idle longest.
    var connections = 64
    /// Bytes of all header fields together, and of the request line.
    var head = 8 << 10
    /// Header fields of a request.
    var fields = 64
    /// Pipelined requests queued while one is processed. With more, the connection closes after the queued ones.
    var pipelined = 16
    /// Time to receive a complete request head, from the accept or the previous response on. Partial data does not
    /// extend it, so it also is the limit for idle connections.
    var headTime = TimeAmount.seconds(30)
    /// Time to produce a response. Less than Prometheus's default timeout of 10 s, so that it gets `thumbcached_up 0`.
    var responseTime = TimeAmount.seconds(9)
    /// Time for the peer to read a response.
    var writeTime = TimeAmount.seconds(10)
    /// Time for the peer to close after the last response. Closing a socket with unread input resets the connection,
    /// and the peer could lose the response.
    var closeTime = TimeAmount.seconds(2)

    /// A handler that parses requests. The parser's own limits do not count blanks before a value, nor input that follows
    /// a request to upgrade; the limit of the buffer does.
    func makeDecoder() -> ByteToMessageHandler<HTTPRequestDecoder> {
        var limits = NIOHTTPDecoderLimitConfiguration()
        (limits.maxHeaderFieldSize, limits.maxHeaderListSize, limits.maxHeaderFieldCount) = (head, head, fields)
        return ByteToMessageHandler(
            HTTPRequestDecoder(leftOverBytesStrategy: .dropBytes, limitConfiguration: limits),
            maximumBufferSize: 2 * head)
    }
}
