import HTTPTypes
import NIOCore
import NIOHTTP1
import NIOHTTPTypes

/// One request on a connection, each of whose waits has an end.
///
/// It stands between the decoder and whoever answers. What comes behind the request is dropped.
final class ConnectionGuard: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    private enum Phase { case request, answer, close }

    private let times: Times
    private let table: ConnectionTable
    /// In the table, while the connection is open.
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

    /// The address of the peer is known from here on.
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
            // RFC 9110, section 10.1.1: otherwise the body would come after a second or so.
            context.writeAndFlush(wrapOutboundOut(.head(HTTPResponse(status: .continue))), promise: nil)
        case .head, .body: break
        case .end:
            // Closed to make room: the request is not passed on.
            guard let id, table.beginAnswer(id) else { return }
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
        // Behind the request anything may come.
        guard phase == .request else { return }
        let reply =
            if case .headerOverflow = error {
                Reply.refused(.requestHeaderFieldsTooLarge, "a head has at most \(HTTPLimits.head) bytes")
            } else { Reply.refused(.badRequest, "this is no request of HTTP/1.1") }
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

    /// The peer is to close: if we did, what it has yet to read could be lost with what it has yet to send.
    private func finish(_ context: ChannelHandlerContext) {
        if let id { table.endAnswer(id) }
        enter(.close, times.close, context)
        context.close(mode: isInputClosed ? .all : .output, promise: nil)
    }

    private func enter(_ phase: Phase, _ time: TimeAmount, _ context: ChannelHandlerContext) {
        self.phase = phase
        timer?.cancel()
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: time) { context.close(promise: nil) }
    }
}
