import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes

/// Limits a connection to one request, with a timeout for each phase.
///
/// Placed between the HTTP decoder and the responder. Discards input after the request.
final class ConnectionGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private enum Phase { case request, answer, close }

    private let times: Times
    private let table: ConnectionTable
    /// The connection's id in the table while it is open.
    private var id: UInt64?
    private var phase = Phase.request
    private var timer: Scheduled<Void>?
    private var isInputClosed = false

    struct Times: Sendable {
        var request: TimeAmount
        var answer: TimeAmount
        var close: TimeAmount
    }

    init(_ times: Times, table: ConnectionTable) { (self.times, self.table) = (times, table) }

    func handlerAdded(context: ChannelHandlerContext) {
        enter(.request, times.request, context)
        if context.channel.isActive { open(context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func channelActive(context: ChannelHandlerContext) {
        open(context)
        context.fireChannelActive()
    }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    /// Registers the connection; its peer address is known only once it is active.
    private func open(_ context: ChannelHandlerContext) {
        guard id == nil else { return }
        let channel = context.channel
        id = table.add(peer: ClientAddress.network(of: channel.remoteAddress)) { channel.close(promise: nil) }
    }

    private func end() {
        timer?.cancel()
        timer = nil
        if let id { table.remove(id) }
        id = nil
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard phase == .request else { return }
        switch unwrapInboundIn(data) {
        case .head(let head) where head.headerFields[.expect]?.lowercased() == "100-continue":
            // RFC 9110, section 10.1.1: without it the client may delay the body.
            context.writeAndFlush(wrapOutboundOut(.head(HTTPResponse(status: .continue))), promise: nil)
        case .head, .body: break
        case .end:
            // The connection was closed for another one: the request is not passed on.
            guard let id, table.beginResponse(id) else { return }
            enter(.answer, times.answer, context)
        }
        context.fireChannelRead(data)
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard phase != .close else {
            promise?.fail(ChannelError.outputClosed)
            return
        }
        guard case .end = unwrapOutboundIn(data) else { return context.write(data, promise: promise) }
        context.writeAndFlush(data, promise: promise)
        finish(context)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? HTTPParserError else { return context.fireErrorCaught(error) }
        // Input after the request is ignored.
        guard phase == .request else { return }
        let reply =
            if case .headerOverflow = error {
                Reply.refused(.requestHeaderFieldsTooLarge, "the header exceeds \(HTTPLimits.head) bytes")
            } else { Reply.refused(.badRequest, "invalid HTTP/1.1 request") }
        context.write(wrapOutboundOut(.head(reply.head)), promise: nil)
        context.write(wrapOutboundOut(.body(reply.body)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        finish(context)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            isInputClosed = true
            if phase == .close { return context.close(promise: nil) }
        }
        context.fireUserInboundEventTriggered(event)
    }

    /// Closes only the output and waits for the peer to close: closing with unread input would reset the connection and
    /// could discard the response.
    private func finish(_ context: ChannelHandlerContext) {
        if let id { table.endResponse(id) }
        enter(.close, times.close, context)
        context.close(mode: isInputClosed ? .all : .output, promise: nil)
    }

    private func enter(_ phase: Phase, _ time: TimeAmount, _ context: ChannelHandlerContext) {
        self.phase = phase
        timer?.cancel()
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: time) { context.close(promise: nil) }
    }
}
