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
    private let onEnd: NIOLockedValueBox<(@Sendable () -> Void)?>

    /// - Parameter onEnd: called once.
    init(onEnd: @escaping @Sendable () -> Void) { self.onEnd = NIOLockedValueBox(onEnd) }

    func end(_ outcome: Result<Value, ThumbcacheError>) {
        reply.resolve(outcome)
        let onEnd = onEnd.withLockedValue { onEnd in
            defer { onEnd = nil }
            return onEnd
        }
        onEnd?()
    }
}

/// Gives replies to those who wait for them, in the order of the requests.
final class ReplyHandler: ChannelDuplexHandler {
    typealias InboundIn = Value
    typealias OutboundIn = OutgoingRequest
    typealias OutboundOut = ByteBuffer

    private var waiting = CircularBuffer<Exchange>()
    private var failure = ThumbcacheError.connectionLost
    /// What comes unasked: pushes, and errors that answer a SUBSCRIBE. Called on the event loop.
    private let onPush: (@Sendable (Value) -> Void)?

    init(onPush: (@Sendable (Value) -> Void)?) { self.onPush = onPush }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let request = unwrapOutboundIn(data)
        if let exchange = request.exchange { waiting.append(exchange) }
        // Whether a write fails says less than what the daemon answered before it closed: the reply, or the end of
        // the connection, tells whoever waits.
        context.write(wrapOutboundOut(request.frame), promise: promise)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let value = unwrapInboundIn(data)
        if case .push = value {
            onPush?(value)
        } else if let exchange = waiting.popFirst() {
            exchange.end(.success(value))
        } else if let onPush {
            onPush(value)
        } else {
            fail(.protocolViolation("a reply that nobody asked for"), context)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? ProtocolError {
            fail(.protocolViolation(error.message), context)
        } else {
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
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
        while let exchange = waiting.popFirst() { exchange.end(.failure(failure)) }
    }
}
