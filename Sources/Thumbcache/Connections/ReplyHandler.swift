import NIOCore
import ThumbcacheProtocol

/// Sends requests, and delivers replies in the order of the requests.
final class ReplyHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let outbox = Outbox()
    /// Requests up to this size in bytes are copied into one buffer; larger ones are sent without a copy.
    private static let copied = 4 << 10

    /// nil after a protocol error.
    private var replies: ReplyDecoder?
    private var context: ChannelHandlerContext?
    private var waiting = CircularBuffer<Exchange>()
    /// The timer of the earliest deadline. One timer serves all exchanges, since most replies arrive long before.
    private var timeout: (due: NIODeadline, timer: Scheduled<Void>)?
    /// Replies that the current read has delivered.
    private var answered: [(exchange: Exchange, value: Value)] = []
    private var failure = ThumbcacheError.connectionLost
    /// Receives push messages and error replies to SUBSCRIBE. Called on the event loop.
    private let onPush: (@Sendable (Value) -> Void)?

    /// - Parameter longestReply: in bytes.
    init(longestReply: Int = 1 << 30, onPush: (@Sendable (Value) -> Void)? = nil) {
        replies = ReplyDecoder(longestReply: longestReply)
        self.onPush = onPush
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        end()
    }

    /// Sends all requests of the outbox in one write. Write errors are ignored: the exchanges end by the reply or with
    /// the connection.
    func sendAll() {
        let requests = outbox.removeAll()
        guard let context, context.channel.isActive else {
            for request in requests { request.exchange?.end(.failure(failure)) }
            return
        }
        var together = ByteBuffer()
        for outgoing in requests {
            if let exchange = outgoing.exchange {
                waiting.append(exchange)
                if let deadline = exchange.deadline { scheduleTimeout(at: deadline, context.eventLoop) }
            }
            together.writeArrayHeader(count: outgoing.request.count)
            if outgoing.request.body.readableBytes <= Self.copied {
                together.writeImmutableBuffer(outgoing.request.body)
            } else {
                context.write(wrapOutboundOut(together), promise: nil)
                together = ByteBuffer()
                context.write(wrapOutboundOut(outgoing.request.body), promise: nil)
            }
        }
        if together.readableBytes > 0 { context.write(wrapOutboundOut(together), promise: nil) }
        context.flush()
    }

    private func scheduleTimeout(at deadline: NIODeadline, _ loop: any EventLoop) {
        if let timeout {
            guard deadline < timeout.due else { return }
            timeout.timer.cancel()
        }
        let timer = loop.assumeIsolated().scheduleTask(deadline: deadline) { self.failLateExchanges(loop) }
        timeout = (deadline, timer)
    }

    /// Resolves late exchanges. They keep their position, since their replies may still arrive.
    private func failLateExchanges(_ loop: any EventLoop) {
        timeout = nil
        let now = loop.now
        var next: NIODeadline?
        for exchange in waiting {
            guard let deadline = exchange.deadline, !exchange.reply.isResolved else { continue }
            if deadline <= now {
                exchange.reply.resolve(.failure(.timeout))
            } else {
                next = min(next ?? deadline, deadline)
            }
        }
        if let next { scheduleTimeout(at: next, loop) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        replies?.append(unwrapInboundIn(data))
        do throws(ProtocolError) {
            while let value = try replies?.next() { try deliver(value) }
        } catch {
            fail(error, context)
        }
    }

    private func deliver(_ value: Value) throws(ProtocolError) {
        if case .push = value {
            onPush?(value)
        } else if let exchange = waiting.popFirst() {
            answered.append((exchange, value))
        } else if let onPush {
            onPush(value)
        } else {
            throw ProtocolError("a reply without a request")
        }
    }

    /// Tasks resume after the whole read, so that their next requests are sent together.
    func channelReadComplete(context: ChannelHandlerContext) {
        endAnswered()
        context.fireChannelReadComplete()
    }

    private func endAnswered() {
        for (exchange, value) in answered { exchange.end(.success(value)) }
        answered.removeAll(keepingCapacity: true)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    /// Ends immediately: after a protocol error, message boundaries are unknown.
    private func fail(_ error: ProtocolError, _ context: ChannelHandlerContext) {
        failAll(for: error)
        context.close(promise: nil)
    }

    private func end() {
        timeout?.timer.cancel()
        timeout = nil
        failAll()
        sendAll()
    }

    private func failAll(for error: ProtocolError? = nil) {
        if let error { failure = .protocolViolation(error.message) }
        replies = nil
        endAnswered()
        while let exchange = waiting.popFirst() { exchange.end(.failure(failure)) }
    }
}
