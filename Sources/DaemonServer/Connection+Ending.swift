import Logging
import NIOCore
import ThumbnailCache

/// How a connection ends: because its peer has said or taken all, is gone, or stalls, or because the daemon stops.
extension Connection {
    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .inputClosed? = event as? ChannelEvent {
            // The peer has said all it wants to say, and may still be reading.
            isInputClosed = true
            work(context)
        }
        context.fireUserInboundEventTriggered(event)
    }

    /// Told by the registry when the daemon stops.
    func drain() {
        guard let context, phase == .serving else { return }
        finish()
        work(context)
    }

    /// Closes behind the last reply, if nothing more is to come. All that has come in is started.
    func closeIfOver(_ context: ChannelHandlerContext) {
        guard phase == .draining || (isInputClosed && phase == .serving), replies.isEmpty else { return }
        phase = .closing
        // Done when everything before it is.
        context.writeAndFlush(wrapOutboundOut(ByteBuffer())).assumeIsolated().whenComplete { _ in
            context.close(promise: nil)
        }
    }

    /// The peer is gone: what it waited for it leaves, what it held ends.
    func channelInactive(context: ChannelHandlerContext) {
        phase = .closed
        watchdog?.cancel()
        for waiting in waiting.values {
            waiting.timer.cancel()
            place.load.leave()
            waiting.cache.leave(waiting.id)
        }
        waiting = [:]
        batch = nil
        for session in held { release(session) }
        held = []
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        // A reset or broken pipe is how peers leave; nothing else comes here, and neither can be answered.
        dispatcher.log.debug("a connection failed", metadata: ["uid": "\(peer.uid)", "error": "\(error)"])
        context.close(promise: nil)
    }

    // MARK: Peers that stall

    /// Sees to it that a peer that reads nothing, or leaves a frame unfinished, for the time of `stall` is disconnected, a
    /// quarter of that time later at most.
    func watch(_ context: ChannelHandlerContext) {
        guard watchdog == nil, phase != .closed, progress.isAwaited else { return }
        measureOutput(context)
        lookAgain(since: progress, looks: 1)
    }

    private func lookAgain(since before: PeerProgress, looks: Int64) {
        let pause = TimeAmount.milliseconds(max(1, limits.stall / Self.looksInStall))
        watchdog = eventLoop.assumeIsolated().scheduleTask(in: pause) { [weak self] in
            guard let self, let context = self.context else { return }
            self.watchdog = nil
            self.measureOutput(context)
            guard self.progress.hasStalled(since: before) else { return self.watch(context) }
            guard looks >= Self.looksInStall else { return self.lookAgain(since: before, looks: looks + 1) }
            self.dispatcher.log.info(
                "disconnected a peer that stalled",
                metadata: ["uid": "\(self.peer.uid)", "pid": "\(self.peer.pid)", "unread": "\(self.output.unread)"])
            context.close(promise: nil)
        }
    }

    private static var looksInStall: Int64 { 4 }

    private var progress: PeerProgress {
        PeerProgress(
            sent: output.sent, unread: output.unread, frames: reader.count,
            isInsideFrame: phase == .serving && reader.isInsideFrame)
    }
}
