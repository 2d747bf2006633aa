import NIOConcurrencyHelpers
import NIOCore
import RESP

/// A request on its way: its bytes, and who waits for the reply.
struct OutgoingRequest: Sendable {
    let frame: ByteBuffer
    /// nil for SUBSCRIBE, which is confirmed by pushes.
    let exchange: Exchange?
}

/// The wait for one reply. It ends when the reply is there or cannot come any more, also where nobody wants it now.
final class Exchange: Sendable {
    let reply = OneShot<Value>()
    /// When nobody waits any more; nil for never.
    let deadline: NIODeadline?
    private let onEnd: NIOLockedValueBox<(@Sendable () -> Void)?>

    /// - Parameter onEnd: called once.
    init(by deadline: NIODeadline?, onEnd: @escaping @Sendable () -> Void) {
        self.deadline = deadline.map { min($0, .distantFuture) }
        self.onEnd = NIOLockedValueBox(onEnd)
    }

    func end(_ outcome: Result<Value, ThumbcacheError>) {
        let onEnd = onEnd.withLockedValue { onEnd in
            defer { onEnd = nil }
            return onEnd
        }
        // First: whoever has the reply may begin another request at once.
        onEnd?()
        reply.resolve(outcome)
    }
}

/// Gives replies to those who wait for them, in the order of the requests.
final class ReplyHandler: ChannelDuplexHandler {
    typealias InboundIn = Value
    typealias OutboundIn = OutgoingRequest
    typealias OutboundOut = ByteBuffer

    private var waiting = CircularBuffer<Exchange>()
    /// The next look at the deadlines of those who wait: one timer for all, since most replies come long before.
    private var look: (due: NIODeadline, timer: Scheduled<Void>)?
    private var isFlushing = false
    /// Replies that one read brought.
    private var answered: [(exchange: Exchange, value: Value)] = []
    private var failure = ThumbcacheError.connectionLost
    /// What comes unasked: pushes, and errors that answer a SUBSCRIBE. Called on the event loop.
    private let onPush: (@Sendable (Value) -> Void)?

    init(onPush: (@Sendable (Value) -> Void)?) { self.onPush = onPush }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let request = unwrapOutboundIn(data)
        if let exchange = request.exchange {
            waiting.append(exchange)
            if let deadline = exchange.deadline { lookAgain(at: deadline, context.eventLoop) }
        }
        // Whether a write fails says less than what the daemon answered before it closed: the reply, or the end of
        // the connection, tells whoever waits.
        context.write(wrapOutboundOut(request.frame), promise: promise)
    }

    /// What several tasks ask in one turn of the event loop goes out in one write.
    func flush(context: ChannelHandlerContext) {
        guard !isFlushing else { return }
        isFlushing = true
        context.eventLoop.assumeIsolated().execute {
            self.isFlushing = false
            context.flush()
        }
    }

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

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let value = unwrapInboundIn(data)
        if case .push = value {
            onPush?(value)
        } else if let exchange = waiting.popFirst() {
            answered.append((exchange, value))
        } else if let onPush {
            onPush(value)
        } else {
            fail(.protocolViolation("a reply that nobody asked for"), context)
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

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? ProtocolError {
            fail(.protocolViolation(error.message), context)
        } else {
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        look?.timer.cancel()
        failEverybody()
        context.fireChannelInactive()
    }

    private func fail(_ error: ThumbcacheError, _ context: ChannelHandlerContext) {
        failure = error
        // At once: behind the first wrong byte nothing can be believed.
        failEverybody()
        context.close(promise: nil)
    }

    private func failEverybody() {
        endAnswered()
        while let exchange = waiting.popFirst() { exchange.end(.failure(failure)) }
    }
}
