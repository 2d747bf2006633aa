import NIOCore
import RESP

/// A connection to a server that speaks RESP; of this library, to the daemon, and it has said HELLO.
package final class WireConnection: Sendable {
    private let channel: any Channel

    init(_ channel: any Channel) { self.channel = channel }

    /// Takes over a channel to any server, behind whatever handlers it has, such as TLS. On its event loop.
    /// - Parameter longestReply: in bytes.
    package static func take(_ channel: any Channel, longestReply: Int) throws -> WireConnection {
        try channel.pipeline.syncOperations.addHandlers(
            ByteToMessageHandler(ReplyDecoder(longestReply: longestReply)), ReplyHandler(onPush: nil))
        return WireConnection(channel)
    }

    package var isActive: Bool { channel.isActive }

    /// Succeeds when the connection is closed, by either side.
    var whenClosed: EventLoopFuture<Void> { channel.closeFuture }

    /// Nothing to be done on a closed one, whose event loop may have ended.
    package func close() { if channel.isActive { channel.close(promise: nil) } }

    /// The reply to a request, an error reply included.
    /// - Parameters:
    ///   - closing: whether a cancelled task closes the connection. The daemon ends a wait with its connection, and
    ///     with nothing else; otherwise a reply that comes too late is dropped.
    ///   - deadline: when the wait is over, without an effect on the connection; nil for never.
    ///   - onEnd: called when the reply is there or cannot come any more, wanted or not.
    package func reply(
        to words: [ByteBuffer], closing: Bool, by deadline: NIODeadline? = nil,
        onEnd: @escaping @Sendable () -> Void = {}
    ) async throws(ThumbcacheError) -> Value {
        let exchange = Exchange(by: deadline, onEnd: onEnd)
        if Task.isCancelled {
            exchange.end(.failure(.cancelled))
            throw .cancelled
        }
        write(words, exchange, flushing: true)
        let outcome = await exchange.reply.wait()
        if closing, case .failure(.cancelled) = outcome { close() }
        return try outcome.get()
    }

    /// The replies to requests that are sent together, in one write; error replies included. A cancelled task closes
    /// the connection.
    package func replies(to requests: [[ByteBuffer]]) async throws(ThumbcacheError) -> [Value] {
        if Task.isCancelled { throw .cancelled }
        let exchanges = requests.enumerated().map { index, words in
            let exchange = Exchange(by: nil, onEnd: {})
            write(words, exchange, flushing: index == requests.count - 1)
            return exchange
        }
        var replies: [Value] = []
        for exchange in exchanges {
            let outcome = await exchange.reply.wait()
            if case .failure(.cancelled) = outcome { close() }
            replies.append(try outcome.get())
        }
        return replies
    }

    private func write(_ words: [ByteBuffer], _ exchange: Exchange, flushing: Bool) {
        let request = OutgoingRequest(frame: Self.frame(words), exchange: exchange)
        let written = flushing ? channel.writeAndFlush(request) : channel.write(request)
        written.whenFailure { _ in
            // A request that met a closed channel never reached the handler that would fail it. One that was cut off
            // in the middle may still be answered: the end of the connection decides.
            self.whenClosed.whenComplete { _ in exchange.end(.failure(.connectionLost)) }
        }
    }

    /// A request without a reply of its own.
    func send(_ words: [ByteBuffer]) {
        channel.writeAndFlush(OutgoingRequest(frame: Self.frame(words), exchange: nil), promise: nil)
    }

    private static func frame(_ words: [ByteBuffer]) -> ByteBuffer {
        var frame = ByteBuffer()
        frame.writeRequest(words)
        return frame
    }
}
