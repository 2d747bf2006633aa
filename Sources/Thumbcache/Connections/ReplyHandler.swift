import NIOCore
import ThumbcacheProtocol

/// Sends requests, and gives replies to those who wait for them, in the order of the requests.
final class ReplyHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let outbox = Outbox()
    /// Bytes of a request that are copied together with others'; more are sent from where they lie.
    private static let copied = 4 << 10

    /// nil when nothing that comes is believed any more.
    private var replies: NIOSingleStepByteToMessageProcessor<ReplyDecoder>?
    private var context: ChannelHandlerContext?
    private var waiting = CircularBuffer<Exchange>()
    /// The next look at the deadlines of those who wait: one timer for all, since most replies come long before.
    private var look: (due: NIODeadline, timer: Scheduled<Void>)?
    /// Replies that one read brought.
    private var answered: [(exchange: Exchange, value: Value)] = []
    private var failure = ThumbcacheError.connectionLost
    /// What comes unasked: pushes, and errors that answer a SUBSCRIBE. Called on the event loop.
    private let onPush: (@Sendable (Value) -> Void)?

    /// - Parameter longestReply: in bytes.
    init(longestReply: Int = 1 << 30, onPush: (@Sendable (Value) -> Void)? = nil) {
        replies = NIOSingleStepByteToMessageProcessor(ReplyDecoder(longestReply: longestReply))
        self.onPush = onPush
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        end()
    }

    // MARK: Requests

    /// Sends what is in the outbox, together. Whether a write fails says less than what the daemon answered before it
    /// closed: the reply, or the end of the connection, tells whoever waits.
    func sendAll() {
        let requests = outbox.takeAll()
        guard let context, context.channel.isActive else {
            for request in requests { request.exchange?.end(.failure(failure)) }
            return
        }
        var together = ByteBuffer()
        for outgoing in requests {
            if let exchange = outgoing.exchange {
                waiting.append(exchange)
                if let deadline = exchange.deadline { lookAgain(at: deadline, context.eventLoop) }
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

    // MARK: Deadlines

    private func lookAgain(at deadline: NIODeadline, _ loop: any EventLoop) {
        if let look {
            guard deadline < look.due else { return }
            look.timer.cancel()
        }
        let timer = loop.assumeIsolated().scheduleTask(deadline: deadline) { self.endLateOnes(loop) }
        look = (deadline, timer)
    }

    /// They keep their places: their replies may still come.
    private func endLateOnes(_ loop: any EventLoop) {
        look = nil
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
        if let next { lookAgain(at: next, loop) }
    }

    // MARK: Replies

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        do {
            try replies?.process(buffer: unwrapInboundIn(data)) { try take($0) }
        } catch {
            fail(error, context)
        }
    }

    private func take(_ value: Value) throws(ProtocolError) {
        if case .push = value {
            onPush?(value)
        } else if let exchange = waiting.popFirst() {
            answered.append((exchange, value))
        } else if let onPush {
            onPush(value)
        } else {
            throw ProtocolError("a reply that nobody asked for")
        }
    }

    /// Those who wait go on when all is read: so they ask again together.
    func channelReadComplete(context: ChannelHandlerContext) {
        endAnswered()
        context.fireChannelReadComplete()
    }

    private func endAnswered() {
        for (exchange, value) in answered { exchange.end(.success(value)) }
        answered.removeAll(keepingCapacity: true)
    }

    // MARK: The end

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    /// At once: behind the first wrong byte nothing can be believed.
    private func fail(_ error: any Error, _ context: ChannelHandlerContext) {
        failEverybody(for: error)
        context.close(promise: nil)
    }

    private func end() {
        look?.timer.cancel()
        look = nil
        failEverybody()
        sendAll()
    }

    private func failEverybody(for error: (any Error)? = nil) {
        if let error = error as? ProtocolError { failure = .protocolViolation(error.message) }
        replies = nil
        endAnswered()
        while let exchange = waiting.popFirst() { exchange.end(.failure(failure)) }
    }
}
