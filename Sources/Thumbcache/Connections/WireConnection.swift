import NIOCore
import ThumbcacheProtocol

/// A connection to a server that speaks RESP; of this library, to the daemon, and it has said HELLO.
@_spi(Wire) public final class WireConnection: Sendable {
    private let channel: any Channel
    private let outbox: Outbox
    private let handler: NIOLoopBound<ReplyHandler>

    /// A connection over a channel that has a ``ReplyHandler``. On its event loop.
    init(over channel: any Channel) throws {
        let handler = try channel.pipeline.syncOperations.handler(type: ReplyHandler.self)
        self.channel = channel
        self.handler = NIOLoopBound(handler, eventLoop: channel.eventLoop)
        outbox = handler.outbox
    }

    /// Takes over a channel to any server, behind whatever handlers it has, such as TLS. On its event loop.
    /// - Parameter longestReply: in bytes.
    @_spi(Wire) public static func take(_ channel: any Channel, longestReply: Int) throws -> WireConnection {
        try channel.pipeline.syncOperations.addHandler(ReplyHandler(longestReply: longestReply))
        return try WireConnection(over: channel)
    }

    @_spi(Wire) public var isActive: Bool { channel.isActive }

    /// Succeeds when the connection is closed, by either side.
    var whenClosed: EventLoopFuture<Void> { channel.closeFuture }

    /// Nothing to be done on a closed one, whose event loop may have ended.
    @_spi(Wire) public func close() { if channel.isActive { channel.close(promise: nil) } }

    /// The reply to a request, an error reply included.
    /// - Parameters:
    ///   - closing: whether a cancelled task closes the connection. The daemon ends a wait with its connection, and
    ///     with nothing else; otherwise a reply that comes too late is dropped.
    ///   - deadline: when the wait is over, without an effect on the connection; nil for never.
    ///   - onEnd: called when the reply is there or cannot come any more, wanted or not.
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
        if closing, case .failure(.cancelled) = outcome { close() }
        return try outcome.get()
    }

    /// The replies to requests that are sent together, in one write; error replies included. A cancelled task closes
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

    /// A request without a reply of its own.
    func send(_ request: ThumbcacheRequest) { send([OutgoingRequest(request: request, exchange: nil)]) }

    private func send(_ requests: [OutgoingRequest]) {
        guard outbox.put(requests) else { return }
        channel.eventLoop.execute { [handler] in handler.value.sendAll() }
    }
}
