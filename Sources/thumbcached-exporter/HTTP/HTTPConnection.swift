import NIOCore
import NIOHTTP1

/// A connection: one request after another, each answered before the next one is looked at.
///
/// Nothing is read while a request is answered, so that a peer cannot have more waiting here than one read brings.
final class HTTPConnection: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    /// What is waited for. Each wait has an end; ``HTTPServer/sweep()`` looks for it.
    enum Phase: Equatable, Sendable {
        /// A whole head.
        case head
        /// The answer to the request with this number; late ones are told by it.
        case answer(number: Int)
        /// The peer, to take its answer.
        case write
        /// The peer, to close.
        case close
    }

    private let limits: HTTPLimits
    private let respond: (HTTPRequestHead) -> Responder
    private let now: () -> NIODeadline
    private let wallClock: () -> Int64
    /// Called with ``due`` whenever another wait begins.
    private let waits: (NIODeadline) -> Void
    private(set) var phase = Phase.head
    /// When it began.
    private(set) var since: NIODeadline
    private var context: ChannelHandlerContext?
    private var waiting = CircularBuffer<HTTPRequestHead>()
    private var current: HTTPRequestHead?
    private var late: Answer?
    private var answered = 0
    /// What is to be said behind the requests that wait, before the connection ends.
    private var last: Answer?
    private var isInputClosed = false

    /// How a request is answered.
    enum Responder {
        case now(Answer, closes: Bool)
        /// - Parameter late: what is answered when that takes too long.
        case later(EventLoopFuture<Answer>, late: Answer)
    }

    init(
        limits: HTTPLimits, now: @escaping () -> NIODeadline, wallClock: @escaping () -> Int64,
        waits: @escaping (NIODeadline) -> Void, respond: @escaping (HTTPRequestHead) -> Responder
    ) {
        (self.limits, self.now, self.wallClock) = (limits, now, wallClock)
        (self.waits, self.respond) = (waits, respond)
        since = now()
    }

    // MARK: What comes

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }
    func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

    func channelActive(context: ChannelHandlerContext) {
        context.fireChannelActive()
        context.read()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        // Of bodies there are none but those of requests that are refused.
        guard case .head(let head) = unwrapInboundIn(data), last == nil, phase != .close else { return }
        guard waiting.count < limits.pipelined else {
            last = Answer(.tooManyRequests, "So many requests are not taken at once.")
            return
        }
        waiting.append(head)
    }

    /// All that one read brought has been taken.
    func channelReadComplete(context: ChannelHandlerContext) {
        context.fireChannelReadComplete()
        goOn()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let error = error as? HTTPParserError else { return context.close(promise: nil) }
        guard last == nil, phase != .close else { return }
        last =
            switch error {
            case .headerOverflow: Answer(.requestHeaderFieldsTooLarge, "A head has at most \(limits.head) bytes.")
            case .invalidVersion: Answer(.httpVersionNotSupported, "This is HTTP/1.1.")
            default: Answer(.badRequest, "This is no request of HTTP/1.1.")
            }
        goOn()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            isInputClosed = true
            goOn()
        }
        context.fireUserInboundEventTriggered(event)
    }

    // MARK: What is answered

    private func enter(_ phase: Phase) {
        (self.phase, since) = (phase, now())
        waits(due)
    }

    /// Takes the next request, if none is being answered, or reads on.
    private func goOn() {
        guard let context, context.channel.isActive else { return }
        switch phase {
        case .answer, .write: return
        case .close:
            if isInputClosed { return context.close(promise: nil) }
            // What comes now goes nowhere.
            context.read()
        case .head:
            if let head = waiting.popFirst() {
                current = head
                answer(head)
            } else if let last {
                write(last, closes: true)
            } else if isInputClosed {
                context.close(promise: nil)
            } else {
                context.read()
            }
        }
    }

    private func answer(_ head: HTTPRequestHead) {
        answered += 1
        let number = answered
        enter(.answer(number: number))
        switch respond(head) {
        case .now(let answer, let closes): write(answer, closes: closes)
        case .later(let future, let late):
            self.late = late
            future.assumeIsolated().whenSuccess { answer in
                guard self.phase == .answer(number: number) else { return }
                self.write(answer, closes: false)
            }
        }
    }

    private func write(_ answer: Answer, closes: Bool) {
        guard let context else { return }
        // HTTP/1.0 knows no connection that stays but by a field that nobody needs.
        let stays = current.map { $0.isKeepAlive && $0.version == .http1_1 } ?? false
        let closes = closes || !stays
        let isHead = current?.method == .HEAD
        (current, late) = (nil, nil)
        enter(.write)
        let head = answer.head(closes: closes, at: wallClock())
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        if !isHead { context.write(wrapOutboundOut(.body(.byteBuffer(answer.body))), promise: nil) }
        // Not in this call: as many requests as came together would be as many calls deep.
        let loop = context.eventLoop
        context.writeAndFlush(wrapOutboundOut(.end(nil))).assumeIsolated().whenComplete { _ in
            loop.assumeIsolated().execute { self.written(closes: closes) }
        }
    }

    private func written(closes: Bool) {
        guard let context, phase == .write else { return }
        guard closes else {
            enter(.head)
            return goOn()
        }
        enter(.close)
        waiting.removeAll()
        context.close(mode: .output, promise: nil)
        goOn()
    }

    // MARK: The end of waits

    /// When the wait has been too long.
    var due: NIODeadline {
        switch phase {
        case .head: since + limits.headTime
        case .answer: since + limits.answerTime
        case .write: since + limits.writeTime
        case .close: since + limits.closeTime
        }
    }

    /// Ends a wait that has been too long.
    func endIfOverdue(at now: NIODeadline) {
        guard let context, now >= due else { return }
        if case .answer = phase, let late { return write(late, closes: false) }
        context.close(promise: nil)
    }

    /// Makes room for another connection. Nothing was asked, or nothing more is to be said.
    func giveWay() { context?.close(promise: nil) }

    var canGiveWay: Bool { phase == .head || phase == .close }
}
