import NIOCore
import ThumbcacheProtocol

/// Tells a peer that is not let in why, then closes.
///
/// Not at once: a client that writes its first request before it reads would find the connection broken, and never see
/// the reason. So the close waits for the first bytes from the peer, for a moment at most.
final class Refusal: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// How long a refused peer may keep a descriptor busy.
    private static var patience: TimeAmount { .milliseconds(100) }

    private let error: CommandError
    private let mayLinger: Bool
    private var deadline: Scheduled<Void>?

    /// - Parameter mayLinger: false closes at once, when there are too many already that wait.
    init(_ error: CommandError, mayLinger: Bool) {
        self.error = error
        self.mayLinger = mayLinger
    }

    func channelActive(context: ChannelHandlerContext) {
        context.writeAndFlush(wrapOutboundOut(.error(error)), promise: nil)
        guard mayLinger else { return context.close(promise: nil) }
        let channel = context.channel
        deadline = context.eventLoop.scheduleTask(in: Self.patience) { channel.close(promise: nil) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.close(promise: nil)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent { context.close(promise: nil) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        deadline?.cancel()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // The peer is gone: there is nobody left to tell.
        context.close(promise: nil)
    }
}
