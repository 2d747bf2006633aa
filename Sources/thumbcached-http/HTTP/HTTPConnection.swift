import NIOCore
import NIOHTTP1

/// One HTTP connection: processes one request at a time.
///
/// No queued request starts before the previous response is written, and no read is requested while a request is
/// queued. So a peer that pipelines requests and reads nothing holds at most one response in memory. NIO's
/// HTTPServerPipelineHandler starts the next request when the response is enqueued: one read of 4 KiB then fills memory
/// with a hundred responses.
final class HTTPConnection: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    /// The awaited step. Each phase has a timeout, see ``due``.
    enum Phase: Equatable, Sendable {
        case head
        /// The response to the request with this number. Late responses to earlier requests are discarded by it.
        case response(number: Int)
        /// The peer reading the response.
        case write
        /// The peer closing the connection.
        case close
    }

    private let limits: HTTPLimits
    private let respond: (HTTPRequestHead) -> Responder
    private let now: () -> NIODeadline
    private let wallClock: () -> Int64
    /// Called with ``due`` when the phase changes.
    private let timeoutChanged: (NIODeadline) -> Void
    private(set) var phase = Phase.head
    private(set) var since: NIODeadline
    private var context: ChannelHandlerContext?
    private var queue = CircularBuffer<HTTPRequestHead>()
    private var current: HTTPRequestHead?
    /// Makes the response to ``current`` if it times out.
    private var fallback: (() -> Response)?
    /// Ends the work for ``current``.
    private var cancel: (() -> Void)?
    private var requests = 0
    /// The response to invalid input. It follows the queued requests, then the connection closes.
    private var refusal: Response?
    private var isInputClosed = false

    enum Responder {
        case now(Response, closes: Bool)
        /// - Parameters:
        ///   - late: makes the response if the future does not complete in time.
        ///   - cancel: called if the connection is closed or reset, or the response is late. A peer that closed only its
        ///     output still gets the response.
        case later(EventLoopFuture<Response>, late: () -> Response, cancel: () -> Void)
    }

    init(
        limits: HTTPLimits, now: @escaping () -> NIODeadline, wallClock: @escaping () -> Int64,
        timeoutChanged: @escaping (NIODeadline) -> Void, respond: @escaping (HTTPRequestHead) -> Responder
    ) {
        (self.limits, self.now, self.wallClock) = (limits, now, wallClock)
        (self.timeoutChanged, self.respond) = (timeoutChanged, respond)
        since = now()
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) {
        self.context = nil
        cancel.take()?()
    }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        context.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Requests with a body are rejected, so only heads matter.
        guard case .head(let head) = unwrapInboundIn(data), refusal == nil, phase != .close else { return }
        guard queue.count < limits.pipelined else {
            refusal = Response(.tooManyRequests, "Too many pipelined requests; at most \(limits.pipelined) are queued.")
            return
        }
        queue.append(head)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        context.fireChannelReadComplete()
        proceed()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        let response: Response
        switch error {
        // Further input after an error, which is discarded.
        case ByteToMessageDecoderError.dataReceivedInErrorState: return
        case HTTPParserError.headerOverflow, is ByteToMessageDecoderError.PayloadTooLargeError:
            response = Response(
                .requestHeaderFieldsTooLarge,
                "Header too large; at most \(limits.head) bytes and \(limits.fields) fields are valid.")
        case HTTPParserError.invalidVersion:
            response = Response(.httpVersionNotSupported, "Unsupported HTTP version; use HTTP/1.1.")
        case is HTTPParserError: response = Response(.badRequest, "Malformed HTTP/1.1 request.")
        default: return context.close(promise: nil)
        }
        guard refusal == nil, phase != .close else { return }
        refusal = response
        proceed()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            isInputClosed = true
            proceed()
        }
        context.fireUserInboundEventTriggered(event)
    }

    private func enter(_ phase: Phase) {
        (self.phase, since) = (phase, now())
        timeoutChanged(due)
    }

    /// Starts the next queued request, and reads if no other is queued. Does nothing while a response is pending.
    private func proceed() {
        guard let context, context.channel.isActive else { return }
        switch phase {
        case .response, .write: return
        case .close:
            if isInputClosed { return context.close(promise: nil) }
            // The input is discarded.
            context.read()
        case .head:
            if let head = queue.popFirst() {
                current = head
                // Reads ahead once. Otherwise each request removes the socket from epoll and adds it again.
                if queue.isEmpty && refusal == nil && !isInputClosed { context.read() }
                start(head)
            } else if let refusal {
                write(refusal, closes: true)
            } else if isInputClosed {
                context.close(promise: nil)
            } else {
                context.read()
            }
        }
    }

    private func start(_ head: HTTPRequestHead) {
        requests += 1
        let number = requests
        enter(.response(number: number))
        switch respond(head) {
        case .now(let response, let closes): write(response, closes: closes)
        case .later(let future, let late, let cancel):
            (fallback, self.cancel) = (late, cancel)
            future.assumeIsolated().whenSuccess { response in
                guard self.phase == .response(number: number) else { return }
                self.write(response, closes: false)
            }
        }
    }

    private func write(_ response: Response, closes: Bool) {
        guard let context else { return }
        // HTTP/1.0 connections are never kept alive. NIO parses nothing after a request to upgrade.
        let stays =
            current.map { $0.isKeepAlive && $0.version == .http1_1 && !$0.headers.contains(name: "Upgrade") } ?? false
        let closes = closes || !stays
        let isHead = current?.method == .HEAD
        (current, fallback, cancel) = (nil, nil, nil)
        enter(.write)
        let head = response.head(closes: closes, at: wallClock())
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        if !isHead, response.body.readableBytes > 0 {
            context.write(wrapOutboundOut(.body(.byteBuffer(response.body))), promise: nil)
        }
        // Deferred to another loop iteration: otherwise pipelined requests would recurse.
        let (loop, transfer) = (context.eventLoop, response.transfer)
        if let transfer {
            let (connection, number) = (NIOLoopBound(self, eventLoop: loop), requests)
            transfer.whenRevoked { loop.execute { connection.value.abort(response: number) } }
        }
        context.writeAndFlush(wrapOutboundOut(.end(nil))).assumeIsolated().whenComplete { _ in
            withExtendedLifetime(transfer) {}
            loop.assumeIsolated().execute { self.written(closes: closes) }
        }
    }

    private func written(closes: Bool) {
        guard let context, phase == .write else { return }
        guard closes else {
            enter(.head)
            return proceed()
        }
        enter(.close)
        queue.removeAll()
        context.close(mode: .output, promise: nil)
        proceed()
    }

    var due: NIODeadline {
        switch phase {
        case .head: since + limits.headTime
        case .response: since + limits.responseTime
        case .write: since + limits.writeTime
        case .close: since + limits.closeTime
        }
    }

    /// Sends the late response, or closes, if the timeout has expired.
    func timeOut(at now: NIODeadline) {
        guard let context, now >= due else { return }
        if case .response = phase, let fallback {
            let cancel = cancel
            write(fallback(), closes: false)
            cancel?()
            return
        }
        context.close(promise: nil)
    }

    func close() { context?.close(promise: nil) }

    /// Closes the connection unless the response to this request is sent.
    private func abort(response number: Int) {
        if phase == .write, requests == number { close() }
    }

    /// Whether no request is in progress.
    var isEvictable: Bool { phase == .head || phase == .close }
}
