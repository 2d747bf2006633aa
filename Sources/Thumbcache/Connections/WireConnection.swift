import NIOCore
import ThumbcacheProtocol

/// A connection to a RESP server. The library's own connections have completed HELLO.
@_spi(Wire) public final class WireConnection: Sendable {
    private let channel: any Channel
    private let outbox: Outbox
    private let handler: NIOLoopBound<ReplyHandler>

    /// Wraps a channel that has a ``ReplyHandler``. Must be called on its event loop.
    init(over channel: any Channel) throws {
        let handler = try channel.pipeline.syncOperations.handler(type: ReplyHandler.self)
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        outbox = handler.outbox
    }

    /// Adds a ``ReplyHandler`` to a channel, after its other handlers such as TLS. Must be called on its event loop.
    /// - Parameter longestReply: the maximum size of a reply, in bytes.
    @_spi(Wire) public static func adopt(_ channel: any Channel, longestReply: Int) throws -> WireConnection {
        try channel.pipeline.syncOperations.addHandler(ReplyHandler(longestReply: longestReply))
        return try WireConnection(over: channel)
    }

    @_spi(Wire) public var isActive: Bool { channel.isActive }

    var whenClosed: EventLoopFuture<Void> { channel.closeFuture }

    /// Closes the connection. A closed channel is not touched, since its event loop may have ended.
    @_spi(Wire) public func close() { if channel.isActive { channel.close(promise: nil) } }

    /// Sends a request and returns its reply, which may be an error reply.
    /// - Parameters:
    ///   - closing: whether a cancelled task or a missed deadline closes the connection, which also ends the wait in the
    ///     daemon. Otherwise a late reply is dropped.
    ///   - deadline: the time after which the wait fails; nil for never.
    ///   - onEnd: called when the reply has arrived or can no longer arrive.
    @_spi(Wire) public func reply(
        to request: ThumbcacheRequest, closing: Bool, by deadline: NIODeadline? = nil,
        onEnd: @escaping @Sendable () -> Void = {}
    ) async throws(ThumbcacheError) -> Value {
        let exchange = Exchange(by: deadline, onEnd: onEnd)
        if Task.isCancelled {
            exchange.end(.failure(.cancelled))
            throw .cancelled
        }
        send([OutgoingRequest(request: request, exchange: exchange)])
        let outcome = await exchange.reply.wait()
        switch outcome {
        case .failure(.cancelled), .failure(.timeout): if closing { close() }
        default: break
        }
        return try outcome.get()
    }

    /// Sends requests in one write and returns their replies, which may be error replies. Cancelling the task closes
    /// the connection.
    @_spi(Wire) public func replies(to requests: [ThumbcacheRequest]) async throws(ThumbcacheError) -> [Value] {
        if Task.isCancelled { throw .cancelled }
        let exchanges = requests.map { _ in Exchange(by: nil, onEnd: {}) }
        send(zip(requests, exchanges).map { OutgoingRequest(request: $0, exchange: $1) })
        var replies: [Value] = []
        for exchange in exchanges {
            let outcome = await exchange.reply.wait()
            if case .failure(.cancelled) = outcome { close() }
            replies.append(try outcome.get())
        }
        return replies
    }

    func send(_ request: ThumbcacheRequest) { send([OutgoingRequest(request: request, exchange: nil)]) }

    private func send(_ requests: [OutgoingRequest]) {
        guard outbox.append(requests) else { return }
        channel.eventLoop.execute { [handler] in handler.value.sendAll() }
    }
}
